// The two kinds of work command on one rank, Run and Decode, from the opening header to the closing one. A rank that
// failed goes on to the end of its step, so that its peers do not wait, and says so in the next header.
// Example: `WorkOutcome outcome = ExecuteRun(context, model, run, inputs);`
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/program/command.h"
#include "worker/runtime/loaded_model.h"
#include "worker/runtime/pace.h"

namespace tp::worker {

struct WorkContext {
  Device& device;
  Stream& stream;
  Communicator& communicator;
  Arena& arena;
  Pace& pace;
  uint64_t epoch = 0;
  uint64_t order = 0;  // of the command; equal on all ranks
};

struct WorkOutcome {
  absl::Status status;
  int failed_rank = -1;
  bool transport = false;             // the communicator can't be used any more
  RunResult run;                      // duration_us is the caller's
  std::vector<std::string> streamed;  // bytes of the blocks marked so
  DecodeResult decode;
};

// `refused`: why this rank can't run the command at all (unknown model, unfinished input); it takes part in the
// headers. `inputs`: bytes of run.inputs, in their order. `model` is nullptr only where `refused` is set.
WorkOutcome ExecuteRun(const WorkContext& context, LoadedModel* model, const Run& run,
                       const std::vector<std::string_view>& inputs, const absl::Status& refused);

// Joins, leaves and pieces take effect before the first step, which takes in all pieces and one token of every other
// sequence that is past its prompt; later steps take one token of each. Sequences that took part in a step that failed
// end on every rank and free their pages. Ids that are not there (they stopped, left or failed) are skipped.
WorkOutcome ExecuteDecode(const WorkContext& context, LoadedModel* model, const Decode& decode,
                          const absl::Status& refused);

}  // namespace tp::worker
