// What a plan does that its author may not have meant, each with the change that would cure it. Example: a weight of 9
// rows S(0) on tp=8: "fc.weight: dim 0 of 9 over tp=8 gives 2 2 2 2 1 0 0 0: 3 ranks hold nothing; a size that 8
// divides, as 16, or tp=3 shares it out". Pure: no value is needed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"
#include "common/program/memory.h"

namespace tp {

// All of the below, in their order. With a `memory_limit` (bytes a rank, 0: none) no change is named that would not fit
// it, and weights that fit it whole are well where they are. INVALID_ARGUMENT for unbound symbols.
absl::StatusOr<std::vector<std::string>> PlanWarnings(const Submission& submission, const CompiledModel& compiled,
                                                      const Bindings& bindings, int64_t memory_limit = 0);

// Gathers that a change of one entry makes fewer: the plan is compiled again with another style or output layout on the
// module that gathers or on the one that made the value, and the bytes are compared.
absl::StatusOr<std::vector<std::string>> AvoidableGathers(const Submission& submission, const CompiledModel& compiled,
                                                          const Bindings& bindings, int64_t memory_limit = 0);
// Linears that are cut while those before or after them are not: a RowwiseParallel one whose input is not cut, one
// without an entry that reads what a ColwiseParallel one made. Each with entries that cut both, which were tried.
absl::StatusOr<std::vector<std::string>> UnpairedStyles(const Submission& submission, const CompiledModel& compiled,
                                                        const Bindings& bindings, int64_t memory_limit = 0);
// States, and free dims at their bound sizes, of which some rank holds nothing or the busiest one over 25 % more than
// its even share.
absl::StatusOr<std::vector<std::string>> UnevenShards(const CompiledModel& compiled, const Bindings& bindings);
// Weights of linear and embedding of at least 1 MiB and over a quarter of the rank's parameters that no axis cuts, on a
// mesh with an axis (other than `batch_axes`) that could.
std::vector<std::string> ReplicatedWeights(const CompiledModel& compiled, const std::vector<std::string>& batch_axes);
// Gathers over a batch axis: a sharding that does not name the axis has it Replicate.
std::vector<std::string> BatchGathers(const CompiledModel& compiled, const std::vector<std::string>& batch_axes);

}  // namespace tp
