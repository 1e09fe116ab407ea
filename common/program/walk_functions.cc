// Functions: where they are placed, on whole values and on the blocks inside a local_map.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/program/choose.h"
#include "common/program/local_map.h"
#include "common/program/shardings.h"
#include "common/program/walk_impl.h"

namespace tp {

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

}  // namespace tp
