#include "common/program/walk.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/program/builder.h"
#include "common/program/choose.h"
#include "common/program/input_placements.h"
#include "common/program/local_map.h"
#include "common/program/request_values.h"
#include "common/program/shardings.h"
#include "common/program/styles.h"

namespace tp {
namespace {

// Where a value of the flat model is now. A pending bias belongs to a product that is still a sum over ranks: it is
// added once, after the reduction.
struct Slot {
  int value = -1;
  int bias = -1;
  int bias_dim = -1;  // of the value: [bias_dim] is the bias's size
  // A problem that was told leaves open where it lies: what follows from that is not told.
  bool unsure = false;
};

// Of a node's module, for messages.
std::string WhereOf(const FlatNode& node) {
  return node.module_path.empty() ? "the root module" : Cut(node.module_path, 160);
}

class Walk {
 public:
  Walk(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan, Problems* problems)
      : submission_(submission),
        model_(model),
        plan_(plan),
        problems_(problems),
        slots_(model.values.size()),
        requests_(model) {}

  absl::StatusOr<WalkResult> Run();

 private:
  // The value of a slot with its bias added, reduced first.
  absl::StatusOr<int> Settle(Slot* slot, const std::string& module_path);
  // The value's placements with those that the layout names; INVALID_ARGUMENT where they do not fit its shape.
  absl::StatusOr<Placements> OnAxes(const Layout& layout, int value) const;
  // Adds a problem for each axis on which the value lies otherwise: "<where> says R, the <what> is S(1)".
  // False where it did.
  bool CheckClaim(const Placements& declared, int value, const std::string& where, const std::string& what);
  // Adds a layout that does not fit its value to the problems; the value stays where it is, unsure.
  absl::Status Misfit(const ResolvedEntry& entry, const std::string& module_path, const std::string& field,
                      const absl::Status& status, Slot* slot);
  // What one entry does to one input or output of a module: checks the claim, then moves.
  absl::Status Change(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, Slot* slot);
  // Whole heads instead of equal cuts, on the output of a Linear that makes keys or values of fewer heads than ranks.
  void GroupHeads(const ResolvedEntry& entry, const FlatNode& node, int value, Placements* placements) const;
  // A sharding that leaves a batch axis out makes it R.
  void WarnOfBatch(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, int value,
                   bool request);
  // The sharding with local_map on a module; nullptr where there is none.
  const ShardingConfig* LocalMapOf(const std::string& module_path) const;
  // A function inside a local_map, on the blocks as they are.
  absl::Status CallLocally(const FlatNode& node);
  // The outputs of a local_map named as its out_src says.
  void NameBlocks(const ShardingConfig& sharding, const FlatNode& node);
  void AddProblem(int entry, const FlatNode& node, const absl::Status& status);
  // What a node makes where it can't be placed: whole values, unsure. Tells why, but for what follows from unsure
  // inputs.
  void GiveUp(const FlatNode& node, const absl::Status& status);
  bool HasUnsureInput(const FlatNode& node) const;
  void MarkOutputs(const FlatNode& node);
  void RecordOutputs(const FlatNode& node);

  void AddOperands();
  absl::Status EnterModule(const FlatNode& node);
  absl::Status LeaveModule(const FlatNode& node);
  void CallFunction(const FlatNode& node);
  absl::Status PlaceFunction(const FlatNode& node);
  // The class dim of a cross entropy may be cut by one axis.
  void CheckClasses(const FlatNode& node, int input, const std::string& where);
  // The function as messages name it: "bmm" of a matmul, "max (cross_entropy)" of a part of one.
  std::string WrittenFunction(const FlatNode& node) const;
  absl::StatusOr<int> PositionsFor(int value);
  PlacedModule* Placed(const std::string& path);

  const Submission& submission_;
  const FlatModel& model_;
  const ResolvedPlan& plan_;
  Problems* problems_;
  ForwardProgram program_;
  ProgramBuilder builder_{&program_};
  std::vector<Slot> slots_;
  RequestValues requests_;
  std::vector<PlacedModule> modules_;
  std::map<std::string, size_t> module_index_;
  std::map<std::string, int> calls_;  // of each module, so far
  std::vector<ModuleOutput> module_outputs_;
  std::set<int> states_;  // values that are states
  int positions_ = -1;
  bool in_local_map_ = false;
  std::vector<std::string> warnings_;
};

absl::StatusOr<int> Walk::Settle(Slot* slot, const std::string& module_path) {
  if (slot->bias < 0) return slot->value;
  Placements reduced = builder_.PlacementsOf(slot->value);
  for (Placement& placement : reduced) {
    if (placement.IsPartial()) placement = Placement::Replicate();
  }
  TP_ASSIGN_OR_RETURN(slot->value,
                      builder_.Move(slot->value, reduced, module_path, absl::StrCat("sum in ", module_path)));
  TP_ASSIGN_OR_RETURN(slot->value, builder_.AddBias(slot->value, slot->bias, slot->bias_dim, module_path));
  slot->bias = -1;
  return slot->value;
}

absl::StatusOr<Placements> Walk::OnAxes(const Layout& layout, int value) const {
  const DTensorSpec& spec = program_.values[value].spec;
  const int rank = static_cast<int>(spec.shape.size());
  TP_ASSIGN_OR_RETURN(const AxisPlacements wanted, ResolveLayout(layout, plan_.mesh, plan_.axis));
  // Those that are named, by themselves, then among the others.
  Placements named(wanted.size()), placements = builder_.PlacementsOf(value);
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    if (!wanted[axis].has_value()) continue;
    if (plan_.mesh.axis_size(static_cast<int>(axis)) > 1) {
      placements[axis] = named[axis] = *wanted[axis];
    } else if (wanted[axis]->IsSharding()) {  // moves nothing; wrong at every degree alike
      TP_RETURN_IF_ERROR(NormalizeDim(wanted[axis]->dim, rank).status());
    }
  }
  TP_ASSIGN_OR_RETURN(named, NormalizePlacements(named, rank, spec.dtype, plan_.mesh));
  TP_RETURN_IF_ERROR(ValidateForSymShape(spec.shape, named, plan_.mesh));
  return NormalizePlacements(placements, rank, spec.dtype, plan_.mesh);
}

absl::Status Walk::Misfit(const ResolvedEntry& entry, const std::string& module_path, const std::string& field,
                          const absl::Status& status, Slot* slot) {
  problems_->Add(status, absl::StrCat(entry.text, ": ", module_path, ": ", field));
  slot->unsure = true;
  return absl::OkStatus();
}

bool Walk::CheckClaim(const Placements& declared, int value, const std::string& where, const std::string& what) {
  const Placements& real = builder_.PlacementsOf(value);
  for (size_t axis = 0; axis < real.size(); ++axis) {
    if (declared[axis] == real[axis]) continue;
    const std::string name = real.size() == 1 ? "" : absl::StrCat(plan_.mesh.axes()[axis].name, "=");
    problems_->Invalid(absl::StrCat(where, " says ", name, PlacementText(declared[axis]), ", the ", what, " is ", name,
                                    PlacementText(real[axis])));
  }
  return declared == real;
}

void Walk::GroupHeads(const ResolvedEntry& entry, const FlatNode& node, int value, Placements* placements) const {
  auto grouped = plan_.grouped.find(node.module_path);
  if (grouped == plan_.grouped.end() || node.kind != FlatNode::Kind::kModuleOutput) return;
  if (!CutsWeights(entry.entry.style) && !std::holds_alternative<ShardingConfig>(entry.entry.style)) return;
  const int last = static_cast<int>(program_.values[value].spec.shape.size()) - 1;
  Placement& own = (*placements)[grouped->second.axis];
  if (own == Placement::Shard(last)) own = Placement::GroupShard(last, grouped->second.heads);
}

void Walk::WarnOfBatch(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, int value,
                       bool request) {
  for (size_t axis = 0; axis < change.unnamed_axes.size(); ++axis) {
    if (!change.unnamed_axes[axis] || !plan_.batch_axes[axis] || plan_.mesh.axis_size(static_cast<int>(axis)) == 1) {
      continue;
    }
    if (!builder_.PlacementsOf(value)[axis].IsSharding() && !request) continue;
    const std::string text =
        absl::StrCat(entry.text, ": ", WhereOf(node), ": ", change.desired_field, " does not name the batch axis '",
                     plan_.mesh.axes()[axis].name, "': the batch is gathered over it");
    if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) warnings_.push_back(text);
  }
}

absl::Status Walk::Change(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, Slot* slot) {
  const std::string module_path = WhereOf(node);
  const std::string what = node.kind == FlatNode::Kind::kModuleInput ? "input" : "output";
  if (!change.declared.IsNone()) {
    absl::StatusOr<Placements> declared = OnAxes(change.declared, slot->value);
    if (!declared.ok()) return Misfit(entry, module_path, change.field, declared.status(), slot);
    GroupHeads(entry, node, slot->value, &*declared);
    const std::string pattern = entry.own ? "" : absl::StrCat(" of '", Cut(entry.entry.pattern), "'");
    // What a wrong claim leaves in its place is not what the next ones count on.
    slot->unsure = slot->unsure ||
                   !CheckClaim(*declared, slot->value, absl::StrCat(module_path, ": ", change.field, pattern), what);
  }
  if (change.desired.IsNone()) return absl::OkStatus();
  absl::StatusOr<Placements> target = OnAxes(change.desired, slot->value);
  if (!target.ok()) return Misfit(entry, module_path, change.desired_field, target.status(), slot);
  GroupHeads(entry, node, slot->value, &*target);
  // The bias is one more term of a sum, and of no other reduction; add_once takes one of the last dim only.
  const bool stays_sum =
      std::any_of(target->begin(), target->end(), [](const Placement& own) { return own.IsPartial(); });
  const bool takes_terms =
      std::all_of(target->begin(), target->end(),
                  [](const Placement& own) { return !own.IsPartial() || own.op == ReduceOp::kSum; }) &&
      slot->bias_dim + 1 >= static_cast<int>(builder_.SpecOf(slot->value).shape.size());
  if (stays_sum && !takes_terms) TP_RETURN_IF_ERROR(Settle(slot, node.module_path).status());
  const absl::StatusOr<int> moved =
      builder_.Move(slot->value, *target, node.module_path, absl::StrCat(what, " of ", module_path));
  if (!moved.ok()) {
    if (slot->unsure) return absl::OkStatus();  // the way from where it may not be
    return Misfit(entry, module_path, change.desired_field, moved.status(), slot);
  }
  slot->value = *moved;
  if (slot->bias < 0) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(slot->value, builder_.AddBias(slot->value, slot->bias, slot->bias_dim, node.module_path));
  slot->bias = -1;
  return absl::OkStatus();
}

const ShardingConfig* Walk::LocalMapOf(const std::string& module_path) const {
  for (int index : EntriesOf(plan_, module_path)) {
    const auto* sharding = std::get_if<ShardingConfig>(&plan_.entries[index].entry.style);
    if (sharding != nullptr && sharding->local_map) return sharding;
  }
  return nullptr;
}

absl::Status Walk::CallLocally(const FlatNode& node) {
  std::vector<int> inputs;
  std::vector<const DTensorSpec*> specs;
  for (int input : node.inputs) {
    inputs.push_back(input < 0 ? -1 : slots_[input].value);
    specs.push_back(input < 0 ? nullptr : &program_.values[inputs.back()].spec);
  }
  const FlatValue& made = model_.values[node.outputs[0]];
  absl::StatusOr<Placements> placements = LocalPlacements(node, specs, made.type, plan_.mesh);
  if (!placements.ok()) return Annotate(placements.status(), WhereOf(node));
  slots_[node.outputs[0]].value = builder_.Emit(node.function, std::move(inputs), node.attributes, node.module_path,
                                                made.name, {made.type.dtype, made.type.shape, *placements});
  return absl::OkStatus();
}

void Walk::NameBlocks(const ShardingConfig& sharding, const FlatNode& node) {
  const std::vector<std::string>& names = model_.modules[module_index_.at(node.module_path)].output_names;
  const std::string where = WhereOf(node);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Slot& slot = slots_[node.outputs[i]];
    const std::string field = absl::StrCat(where, ": out_src_shardings['", names[i], "']");
    const DTensorSpec made = program_.values[slot.value].spec;
    absl::StatusOr<Placements> named =
        OnAxes(CompleteLayout(sharding.out_src_shardings.at(names[i]), plan_.mesh), slot.value);
    const absl::Status fits = named.ok() ? CheckLocalShapes(made, *named, plan_.mesh) : named.status();
    if (!fits.ok()) {
      if (!slot.unsure) problems_->Add(fits, field);
      slot.unsure = true;
      continue;
    }
    // The same blocks, which mean something else from here on.
    slot.value = builder_.Emit("cast", {slot.value}, {{"dtype", made.dtype}}, node.module_path,
                               program_.values[slot.value].name, {made.dtype, made.shape, *named});
  }
}

void Walk::AddOperands() {
  for (size_t i = 0; i < model_.inputs.size(); ++i) {
    const auto& [name, flat] = model_.inputs[i];
    const TensorType& type = model_.values[flat].type;
    slots_[flat].value = builder_.NewValue(name, type.dtype, type.shape, InputPlacements(model_, plan_, flat));
    slots_[flat].unsure = plan_.all_unsure || EntersUnsureModule(model_, plan_, flat);
    requests_.SetInput(flat, static_cast<int>(i));
    program_.operands.push_back({OperandKind::kInput, name, slots_[flat].value});
  }
  for (const FlatState& state : model_.states) {
    Slot& slot = slots_[model_.state_values.at(state.path)];
    slot.value = builder_.NewValue(state.path, state.dtype, ToSymShape(state.shape), plan_.states.at(state.path));
    slot.unsure = IsUnsure(plan_, state);
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
    requests_.SetSame(node.inputs[i], node.outputs[i]);
  }
  for (int index : EntriesOf(plan_, node.module_path)) {
    const ResolvedEntry& entry = plan_.entries[index];
    absl::StatusOr<std::vector<LayoutChange>> changes =
        InputChanges(entry.entry, model_.modules[module_index_.at(node.module_path)], node, plan_.mesh);
    if (!changes.ok()) {
      AddProblem(index, node, changes.status());
      continue;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] < 0) continue;
      Slot& slot = slots_[node.outputs[i]];
      WarnOfBatch((*changes)[i], entry, node, slot.value, requests_.Has(node.outputs[i]));
      TP_RETURN_IF_ERROR(Change((*changes)[i], entry, node, &slot));
    }
  }
  if (plan_.unsure_modules.contains(node.module_path)) MarkOutputs(node);
  if (LocalMapOf(node.module_path) != nullptr) in_local_map_ = true;
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
    requests_.SetSame(node.inputs[i], node.outputs[i]);
    ranks.push_back(static_cast<int>(model_.values[node.inputs[i]].type.shape.size()));
  }
  if (const ShardingConfig* local = LocalMapOf(node.module_path); local != nullptr) {
    in_local_map_ = false;
    NameBlocks(*local, node);
  }
  for (int index : EntriesOf(plan_, node.module_path)) {
    const ResolvedEntry& entry = plan_.entries[index];
    absl::StatusOr<std::vector<LayoutChange>> changes =
        OutputChanges(entry.entry, model_.modules[module_index_.at(node.module_path)], ranks, plan_.mesh);
    if (!changes.ok()) {
      AddProblem(index, node, changes.status());
      continue;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Slot& slot = slots_[node.outputs[i]];
      WarnOfBatch((*changes)[i], entry, node, slot.value, false);
      TP_RETURN_IF_ERROR(Change((*changes)[i], entry, node, &slot));
    }
  }
  if (plan_.unsure_modules.contains(node.module_path)) MarkOutputs(node);
  RecordOutputs(node);
  PlacedModule* placed = Placed(node.module_path);
  if (!placed->outputs.empty()) return absl::OkStatus();
  for (int output : node.outputs) {
    placed->outputs.push_back(SpecText(program_.values[slots_[output].value].spec, plan_.mesh));
  }
  return absl::OkStatus();
}

void Walk::RecordOutputs(const FlatNode& node) {
  if (node.module_path.empty() || in_local_map_) return;  // blocks inside a local_map are no parts of a whole
  const int call = ++calls_[node.module_path];
  const std::vector<std::string>& names = model_.modules[module_index_.at(node.module_path)].output_names;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string key = i < names.size() ? names[i] : node.outputs.size() == 1 ? "output" : absl::StrCat(i);
    std::string name = absl::StrCat(node.module_path, ":", key);
    if (call > 1) absl::StrAppend(&name, ":call", call);
    const Slot& slot = slots_[node.outputs[i]];
    module_outputs_.push_back({std::move(name), slot.value, slot.bias, slot.bias_dim});
  }
}

void Walk::AddProblem(int entry, const FlatNode& node, const absl::Status& status) {
  problems_->InvalidAt(plan_.entries[entry].text, WhereOf(node), std::string(status.message()));
  MarkOutputs(node);
}

void Walk::MarkOutputs(const FlatNode& node) {
  for (int output : node.outputs) {
    if (output >= 0) slots_[output].unsure = true;
  }
}

bool Walk::HasUnsureInput(const FlatNode& node) const {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](int input) { return input >= 0 && slots_[input].unsure; });
}

void Walk::GiveUp(const FlatNode& node, const absl::Status& status) {
  if (!HasUnsureInput(node)) problems_->Add(status, "");
  for (int output : node.outputs) {
    const FlatValue& made = model_.values[output];
    slots_[output].value =
        builder_.NewValue(made.name, made.type.dtype, made.type.shape, Placements(plan_.mesh.axis_count()));
  }
  MarkOutputs(node);
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

void Walk::CheckClasses(const FlatNode& node, int input, const std::string& where) {
  const DTensorSpec& spec = program_.values[input].spec;
  const int64_t dim = std::get<int64_t>(node.attributes.at("dim"));
  const int normal = static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(spec.shape.size()) : dim);
  int cuts = 0;
  for (int axis = 0; axis < plan_.mesh.axis_count(); ++axis) {
    cuts += plan_.mesh.axis_size(axis) > 1 && spec.placements[axis].Cuts(normal);
  }
  if (cuts < 2) return;
  problems_->Invalid(absl::StrCat(where,
                                  ": cross_entropy needs logits cut on the class dim by at most one axis, given ",
                                  PlacementsText(plan_.mesh, spec.placements)));
}

std::string Walk::WrittenFunction(const FlatNode& node) const {
  const auto place = module_index_.find(node.module_path);
  const Module* module = place == module_index_.end() ? nullptr : model_.modules[place->second].module;
  const auto* graph = module == nullptr ? nullptr : std::get_if<CompositeConfig>(&module->config);
  if (graph == nullptr || node.outputs.empty()) return node.function;
  // "layers.0:loss", of a part "layers.0:loss:max", of several outputs "layers.0:loss.0".
  const std::string& value = model_.values[node.outputs[0]].name;
  for (const GraphNode& written : graph->nodes) {
    if (written.function.empty() || written.function == node.function) continue;
    const std::string name =
        absl::StrCat(node.module_path, ":", written.outputs.empty() ? written.name : written.outputs[0]);
    if (value == absl::StrCat(name, ":", node.function))
      return absl::StrCat(node.function, " (", written.function, ")");
    if (value == name || value == absl::StrCat(name, ".0")) return written.function;
  }
  return node.function;
}

void Walk::CallFunction(const FlatNode& node) {
  const absl::Status placed = in_local_map_ ? CallLocally(node) : PlaceFunction(node);
  if (!placed.ok()) {
    GiveUp(node, placed);
  } else if (HasUnsureInput(node)) {
    MarkOutputs(node);
  }
}

absl::Status Walk::PlaceFunction(const FlatNode& node) {
  std::vector<int> inputs(node.inputs.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i] < 0) continue;
    TP_ASSIGN_OR_RETURN(inputs[i], Settle(&slots_[node.inputs[i]], node.module_path));
  }
  const std::string where = WhereOf(node);
  if (node.function == "rotary") {
    TP_ASSIGN_OR_RETURN(const int positions, PositionsFor(inputs[0]));
    inputs.push_back(positions);
  }
  if (node.function == "pick" && !HasUnsureInput(node)) CheckClasses(node, inputs[0], where);
  requests_.Call(node, &program_.input_checks);
  TP_ASSIGN_OR_RETURN(CallPlacements placements, ChoosePlacements(node, model_, plan_, builder_, inputs, states_));
  int bias = -1;
  if (placements.bias_after) std::swap(bias, inputs[2]);
  const FunctionDef* function = FindFunction(node.function);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0) continue;
    const size_t argument = std::min(i, function->arguments.size() - 1);  // the last one may be variadic
    const std::string name = node.function == "rotary" && i > 0 ? "positions" : function->arguments[argument].name;
    TP_ASSIGN_OR_RETURN(inputs[i], builder_.Move(inputs[i], placements.inputs[i], node.module_path,
                                                 absl::StrCat(name, " of ", WrittenFunction(node), " in ", where)));
  }
  Attributes attributes = node.attributes;
  if (node.function == "attention" && AttributeOr<bool>(attributes, "cache", true)) {
    const DTensorSpec& key = program_.values[inputs[1]].spec;
    CacheSpec cache{node.module_path, key.shape[2].constant(), key.shape[3].constant(), key.dtype,
                    Placements(plan_.mesh.axis_count())};
    for (size_t axis = 0; axis < key.placements.size(); ++axis) {
      if (!key.placements[axis].Cuts(2)) continue;
      cache.heads_placements[axis] = key.placements[axis];
      cache.heads_placements[axis].dim = 0;
    }
    attributes["cache_index"] = static_cast<int64_t>(program_.caches.size());
    program_.caches.push_back(std::move(cache));
  }
  std::vector<int> outputs;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const FlatValue& made = model_.values[node.outputs[i]];
    outputs.push_back(builder_.NewValue(made.name, made.type.dtype, made.type.shape, placements.outputs[i]));
    slots_[node.outputs[i]].value = outputs.back();
  }
  Slot& slot = slots_[node.outputs[0]];
  slot.bias = bias;
  slot.bias_dim = node.function == "linear" ? static_cast<int>(builder_.SpecOf(slot.value).shape.size()) - 1 : 1;
  program_.instructions.push_back({node.function, std::move(inputs), std::move(outputs), std::move(attributes),
                                   node.module_path, "", std::nullopt});
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
      absl::StrAppend(&styles, styles.empty() ? "" : "; ", StyleText(plan_.entries[entry].entry.style));
    }
    modules_.push_back({module.path, module.type_name, std::move(styles), {}, {}});
  }
  AddOperands();
  for (const FlatNode& node : model_.nodes) {
    switch (node.kind) {
      case FlatNode::Kind::kFunction:
        CallFunction(node);
        break;
      case FlatNode::Kind::kModuleInput:
        TP_RETURN_IF_ERROR(EnterModule(node));
        break;
      case FlatNode::Kind::kModuleOutput:
        TP_RETURN_IF_ERROR(LeaveModule(node));
        break;
    }
  }
  if (!problems_->empty()) return problems_->status();
  for (const auto& [name, flat] : model_.outputs) {
    TP_ASSIGN_OR_RETURN(int value, Settle(&slots_[flat], ""));
    Placements reduced = builder_.PlacementsOf(value);
    for (Placement& placement : reduced) {
      if (placement.IsPartial()) placement = Placement::Replicate();
    }
    TP_ASSIGN_OR_RETURN(value, builder_.Move(value, reduced, "", absl::StrCat("output '", name, "'")));
    program_.outputs.push_back({name, value});
  }
  return WalkResult{std::move(program_), std::move(modules_), std::move(warnings_), std::move(module_outputs_)};
}

}  // namespace

absl::StatusOr<WalkResult> WalkModel(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan,
                                     Problems* problems) {
  absl::StatusOr<WalkResult> result = Walk(submission, model, plan, problems).Run();
  // What was found before the walk came to its end tells more.
  if (!result.ok() && !problems->empty()) return problems->status();
  return result;
}

}  // namespace tp
