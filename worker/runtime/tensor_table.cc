#include "worker/runtime/tensor_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {

absl::StatusOr<std::shared_ptr<DeviceBuffer>> TensorMemory::Allocate(int64_t bytes) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> buffer, device_.Allocate(bytes));
  *bytes_ += bytes;
  return std::shared_ptr<DeviceBuffer>(buffer.release(), [counter = bytes_, bytes](DeviceBuffer* freed) {
    delete freed;
    *counter -= bytes;
  });
}

absl::Status TensorTable::Publish(const std::vector<HeldTensorPtr>& tensors) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors_.emplace(tensors[i]->id, tensors[i]).second) continue;
    for (size_t k = 0; k < i; ++k) tensors_.erase(tensors[k]->id);
    return absl::AlreadyExistsError(absl::StrCat("tensor ", tensors[i]->id, " is there already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<HeldTensorPtr> TensorTable::Get(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto it = tensors_.find(id);
  if (it == tensors_.end()) return absl::NotFoundError(absl::StrCat("tensor ", id, " is not on this worker"));
  return it->second;
}

void TensorTable::Drop(const std::vector<uint64_t>& ids) {
  std::vector<HeldTensorPtr> dropped;  // freed outside the lock
  const std::lock_guard lock(mutex_);
  for (const uint64_t id : ids) {
    const auto it = tensors_.find(id);
    if (it == tensors_.end()) continue;
    dropped.push_back(std::move(it->second));
    tensors_.erase(it);
  }
}

void TensorTable::Clear() {
  std::map<uint64_t, HeldTensorPtr> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(tensors_);
}

}  // namespace tp::worker
