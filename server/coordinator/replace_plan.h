// What a model that replaces another takes over: states of the same values come from the resident shards. Pure.
// Example:
//   TP_ASSIGN_OR_RETURN(std::vector<TakenState> taken, PlanTakeover({*old_submission, *old, place}, {...}, states));
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "common/program/command.h"
#include "common/program/compile.h"
#include "server/coordinator/tensor_plan.h"

namespace tp::server {

struct TakenState {
  size_t index = 0;                           // in the states of the replacement's load
  LoadState from;                             // as the served model holds it
  std::optional<HopPlan> hop;                 // absent: each rank has its block already
  std::vector<int64_t> from_bytes, to_bytes;  // of the blocks, by rank of the one mesh and of the other
};

struct PlacedModel {
  const Submission& submission;
  const CompiledModel& compiled;
  std::vector<std::string> workers;  // by rank
};

// A state is taken over where the served model has one of the same path, dtype, global shape and source (and seed,
// where values are drawn), and neither is partial. Tied states have no values of their own. `states`: what the
// replacement is to load. PlanMove's errors, naming the state.
absl::StatusOr<std::vector<TakenState>> PlanTakeover(const PlacedModel& served, const PlacedModel& replacement,
                                                     const std::vector<LoadState>& states);

// The end of the batch that begins at `begin`: states that are held a third time together, while they move.
size_t BatchEnd(const std::vector<TakenState>& taken, size_t begin);

// Bytes by rank that moving needs beside both models: on the served one's mesh, and on the replacement's.
struct MoveBytes {
  std::vector<int64_t> served, replacement;
};
MoveBytes BytesToMove(const std::vector<TakenState>& taken, int served_ranks, int replacement_ranks);

}  // namespace tp::server
