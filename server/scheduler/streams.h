// One total order (Foundation 3): the numbers of commands are given here and nowhere else. A command is appended to the
// streams of all its workers in one call, so any two workers see their common commands in the same order. Example:
//   Order order;
//   Numbers numbers = order.Append({&stream_a, &stream_b}, timing, now);  // numbers.sequences[i] is stream i's
// Thread-compatible values; no clock.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"

namespace tp::server {

// A command sent to a worker and not answered yet.
struct PendingCommand {
  uint64_t sequence = 0, order = 0;
  absl::Time sent;
  absl::Duration limit = absl::InfiniteDuration();  // it is overdue when it was the oldest for longer
  bool timed = false;                               // its time counts for the usual one
};

// The commands of one worker: numbered from 1 without gaps, answered in order.
struct WorkerStream {
  uint64_t next_sequence = 1;
  uint64_t completed_sequence = 0;
  absl::Time head_since;   // since when the oldest pending command is the oldest
  absl::Time moved_since;  // since when nothing of it has moved; the watchdog's clock
  absl::Duration usual;    // running estimate of a timed command; 0 = none yet
  std::deque<PendingCommand> pending;
};

// How long a command may take. `first`: of a model that ran nothing since its load.
struct ProgressLimits {
  absl::Duration floor = absl::Seconds(4);
  absl::Duration first_floor = absl::Seconds(10);
  double time_scale = 1;
};
// max(floor, 20 x usual), times the scale.
absl::Duration ProgressLimit(const ProgressLimits& limits, absl::Duration usual, bool first);

enum class CommandClass { kControl, kFirstWork, kWork };

struct Numbers {
  uint64_t order = 0;
  std::vector<uint64_t> sequences;  // by the given streams
  absl::Duration limit;             // the longest of the streams'
};

class Order {
 public:
  explicit Order(ProgressLimits limits) : limits_(limits) {}
  // `allowance`: time beside the usual limit, for a command that moves much.
  Numbers Append(const std::vector<WorkerStream*>& streams, CommandClass command_class, absl::Time now,
                 absl::Duration allowance = absl::ZeroDuration());

 private:
  ProgressLimits limits_;
  uint64_t last_ = 0;
};

enum class AckVerdict {
  kHead,       // answers the oldest pending command, which was removed
  kStray,      // of an earlier life of the stream, or a repeat: ignore it
  kOutOfOrder  // a pending command that is not the oldest: the worker broke the order
};
AckVerdict Acknowledge(WorkerStream* stream, uint64_t sequence, uint64_t order, absl::Time now);

// The oldest pending command has not moved for longer than its limit.
bool Overdue(const WorkerStream& stream, absl::Time now);

}  // namespace tp::server
