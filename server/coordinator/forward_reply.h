// The answer of a run from its ranks' answers. Pure.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/command.h"
#include "common/program/program.h"
#include "server/coordinator/events.h"

namespace tp::server {

// Names, global types and placements of a program's outputs, in its order.
absl::StatusOr<std::vector<AnswerOutput>> AnswerOutputs(const ForwardProgram& program, const Bindings& bindings);

// `acks` and `transfers` by rank, all acks OK. Blocks as their owners gave them, with `local_blocks` as every rank gave
// its own; collectives are the maximum over ranks, index by index. INTERNAL in the reply's status where ranks answer
// what the program has not.
ForwardReply MakeForwardReply(const ForwardProgram& program, const Bindings& bindings, bool local_blocks,
                              const std::vector<const Ack*>& acks, const std::vector<uint64_t>& transfers);

// The counts of a transform or transfer, all acks OK, added to `reply`'s: steps are the maximum over ranks, index by
// index; bytes of the transport are the busiest rank's.
void AddCounts(const std::vector<std::optional<Ack>>& acks, OperationReply* reply);

}  // namespace tp::server
