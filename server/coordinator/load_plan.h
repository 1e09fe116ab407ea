// What a model's ranks load and hold: states with their sources, pages of the cache, bytes for admission. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "common/program/command.h"
#include "common/program/compile.h"

namespace tp::server {

// One for each state. Weights that only `linear` reads are packed.
std::vector<LoadState> StatesToLoad(const CompiledModel& model);

// min(16 sequences of max_positions, what fits in `cache_bytes` on the largest rank); 0 without a step program.
// RESOURCE_EXHAUSTED where one sequence of max_positions does not fit.
absl::StatusOr<int> CachePagesFor(const Submission& submission, const CompiledModel& model, int64_t cache_bytes);

// The ranks of each replica in generation, ascending: those with equal coordinates on all replica_axes. One with all
// ranks where there are no such axes.
std::vector<std::vector<int>> ReplicasOf(const CompiledModel& model);

// Parameters, buffers, cache and the activations of one row of the largest allowed size (free dims without a limit are
// 1).
absl::StatusOr<int64_t> BytesOnRank(const Submission& submission, const CompiledModel& model, int cache_pages, int rank,
                                    bool widened);

}  // namespace tp::server
