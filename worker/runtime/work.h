// The two kinds of work command on one rank, Run and Decode, from the opening header to the closing one. A rank that
// failed goes on to the end of its step, so that its peers do not wait, and says so in the next header.
// Example: `WorkOutcome outcome = ExecuteRun(context, model, run, inputs);`
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/program/command.h"
#include "worker/runtime/agreement.h"
#include "worker/runtime/loaded_model.h"
#include "worker/runtime/pace.h"
#include "worker/runtime/tensor_table.h"

namespace tp::worker {

struct WorkContext {
  Device& device;
  Stream& stream;
  Communicator& communicator;
  Arena& arena;
  Pace& pace;
  uint64_t epoch = 0;
  uint64_t order = 0;                       // of the command; equal on all ranks
  CollectiveStream* collectives = nullptr;  // where collectives may run beside the rest
  bool graphs = false;                      // decode steps may be run as recorded graphs
  CollectiveCounters* counters = nullptr;   // StepContext::counters
};

struct WorkOutcome {
  absl::Status status;
  int failed_rank = -1;
  bool transport = false;             // the communicator can't be used any more
  RunResult run;                      // duration_us is the caller's
  std::vector<std::string> streamed;  // bytes of the blocks marked so
  DecodeResult decode;
};

// The headers of one command: agrees with all ranks and keeps what they agreed on in the outcome.
class CommandHeaders {
 public:
  // `outcome` must outlive it. `fingerprint`: of what the ranks are about to do; equal on all. `ranks`: that take part;
  // empty = all.
  CommandHeaders(const WorkContext& context, uint64_t fingerprint, WorkOutcome* outcome, std::vector<int> ranks = {})
      : agreement_(
            context.communicator,
            {.epoch = static_cast<uint32_t>(context.epoch), .sequence = context.order, .fingerprint = fingerprint},
            context.pace, std::move(ranks)),
        outcome_(outcome) {}
  // Agreement::Exchange; false where the command ends here. The outcome's status, failed rank and transport are those
  // agreed on.
  bool Agree(uint32_t step, bool closing, const absl::Status& mine) {
    AgreedStatus agreed = agreement_.Exchange(step, closing, mine);
    outcome_->status = std::move(agreed.status);
    outcome_->failed_rank = agreed.failed_rank;
    outcome_->transport = agreed.transport;
    return outcome_->status.ok();
  }

 private:
  Agreement agreement_;
  WorkOutcome* const outcome_;
};

// This rank's block of an input.
struct RunBlock {
  std::string_view bytes = {};     // row-major, where `tensor` is nullptr
  HeldTensorPtr tensor = nullptr;  // of the rank, mesh axes, type and placements of the program's operand
};

// `refused`: why this rank can't run the command at all (unknown model, unfinished input); it takes part in the
// headers. `inputs`: of run.inputs, in their order. A run's own program is made ready here and kept until another.
// `model` is nullptr only where `refused` is set.
WorkOutcome ExecuteRun(const WorkContext& context, LoadedModel* model, const Run& run,
                       const std::vector<RunBlock>& inputs, const absl::Status& refused);

// Joins, leaves and pieces take effect before the first step, which takes in all pieces and one token of every other
// sequence that is past its prompt; later steps take one token of each. Sequences that took part in a step that failed
// end on every rank and free their pages. Ids that are not there (they stopped, left or failed) are skipped. The ranks
// of decode.ranks agree among themselves: other replicas of the model run other commands.
WorkOutcome ExecuteDecode(const WorkContext& context, LoadedModel* model, const Decode& decode,
                          const absl::Status& refused);

}  // namespace tp::worker
