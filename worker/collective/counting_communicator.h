// CountingCommunicator: counts the calls of a communicator by kind, with their bytes and times. Example:
//   CollectiveCounters counters;
//   auto counted = CreateCountingCommunicator(std::move(communicator), &counters);   ...   counters.Read();
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/collective/communicator.h"

namespace tp::worker {

enum class CollectiveKind {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kScatter,
  kGather,
  kSendReceive,
  kBarrier,
  kHeaders,  // what ranks agree on before and after each step: the wait for the slowest of them
};
inline constexpr size_t kCollectiveKinds = 10;
std::vector<std::string> CollectiveKindNames();  // "all_reduce", ..., by kind

// By CollectiveKind.
struct CollectiveTally {
  std::array<int64_t, kCollectiveKinds> calls{};
  // Payload of the larger side of this rank's call: a member's input of an all_reduce or a broadcast, all blocks of a
  // gather or a scatter, what is sent or received, whichever is more, of the others.
  std::array<int64_t, kCollectiveKinds> bytes{};
  // That the caller was in the call. On GPUs it only puts the call on the stream.
  std::array<absl::Duration, kCollectiveKinds> times{};
  CollectiveTally Since(const CollectiveTally& before) const;
};

// Of all communicators of a worker. Thread-safe; adding is a few atomic additions.
class CollectiveCounters {
 public:
  void Add(CollectiveKind kind, int64_t bytes, absl::Duration time);
  // Calls that were made again as a recorded graph: their times are not known.
  void AddAgain(const CollectiveTally& tally);
  CollectiveTally Read() const;

 private:
  struct Cell {
    std::atomic<int64_t> calls{0}, bytes{0}, nanoseconds{0};
  };
  std::array<Cell, kCollectiveKinds> cells_;
};

// `counters` must outlive it.
std::unique_ptr<Communicator> CreateCountingCommunicator(std::unique_ptr<Communicator> inner,
                                                         CollectiveCounters* counters);
// Of calls through it only; `inner` must outlive it.
std::unique_ptr<Communicator> CreateCountingCommunicator(Communicator& inner, CollectiveCounters* counters);

}  // namespace tp::worker
