// Pace: how far the executor has come, and when its next wait must end. A long command is healthy as long as it moves,
// so every collective call has its whole time, and the watchdog counts instructions, not commands. Example:
//   Pace pace(clock, timeout, progress);  pace.Advance();  communicator.AllReduce(..., pace.Deadline());
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace tp::worker {

// Owned by the executor thread; `progress` may be read by any.
class Pace {
 public:
  Pace(const Clock& clock, absl::Duration timeout, std::atomic<uint64_t>& progress)
      : clock_(clock), timeout_(timeout), progress_(progress) {}

  // Of a collective call that begins now, inside a command: the peers run the same one.
  absl::Time Deadline() const { return clock_.Now() + timeout_; }
  // Of a command's first header: peers may still run earlier commands of other meshes, however long. The coordinator
  // ends the wait by an abort; this is for a coordinator that is gone and a fence that failed.
  absl::Time OpeningDeadline() const { return clock_.Now() + absl::Hours(1); }
  void Advance() { progress_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const Clock& clock_;
  const absl::Duration timeout_;
  std::atomic<uint64_t>& progress_;
};

}  // namespace tp::worker
