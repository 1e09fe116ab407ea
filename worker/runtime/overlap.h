// Collectives beside computation: a collective whose result the next instruction does not need runs on a stream of its
// own, and the main stream waits for it only before an instruction that touches the same memory. Memory of a step is
// planned for one instruction after the other, so reuse of what a collective still reads counts as touching. Example,
// an all_reduce into [0, 64) beside a product into [128, 192): the product starts at once; what reads [0, 64) waits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device.h"

namespace tp::worker {

struct MemoryRange {
  const char* data = nullptr;
  int64_t bytes = 0;
};
// What one instruction touches. Scratch memory is written.
struct MemoryUse {
  std::vector<MemoryRange> reads, writes;
};
// Whether the two can't run at once: one writes what the other reads or writes.
bool Conflicts(const MemoryUse& a, const MemoryUse& b);

// A stream for collectives and events for it, kept from step to step. Owned by the executor thread.
class CollectiveStream {
 public:
  // nullptr where the device's streams are inline.
  static std::unique_ptr<CollectiveStream> Create(Device& device);
  Stream& stream() { return *stream_; }
  // One that no open Overlap uses; grows as needed. nullptr where the device makes no more.
  std::unique_ptr<DeviceEvent> Take();
  void Give(std::unique_ptr<DeviceEvent> event) { free_.push_back(std::move(event)); }

 private:
  CollectiveStream(Device& device, std::unique_ptr<Stream> stream) : device_(device), stream_(std::move(stream)) {}
  Device& device_;
  const std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceEvent>> free_;
};

// Of one step. With no collective stream everything stays on the main one and the calls do nothing.
class Overlap {
 public:
  Overlap(Device& device, Stream& main, CollectiveStream* side) : device_(device), main_(main), side_(side) {}
  ~Overlap();
  Overlap(const Overlap&) = delete;
  Overlap& operator=(const Overlap&) = delete;

  bool active() const { return side_ != nullptr; }
  // The main stream waits for the collectives that an instruction conflicts with.
  absl::Status Before(const MemoryUse& use);
  // The stream for a collective, behind what the main one holds; Forked() once it is there.
  absl::StatusOr<Stream*> Fork();
  absl::Status Forked(MemoryUse use);
  // The main stream waits for all.
  absl::Status Join();

 private:
  struct Pending {
    std::unique_ptr<DeviceEvent> event;
    MemoryUse use;
  };
  // The main stream waits for the first `count`; the stream of collectives is in order.
  absl::Status WaitFor(size_t count);

  Device& device_;
  Stream& main_;
  CollectiveStream* const side_;
  std::deque<Pending> pending_;
};

}  // namespace tp::worker
