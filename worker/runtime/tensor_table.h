// The named tensors of this worker: each is a rank's block in device memory under an id that is never used again.
// An entry does not change once its values are there, so stages read it on any thread, and it lives as long as one of
// them holds it. Example:
//   TP_ASSIGN_OR_RETURN(std::shared_ptr<const HeldTensor> tensor, table.Get(12));
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/spec.h"
#include "worker/device/device.h"

namespace tp::worker {

// A block's type: what two ranks must agree on.
struct HeldTensor {
  uint64_t id = 0;
  uint64_t mesh_id = 0;
  Mesh mesh;
  int rank = 0;
  DType dtype = DType::kF32;
  Shape shape;  // global
  Placements placements;
  std::shared_ptr<DeviceBuffer> buffer;

  Shape LocalShape() const { return tp::LocalShape(shape, placements, mesh, mesh.CoordinateOf(rank)); }
  int64_t size_bytes() const { return ElementCount(LocalShape()) * ItemSize(dtype); }
};
using HeldTensorPtr = std::shared_ptr<const HeldTensor>;

// Device memory of tensors, counted until the last user of a buffer is gone. Thread-safe.
class TensorMemory {
 public:
  explicit TensorMemory(Device& device) : device_(device), bytes_(std::make_shared<std::atomic<int64_t>>(0)) {}
  // Errors of Device::Allocate. A buffer may outlive this object.
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Allocate(int64_t bytes);
  int64_t bytes() const { return *bytes_; }

 private:
  Device& device_;
  const std::shared_ptr<std::atomic<int64_t>> bytes_;
};

// Thread-safe.
class TensorTable {
 public:
  // All or none. ALREADY_EXISTS naming an id that is there.
  absl::Status Publish(const std::vector<HeldTensorPtr>& tensors);
  // NOT_FOUND naming the id.
  absl::StatusOr<HeldTensorPtr> Get(uint64_t id) const;
  bool Contains(uint64_t id) const { return Get(id).ok(); }
  // Ids that are not there are no error.
  void Drop(const std::vector<uint64_t>& ids);
  void Clear();

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, HeldTensorPtr> tensors_;  // guarded by mutex_
};

}  // namespace tp::worker
