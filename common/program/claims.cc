#include "common/program/claims.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/model/validate.h"
#include "common/program/grouped_heads.h"
#include "common/program/shardings.h"
#include "common/program/styles.h"

namespace tp {
namespace {

class Claims {
 public:
  Claims(const FlatModel& model, ResolvedPlan* plan, Problems* problems)
      : model_(model), plan_(*plan), problems_(problems) {}

  void Run() {
    for (const FlatState& state : model_.states) plan_.states[state.path] = Placements(plan_.mesh.axis_count());
    for (const FlatModule& module : model_.modules) {
      int sharding = -1;
      for (int entry : EntriesOf(plan_, module.path)) {
        if (!std::holds_alternative<ShardingConfig>(plan_.entries[entry].entry.style)) {
          ClaimByStyle(module, entry);
        } else if (sharding < 0) {
          sharding = entry;
          ClaimBySharding(module, entry);
        } else {
          plan_.unsure_modules.insert(module.path);
          problems_->Invalid(absl::StrCat("two shardings of ", FieldOfModule(module), ": ", Both(sharding, entry)));
        }
      }
    }
  }

 private:
  std::string Both(int a, int b) const {
    return absl::StrCat(plan_.entries[std::min(a, b)].text, " and ", plan_.entries[std::max(a, b)].text);
  }

  void ClaimByStyle(const FlatModule& module, int entry) {
    const Style& style = plan_.entries[entry].entry.style;
    const bool whole = std::holds_alternative<SequenceParallel>(style);
    if (!whole && !CutsWeights(style)) return;
    for (const FlatState& state : model_.states) {
      if (whole ? !IsWithin(state.module_path, module.path) : state.module_path != module.path) continue;
      auto [placed, first] = plan_.state_entries.emplace(state.path, entry);
      if (!first && placed->second != entry) {
        Refuse(state, placed->second, entry);
        continue;
      }
      if (whole || plan_.axis < 0 || plan_.degree == 1) continue;
      // Colwise cuts the output features, Rowwise the input features: dim 0 and 1 of a Linear's weight, 1 and 0 of an
      // Embedding's. The bias goes with the output features.
      const int dim = std::holds_alternative<ColwiseParallel>(style) == (module.kind == "Linear") ? 0 : 1;
      if (state.name == "bias" && dim == 1) continue;
      plan_.states[state.path][plan_.axis] = Placement::Shard(dim);
    }
  }

  void ClaimBySharding(const FlatModule& module, int entry) {
    const auto& sharding = std::get<ShardingConfig>(plan_.entries[entry].entry.style);
    for (const auto& [path, named] : sharding.state_shardings) {
      const FlatState* state = StateBelow(model_, module.path, path);
      if (state == nullptr) continue;
      absl::StatusOr<Placements> placements = StatePlacements(named, *state, plan_.mesh);
      if (!placements.ok()) continue;  // both are told where entries are resolved
      auto [placed, first] = plan_.state_entries.emplace(state->path, entry);
      Placements& own = plan_.states[state->path];
      if (first) {
        own = *placements;
      } else if (!std::holds_alternative<ShardingConfig>(plan_.entries[placed->second].entry.style)) {
        Refuse(*state, placed->second, entry);
      } else if (own != *placements) {
        plan_.unsure_states.insert(state->path);
        problems_->Failed(absl::StrCat(plan_.entries[entry].text, ": ", state->path,
                                       " is already a DTensor with placements ", PlacementsText(plan_.mesh, own), " (",
                                       plan_.entries[placed->second].text, "), but sharding_config expects ",
                                       PlacementsText(plan_.mesh, *placements)));
      }
    }
  }

  void Refuse(const FlatState& state, int a, int b) {
    plan_.unsure_states.insert(state.path);
    for (int entry : {a, b}) {
      if (!std::holds_alternative<ShardingConfig>(plan_.entries[entry].entry.style)) continue;
      problems_->Invalid(absl::StrCat("two entries place '", Cut(state.path, 160), "': ", Both(a, b)));
      return;
    }
    problems_->Invalid(
        absl::StrCat("two patterns shard ", FieldOfModule(*ModuleAt(model_, state.module_path)), ": ", Both(a, b)));
  }

  const FlatModel& model_;
  ResolvedPlan& plan_;
  Problems* problems_;
};

}  // namespace

void ClaimStates(const FlatModel& model, ResolvedPlan* plan, Problems* problems) {
  Claims(model, plan, problems).Run();
}

}  // namespace tp
