#include "common/program/choose.h"

#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/redistribute/plan.h"
#include "common/sharding/rules.h"

namespace tp {
namespace {

constexpr int64_t kStateWeight = 1000;

class Chooser {
 public:
  Chooser(const FlatNode& node, const FlatModel& model, const ResolvedPlan& plan, const ProgramBuilder& builder,
          const std::vector<int>& inputs, const std::set<int>& states)
      : node_(node), model_(model), plan_(plan), builder_(builder), inputs_(inputs), states_(states) {
    for (int input : inputs_) result_.inputs.push_back(input < 0 ? Placements() : builder_.PlacementsOf(input));
    result_.outputs.assign(node_.outputs.size(), Placements(plan_.mesh.axis_count()));
  }

  absl::StatusOr<CallPlacements> Run() {
    for (int axis = 0; axis < plan_.mesh.axis_count(); ++axis) {
      if (plan_.mesh.axis_size(axis) == 1) continue;
      TP_ASSIGN_OR_RETURN(AxisStrategy strategy, Cheapest(axis));
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (inputs_[i] >= 0) result_.inputs[i][axis] = strategy.inputs[i];
      }
      for (size_t i = 0; i < result_.outputs.size(); ++i) result_.outputs[i][axis] = strategy.outputs[i];
      result_.bias_after |= strategy.bias_after;
      chosen_.push_back(std::move(strategy));
    }
    return std::move(result_);
  }

 private:
  // Two axes may cut one dim of an input, nested, unless the rule of one of them allows for no other.
  bool Collides(const AxisStrategy& strategy) const {
    for (const AxisStrategy& other : chosen_) {
      if (!strategy.alone && !other.alone) continue;
      for (size_t i = 0; i < strategy.inputs.size(); ++i) {
        if (strategy.inputs[i].IsSharding() && other.inputs[i].Cuts(strategy.inputs[i].dim)) return true;
      }
    }
    return false;
  }

  // The bytes that the strategy moves; nullopt where the inputs cannot lie so.
  std::optional<int64_t> CostOf(const AxisStrategy& strategy, int axis) const {
    int64_t cost = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i] < 0) continue;
      const Placements& current = builder_.PlacementsOf(inputs_[i]);
      const DType dtype = builder_.SpecOf(inputs_[i]).dtype;
      const Shape shape = builder_.NominalShape(inputs_[i]);
      Placements target = result_.inputs[i];
      target[axis] = strategy.inputs[i];
      if (target != current && !ValidateForShape(shape, target, plan_.mesh).ok()) return std::nullopt;
      if (current[axis] == strategy.inputs[i]) continue;
      target = current;
      target[axis] = strategy.inputs[i];
      absl::StatusOr<RedistributePlan> moves = PlanRedistribute(plan_.mesh, dtype, shape, current, target);
      if (!moves.ok()) return std::nullopt;
      cost += PlanBytes(plan_.mesh, dtype, shape, *moves) * (states_.contains(inputs_[i]) ? kStateWeight : 1);
    }
    return cost;
  }

  absl::StatusOr<AxisStrategy> Cheapest(int axis) const {
    RuleContext context{node_.function,        &node_.attributes, {}, {}, plan_.mesh.axis_size(axis), {},
                        plan_.batch_axes[axis]};
    std::vector<TensorType> types;
    types.reserve(inputs_.size());
    for (int input : inputs_) {
      if (input >= 0) types.push_back({builder_.SpecOf(input).dtype, builder_.SpecOf(input).shape});
      context.inputs.push_back(input < 0 ? nullptr : &types.back());
      context.current.push_back(input < 0 ? Placement::Replicate() : builder_.PlacementsOf(input)[axis]);
    }
    for (int output : node_.outputs) context.outputs.push_back(&model_.values[output].type);
    TP_ASSIGN_OR_RETURN(const std::vector<AxisStrategy> strategies, AxisStrategies(context));
    int64_t least = std::numeric_limits<int64_t>::max();
    const AxisStrategy* best = &strategies.back();
    for (const AxisStrategy& strategy : strategies) {
      if (Collides(strategy)) continue;
      const std::optional<int64_t> cost = CostOf(strategy, axis);
      if (!cost.has_value() || *cost >= least) continue;
      least = *cost;
      best = &strategy;
    }
    return *best;
  }

  const FlatNode& node_;
  const FlatModel& model_;
  const ResolvedPlan& plan_;
  const ProgramBuilder& builder_;
  const std::vector<int>& inputs_;
  const std::set<int>& states_;
  CallPlacements result_;
  std::vector<AxisStrategy> chosen_;  // on the axes before
};

}  // namespace

absl::StatusOr<CallPlacements> ChoosePlacements(const FlatNode& node, const FlatModel& model, const ResolvedPlan& plan,
                                                const ProgramBuilder& builder, const std::vector<int>& inputs,
                                                const std::set<int>& states) {
  return Chooser(node, model, plan, builder, inputs, states).Run();
}

}  // namespace tp
