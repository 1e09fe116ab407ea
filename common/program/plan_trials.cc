#include "common/program/plan_trials.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/program/cost.h"
#include "common/program/memory.h"

namespace tp {

absl::StatusOr<TrialCost> TrialCostOf(const CompiledModel& compiled, const Bindings& bindings) {
  TP_ASSIGN_OR_RETURN(const ProgramCost program, CostOf(compiled.program, bindings));
  TrialCost cost{.flops = program.total.flops};
  for (const CollectiveCost& one : program.collectives) cost.bytes += one.record.bytes;
  TP_ASSIGN_OR_RETURN(const std::vector<RankMemory> memory, MemoryOf(compiled, bindings, /*widened=*/false));
  cost.parameter_bytes = memory[0].parameter_bytes;
  for (const RankMemory& rank : memory)
    cost.memory =
        std::max(cost.memory, rank.parameter_bytes + rank.buffer_bytes + rank.activation_bytes + rank.cache_bytes);
  return cost;
}

PlanTrials::PlanTrials(const Submission& submission, const Bindings& bindings, int64_t memory_limit, int most)
    : submission_(submission), bindings_(bindings), memory_limit_(memory_limit), left_(most) {
  // A step program costs time and decides nothing.
  if (submission_.model.generation.has_value()) max_positions_ = submission_.model.generation->max_positions;
  submission_.model.generation.reset();
}

std::optional<TrialCost> PlanTrials::Of(std::vector<PlanEntry> entries) {
  if (left_-- <= 0) return std::nullopt;
  submission_.plan.entries = std::move(entries);
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission_);
  if (!compiled.ok()) return std::nullopt;
  compiled->max_positions = max_positions_;
  const absl::StatusOr<TrialCost> cost = TrialCostOf(*compiled, bindings_);
  if (!cost.ok() || (memory_limit_ > 0 && cost->memory > memory_limit_)) return std::nullopt;
  return *cost;
}

}  // namespace tp
