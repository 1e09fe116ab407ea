// What another plan for the same model would cost: how warnings find the change that they name. Pure. Example:
//   PlanTrials trials(submission, bindings, /*memory_limit=*/0, /*most=*/12);
//   if (auto with = trials.Of(entries); with.has_value() && with->bytes < now.bytes) ...
// Internal to common/program.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"

namespace tp {

struct TrialCost {
  int64_t bytes = 0;            // received in collectives by the busiest rank
  double flops = 0;             // of the busiest rank
  int64_t parameter_bytes = 0;  // of rank 0
  int64_t memory = 0;           // of the busiest rank, all kinds together
};

// INVALID_ARGUMENT for unbound symbols.
absl::StatusOr<TrialCost> TrialCostOf(const CompiledModel& compiled, const Bindings& bindings);

class PlanTrials {
 public:
  // Plans that need more than `memory_limit` bytes a rank (0: none) do not count.
  PlanTrials(const Submission& submission, const Bindings& bindings, int64_t memory_limit, int most);
  // nullopt where the plan can't be compiled or does not fit, or after `most` plans.
  std::optional<TrialCost> Of(std::vector<PlanEntry> entries);

 private:
  Submission submission_;
  const Bindings& bindings_;
  const int64_t memory_limit_;
  int left_;
  int64_t max_positions_ = 0;
};

}  // namespace tp
