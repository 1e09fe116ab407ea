#include "common/program/walk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/program/input_placements.h"
#include "common/program/shardings.h"
#include "common/program/walk_impl.h"

namespace tp {

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

absl::StatusOr<WalkResult> WalkModel(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan,
                                     Problems* problems) {
  absl::StatusOr<WalkResult> result = Walk(submission, model, plan, problems).Run();
  // What was found before the walk came to its end tells more.
  if (!result.ok() && !problems->empty()) return problems->status();
  return result;
}

}  // namespace tp
