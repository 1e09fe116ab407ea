// Device memory of one GPU from CUDA's stream-ordered pool. A buffer may be given back while work that uses it is still
// on a stream: its memory is reused only after what every stream holds at that moment. Example:
//   auto memory = *Memory::Create(0, 0);  auto buffer = *memory->Allocate(1 << 20);
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace tp::worker::cuda {

// The same for all processes of one machine, in whatever containers, and no other's: with a bus id it names a GPU in a
// cluster.
std::string MachineId();
// Makes the GPU the calling thread's.
absl::Status UseDevice(int ordinal);

// Thread-safe. Buffers may outlive every other reference to it.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  // `limit_bytes` 0 = the GPU's. FAILED_PRECONDITION for a GPU that is not there.
  static absl::StatusOr<std::shared_ptr<Memory>> Create(int ordinal, int64_t limit_bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int ordinal() const { return ordinal_; }
  int64_t limit_bytes() const { return limit_; }
  // Memory that every stream may use at once. RESOURCE_EXHAUSTED naming the bytes, or the limit. May wait for the work
  // that holds memory given back earlier.
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes);
  int64_t used_bytes() const;

  // Streams whose work a buffer's end waits for.
  void AddStream(cudaStream_t stream);
  void RemoveStream(cudaStream_t stream);
  // While a stream records a graph no event may be recorded on it: what is given back then waits until the last one
  // ended.
  void BeginRecording();
  void EndRecording();

 private:
  class Buffer;
  Memory(int ordinal, int64_t limit, cudaStream_t stream) : ordinal_(ordinal), limit_(limit), stream_(stream) {}
  void Give(void* data, int64_t bytes);
  void FreeLocked(void* data);

  const int ordinal_;
  const int64_t limit_;
  const cudaStream_t stream_;  // of allocations and frees only
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  int64_t used_ = 0;
  int recordings_ = 0;
  std::vector<cudaStream_t> streams_;
  std::vector<void*> waiting_;  // given back while a stream records
};

// Pinned host memory, which copies run from and to without the processor.
class PinnedBuffer {
 public:
  static absl::StatusOr<std::unique_ptr<PinnedBuffer>> Create(int64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  PinnedBuffer(char* data, int64_t size) : data_(data), size_(size) {}
  char* const data_;
  const int64_t size_;
};

}  // namespace tp::worker::cuda
