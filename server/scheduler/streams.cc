#include "server/scheduler/streams.h"

#include <algorithm>

namespace tp::server {

absl::Duration ProgressLimit(const ProgressLimits& limits, absl::Duration usual, bool first) {
  const absl::Duration floor = first ? std::max(limits.floor, limits.first_floor) : limits.floor;
  return std::max(floor, 20 * usual) * limits.time_scale;
}

Numbers Order::Append(const std::vector<WorkerStream*>& streams, CommandClass command_class, absl::Time now,
                      absl::Duration allowance) {
  Numbers numbers;
  numbers.order = ++last_;
  for (WorkerStream* stream : streams) {
    PendingCommand command;
    command.sequence = stream->next_sequence++;
    command.order = numbers.order;
    command.sent = now;
    command.limit = ProgressLimit(limits_, stream->usual, command_class != CommandClass::kWork) + allowance;
    command.timed = command_class == CommandClass::kWork;
    if (stream->pending.empty()) stream->head_since = stream->moved_since = now;
    numbers.sequences.push_back(command.sequence);
    numbers.limit = std::max(numbers.limit, command.limit);
    stream->pending.push_back(command);
  }
  return numbers;
}

AckVerdict Acknowledge(WorkerStream* stream, uint64_t sequence, uint64_t order, absl::Time now) {
  const auto same = [&](const PendingCommand& command) {
    return command.sequence == sequence && command.order == order;
  };
  if (stream->pending.empty()) return AckVerdict::kStray;
  if (!same(stream->pending.front())) {
    const bool pending = std::any_of(stream->pending.begin(), stream->pending.end(), same);
    return pending ? AckVerdict::kOutOfOrder : AckVerdict::kStray;
  }
  if (stream->pending.front().timed) {
    const absl::Duration took = now - stream->head_since;
    stream->usual = stream->usual == absl::ZeroDuration() ? took : stream->usual * 0.8 + took * 0.2;
  }
  stream->completed_sequence = std::max(stream->completed_sequence, sequence);
  stream->pending.pop_front();
  stream->head_since = stream->moved_since = now;
  return AckVerdict::kHead;
}

bool Overdue(const WorkerStream& stream, absl::Time now) {
  return !stream.pending.empty() && now - stream.moved_since > stream.pending.front().limit;
}

}  // namespace tp::server
