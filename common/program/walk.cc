#include "common/program/walk.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/program/builder.h"
#include "common/program/input_placements.h"
#include "common/program/styles.h"
#include "common/sharding/rules.h"

namespace tp {
namespace {

constexpr int64_t kStateWeight = 1000;  // moving a state costs that many times its bytes, so that states stay in place

// Where a value of the flat model is now. A pending bias belongs to a product that is still a sum over ranks: it is
// added once, after the reduction.
struct Slot {
  int value = -1;
  int bias = -1;
};

class Walk {
 public:
  Walk(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan, Problems* problems)
      : submission_(submission),
        model_(model),
        plan_(plan),
        problems_(problems),
        slots_(model.values.size()),
        request_input_(model.values.size(), -1) {}

  absl::StatusOr<WalkResult> Run();

 private:
  // The value of a slot with its bias added, reduced first.
  absl::StatusOr<int> Settle(Slot* slot, const std::string& module_path);
  // The value's placements with those that the layout names.
  absl::StatusOr<Placements> OnAxes(const Layout& layout, int value) const;
  // Adds a problem for each axis on which the value lies otherwise: "<where> says R, the <what> is S(1)".
  void CheckClaim(const Placements& declared, int value, const std::string& where, const std::string& what);
  // What one entry does to one input or output of a module: checks the claim, then moves.
  absl::Status Change(const LayoutChange& change, const PlanEntry& entry, const FlatNode& node, Slot* slot);
  void AddProblem(int entry, const FlatNode& node, const absl::Status& status);

  void AddOperands();
  absl::Status EnterModule(const FlatNode& node);
  absl::Status LeaveModule(const FlatNode& node);
  absl::Status CallFunction(const FlatNode& node);
  absl::StatusOr<AxisStrategy> Cheapest(const FlatNode& node, int axis, const std::vector<int>& inputs,
                                        const std::set<int>& taken_dims) const;
  absl::StatusOr<int> PositionsFor(int value);
  PlacedModule* Placed(const std::string& path);

  const Submission& submission_;
  const FlatModel& model_;
  const ResolvedPlan& plan_;
  Problems* problems_;
  ForwardProgram program_;
  ProgramBuilder builder_{&program_};
  std::vector<Slot> slots_;
  std::vector<int> request_input_;  // flat value -> index of the model input that it is, unchanged; -1 = none
  std::vector<PlacedModule> modules_;
  std::map<std::string, size_t> module_index_;
  std::set<int> states_;  // values that are states
  int positions_ = -1;
};

absl::StatusOr<int> Walk::Settle(Slot* slot, const std::string& module_path) {
  if (slot->bias < 0) return slot->value;
  Placements reduced = builder_.PlacementsOf(slot->value);
  for (Placement& placement : reduced) {
    if (placement.IsPartial()) placement = Placement::Replicate();
  }
  TP_ASSIGN_OR_RETURN(slot->value,
                      builder_.Move(slot->value, reduced, module_path, absl::StrCat("sum in ", module_path)));
  TP_ASSIGN_OR_RETURN(slot->value, builder_.AddBias(slot->value, slot->bias, module_path));
  slot->bias = -1;
  return slot->value;
}

absl::StatusOr<Placements> Walk::OnAxes(const Layout& layout, int value) const {
  const DTensorSpec& spec = program_.values[value].spec;
  const int rank = static_cast<int>(spec.shape.size());
  TP_ASSIGN_OR_RETURN(const AxisPlacements wanted, ResolveLayout(layout, plan_.mesh, plan_.axis));
  Placements placements = builder_.PlacementsOf(value);
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    if (!wanted[axis].has_value()) continue;
    if (plan_.mesh.axis_size(static_cast<int>(axis)) > 1) {
      placements[axis] = *wanted[axis];
    } else if (wanted[axis]->IsSharding()) {  // moves nothing; wrong at every degree alike
      TP_RETURN_IF_ERROR(NormalizeDim(wanted[axis]->dim, rank).status());
    }
  }
  return NormalizePlacements(placements, rank, spec.dtype, plan_.mesh);
}

void Walk::CheckClaim(const Placements& declared, int value, const std::string& where, const std::string& what) {
  const Placements& real = builder_.PlacementsOf(value);
  for (size_t axis = 0; axis < real.size(); ++axis) {
    if (declared[axis] == real[axis]) continue;
    const std::string name = real.size() == 1 ? "" : absl::StrCat(plan_.mesh.axes()[axis].name, "=");
    problems_->Invalid(absl::StrCat(where, " says ", name, PlacementText(declared[axis]), ", the ", what, " is ", name,
                                    PlacementText(real[axis])));
  }
}

absl::Status Walk::Change(const LayoutChange& change, const PlanEntry& entry, const FlatNode& node, Slot* slot) {
  const std::string module_path = node.module_path.empty() ? "the root module" : node.module_path;
  const std::string what = node.kind == FlatNode::Kind::kModuleInput ? "input" : "output";
  if (!change.declared.IsNone()) {
    absl::StatusOr<Placements> declared = OnAxes(change.declared, slot->value);
    if (!declared.ok()) return Annotate(declared.status(), module_path);
    CheckClaim(*declared, slot->value, absl::StrCat(module_path, ": ", change.field, " of '", entry.pattern, "'"),
               what);
  }
  if (change.desired.IsNone()) return absl::OkStatus();
  absl::StatusOr<Placements> target = OnAxes(change.desired, slot->value);
  if (!target.ok()) return Annotate(target.status(), module_path);
  auto grouped = plan_.grouped.find(node.module_path);
  if (grouped != plan_.grouped.end() && CutsWeights(entry.style) && what == "output") {
    const int last = static_cast<int>(program_.values[slot->value].spec.shape.size()) - 1;
    Placement& own = (*target)[plan_.axis];
    if (own == Placement::Shard(last)) own = Placement::GroupShard(last, grouped->second);
  }
  TP_ASSIGN_OR_RETURN(slot->value,
                      builder_.Move(slot->value, *target, node.module_path, absl::StrCat(what, " of ", module_path)));
  if (slot->bias < 0) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(slot->value, builder_.AddBias(slot->value, slot->bias, node.module_path));
  slot->bias = -1;
  return absl::OkStatus();
}

void Walk::AddOperands() {
  for (size_t i = 0; i < model_.inputs.size(); ++i) {
    const auto& [name, flat] = model_.inputs[i];
    const TensorType& type = model_.values[flat].type;
    slots_[flat].value =
        builder_.NewValue(name, type.dtype, type.shape, InputPlacements(submission_, model_, plan_, flat));
    request_input_[flat] = static_cast<int>(i);
    program_.operands.push_back({OperandKind::kInput, name, slots_[flat].value});
  }
  for (const FlatState& state : model_.states) {
    Slot& slot = slots_[model_.state_values.at(state.path)];
    slot.value = builder_.NewValue(state.path, state.dtype, ToSymShape(state.shape), plan_.states.at(state.path));
    program_.operands.push_back(
        {state.buffer ? OperandKind::kBuffer : OperandKind::kParameter, state.path, slot.value});
    states_.insert(slot.value);
  }
}

PlacedModule* Walk::Placed(const std::string& path) { return &modules_[module_index_.at(path)]; }

absl::Status Walk::EnterModule(const FlatNode& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] < 0) continue;
    slots_[node.outputs[i]] = slots_[node.inputs[i]];
    request_input_[node.outputs[i]] = request_input_[node.inputs[i]];
  }
  for (int index : EntriesOf(plan_, node.module_path)) {
    const PlanEntry& entry = submission_.plan.entries[index];
    absl::StatusOr<std::vector<LayoutChange>> changes =
        InputChanges(entry, model_.modules[module_index_.at(node.module_path)], node);
    if (!changes.ok()) {
      AddProblem(index, node, changes.status());
      continue;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] >= 0) TP_RETURN_IF_ERROR(Change((*changes)[i], entry, node, &slots_[node.outputs[i]]));
    }
  }
  PlacedModule* placed = Placed(node.module_path);
  if (!placed->outputs.empty() || !placed->inputs.empty()) return absl::OkStatus();  // of the first call only
  for (int output : node.outputs) {
    if (output >= 0) placed->inputs.push_back(SpecText(program_.values[slots_[output].value].spec, plan_.mesh));
  }
  return absl::OkStatus();
}

absl::Status Walk::LeaveModule(const FlatNode& node) {
  std::vector<int> ranks;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    slots_[node.outputs[i]] = slots_[node.inputs[i]];
    request_input_[node.outputs[i]] = request_input_[node.inputs[i]];
    ranks.push_back(static_cast<int>(model_.values[node.inputs[i]].type.shape.size()));
  }
  for (int index : EntriesOf(plan_, node.module_path)) {
    const PlanEntry& entry = submission_.plan.entries[index];
    absl::StatusOr<std::vector<LayoutChange>> changes = OutputChanges(entry, ranks);
    if (!changes.ok()) {
      AddProblem(index, node, changes.status());
      continue;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      TP_RETURN_IF_ERROR(Change((*changes)[i], entry, node, &slots_[node.outputs[i]]));
    }
  }
  PlacedModule* placed = Placed(node.module_path);
  if (!placed->outputs.empty()) return absl::OkStatus();
  for (int output : node.outputs) {
    placed->outputs.push_back(SpecText(program_.values[slots_[output].value].spec, plan_.mesh));
  }
  return absl::OkStatus();
}

void Walk::AddProblem(int entry, const FlatNode& node, const absl::Status& status) {
  problems_->Invalid(absl::StrCat(EntryText(entry, submission_.plan.entries[entry]), ": ",
                                  node.module_path.empty() ? "the root module" : node.module_path, ": ",
                                  std::string(status.message())));
}

absl::StatusOr<int> Walk::PositionsFor(int value) {
  const SymShape& shape = program_.values[value].spec.shape;
  const SymShape wanted(shape.begin(), shape.begin() + 2);
  if (positions_ < 0) {
    positions_ = builder_.NewValue("positions", DType::kI64, wanted, Placements(plan_.mesh.axis_count()));
    program_.operands.push_back({OperandKind::kPositions, "positions", positions_});
  }
  if (program_.values[positions_].spec.shape != wanted) {
    return absl::UnimplementedError("rotary on inputs of different [batch, time] in one model is not built yet");
  }
  return positions_;
}

absl::StatusOr<AxisStrategy> Walk::Cheapest(const FlatNode& node, int axis, const std::vector<int>& inputs,
                                            const std::set<int>& taken_dims) const {
  RuleContext context{node.function, &node.attributes, {}, {}, plan_.mesh.axis_size(axis), {}, plan_.batch_axes[axis]};
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (int input : inputs) {
    if (input >= 0) types.push_back({program_.values[input].spec.dtype, program_.values[input].spec.shape});
    context.inputs.push_back(input < 0 ? nullptr : &types.back());
    context.current.push_back(input < 0 ? Placement::Replicate() : builder_.PlacementsOf(input)[axis]);
  }
  for (int output : node.outputs) context.outputs.push_back(&model_.values[output].type);
  TP_ASSIGN_OR_RETURN(const std::vector<AxisStrategy> strategies, AxisStrategies(context));
  int64_t least = std::numeric_limits<int64_t>::max();
  const AxisStrategy* best = &strategies.back();
  for (const AxisStrategy& strategy : strategies) {
    if (node.function == "reshape" && strategy.inputs[0].IsSharding() && taken_dims.contains(strategy.inputs[0].dim)) {
      continue;  // nested cuts of one dim do not follow the chunk rule of the reshaped dim
    }
    int64_t cost = 0;
    bool possible = true;
    for (size_t i = 0; i < inputs.size() && possible; ++i) {
      if (inputs[i] < 0 || builder_.PlacementsOf(inputs[i])[axis] == strategy.inputs[i]) continue;
      Placements target = builder_.PlacementsOf(inputs[i]);
      target[axis] = strategy.inputs[i];
      const DType dtype = program_.values[inputs[i]].spec.dtype;
      const Shape shape = builder_.NominalShape(inputs[i]);
      absl::StatusOr<RedistributePlan> plan =
          PlanRedistribute(plan_.mesh, dtype, shape, builder_.PlacementsOf(inputs[i]), target);
      possible = plan.ok();
      if (possible)
        cost += PlanBytes(plan_.mesh, dtype, shape, *plan) * (states_.contains(inputs[i]) ? kStateWeight : 1);
    }
    if (possible && cost < least) {
      least = cost;
      best = &strategy;
    }
  }
  return *best;
}

absl::Status Walk::CallFunction(const FlatNode& node) {
  std::vector<int> inputs(node.inputs.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] < 0) continue;
    TP_ASSIGN_OR_RETURN(inputs[i], Settle(&slots_[node.inputs[i]], node.module_path));
  }
  if (node.function == "rotary") {
    TP_ASSIGN_OR_RETURN(const int positions, PositionsFor(inputs[0]));
    inputs.push_back(positions);
  }
  if (node.function == "embedding" && request_input_[node.inputs[0]] >= 0) {
    const std::string& name = model_.inputs[request_input_[node.inputs[0]]].first;
    const int64_t limit = model_.values[node.inputs[1]].type.shape[0].constant();
    auto known = std::find_if(program_.input_checks.begin(), program_.input_checks.end(),
                              [&](const InputCheck& check) { return check.input == name; });
    if (known == program_.input_checks.end()) {
      program_.input_checks.push_back({name, limit});
    } else {
      known->limit = std::min(known->limit, limit);
    }
  }
  std::vector<Placements> targets;
  for (int input : inputs) targets.push_back(input < 0 ? Placements() : builder_.PlacementsOf(input));
  Placements output(plan_.mesh.axis_count());
  bool bias_after = false;
  std::set<int> taken_dims;
  for (int axis = 0; axis < plan_.mesh.axis_count(); ++axis) {
    if (plan_.mesh.axis_size(axis) == 1) continue;
    TP_ASSIGN_OR_RETURN(const AxisStrategy strategy, Cheapest(node, axis, inputs, taken_dims));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] >= 0) targets[i][axis] = strategy.inputs[i];
    }
    output[axis] = strategy.outputs[0];
    bias_after |= strategy.bias_after;
    if (strategy.inputs[0].IsSharding()) taken_dims.insert(strategy.inputs[0].dim);
  }
  int bias = -1;
  if (bias_after) std::swap(bias, inputs[2]);
  const FunctionDef* function = FindFunction(node.function);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0) continue;
    const std::string argument = i < function->arguments.size() ? function->arguments[i].name : "positions";
    const std::string where = node.module_path.empty() ? "the root module" : node.module_path;
    TP_ASSIGN_OR_RETURN(inputs[i], builder_.Move(inputs[i], targets[i], node.module_path,
                                                 absl::StrCat(argument, " of ", node.function, " in ", where)));
  }
  Attributes attributes = node.attributes;
  if (node.function == "attention") {
    const DTensorSpec& key = program_.values[inputs[1]].spec;
    CacheSpec cache{node.module_path, key.shape[2].constant(), key.shape[3].constant(), key.dtype,
                    Placements(plan_.mesh.axis_count())};
    for (size_t axis = 0; axis < key.placements.size(); ++axis) {
      if (!key.placements[axis].Cuts(2)) continue;
      cache.heads_placements[axis] = key.placements[axis];
      cache.heads_placements[axis].dim = 0;
    }
    attributes["cache"] = static_cast<int64_t>(program_.caches.size());
    program_.caches.push_back(std::move(cache));
  }
  const FlatValue& made = model_.values[node.outputs[0]];
  Slot& slot = slots_[node.outputs[0]];
  slot.value = builder_.Emit(node.function, std::move(inputs), attributes, node.module_path, made.name,
                             {made.type.dtype, made.type.shape, output});
  slot.bias = bias;
  return absl::OkStatus();
}

absl::StatusOr<WalkResult> Walk::Run() {
  program_.mesh = plan_.mesh;
  program_.compute_dtype = submission_.compute_dtype;
  program_.symbol_limits = submission_.model.symbol_limits;
  for (const FlatModule& module : model_.modules) {
    module_index_[module.path] = modules_.size();
    std::string styles;
    for (int entry : EntriesOf(plan_, module.path)) {
      absl::StrAppend(&styles, styles.empty() ? "" : "; ", StyleText(submission_.plan.entries[entry].style));
    }
    modules_.push_back({module.path, module.type_name, std::move(styles), {}, {}});
  }
  AddOperands();
  for (const FlatNode& node : model_.nodes) {
    switch (node.kind) {
      case FlatNode::Kind::kFunction:
        TP_RETURN_IF_ERROR(CallFunction(node));
        break;
      case FlatNode::Kind::kModuleInput:
        TP_RETURN_IF_ERROR(EnterModule(node));
        break;
      case FlatNode::Kind::kModuleOutput:
        TP_RETURN_IF_ERROR(LeaveModule(node));
        break;
    }
  }
  for (const auto& [name, flat] : model_.outputs) {
    TP_ASSIGN_OR_RETURN(int value, Settle(&slots_[flat], ""));
    Placements reduced = builder_.PlacementsOf(value);
    for (Placement& placement : reduced) {
      if (placement.IsPartial()) placement = Placement::Replicate();
    }
    TP_ASSIGN_OR_RETURN(value, builder_.Move(value, reduced, "", absl::StrCat("output '", name, "'")));
    program_.outputs.push_back({name, value});
  }
  return WalkResult{std::move(program_), std::move(modules_)};
}

}  // namespace

absl::StatusOr<WalkResult> WalkModel(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan,
                                     Problems* problems) {
  return Walk(submission, model, plan, problems).Run();
}

}  // namespace tp
