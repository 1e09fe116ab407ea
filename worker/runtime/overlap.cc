#include "worker/runtime/overlap.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"

namespace tp::worker {
namespace {

bool Meet(const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
  return std::any_of(a.begin(), a.end(), [&b](const MemoryRange& x) {
    return std::any_of(b.begin(), b.end(),
                       [&x](const MemoryRange& y) { return x.data < y.data + y.bytes && y.data < x.data + x.bytes; });
  });
}

}  // namespace

bool Conflicts(const MemoryUse& a, const MemoryUse& b) {
  return Meet(a.writes, b.writes) || Meet(a.writes, b.reads) || Meet(a.reads, b.writes);
}

std::unique_ptr<CollectiveStream> CollectiveStream::Create(Device& device) {
  std::unique_ptr<DeviceEvent> event = device.CreateEvent();
  if (event == nullptr) return nullptr;
  auto created = std::unique_ptr<CollectiveStream>(new CollectiveStream(device, device.CreateStream()));
  created->Give(std::move(event));
  return created;
}

std::unique_ptr<DeviceEvent> CollectiveStream::Take() {
  if (free_.empty()) return device_.CreateEvent();
  std::unique_ptr<DeviceEvent> event = std::move(free_.back());
  free_.pop_back();
  return event;
}

Overlap::~Overlap() {
  for (Pending& pending : pending_) side_->Give(std::move(pending.event));
}

absl::Status Overlap::WaitFor(size_t count) {
  if (count == 0) return absl::OkStatus();
  TP_RETURN_IF_ERROR(device_.WaitEvent(main_, *pending_[count - 1].event));
  for (size_t i = 0; i < count; ++i) {
    side_->Give(std::move(pending_.front().event));
    pending_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status Overlap::Before(const MemoryUse& use) {
  size_t count = pending_.size();
  while (count > 0 && !Conflicts(pending_[count - 1].use, use)) --count;
  return WaitFor(count);
}

absl::StatusOr<Stream*> Overlap::Fork() {
  std::unique_ptr<DeviceEvent> event = side_->Take();
  if (event == nullptr) return absl::InternalError("the device makes no more events");
  TP_RETURN_IF_ERROR(device_.RecordEvent(main_, *event));
  TP_RETURN_IF_ERROR(device_.WaitEvent(side_->stream(), *event));
  side_->Give(std::move(event));
  return &side_->stream();
}

absl::Status Overlap::Forked(MemoryUse use) {
  std::unique_ptr<DeviceEvent> event = side_->Take();
  if (event == nullptr) return absl::InternalError("the device makes no more events");
  TP_RETURN_IF_ERROR(device_.RecordEvent(side_->stream(), *event));
  pending_.push_back({std::move(event), std::move(use)});
  return absl::OkStatus();
}

absl::Status Overlap::Join() { return WaitFor(pending_.size()); }

}  // namespace tp::worker
