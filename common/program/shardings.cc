#include "common/program/shardings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/layout/spec.h"
#include "common/model/validate.h"

namespace tp {
namespace {

using Shardings = std::map<std::string, NamedPlacements>;

absl::Status CheckAxes(const NamedPlacements& named, const Mesh& mesh) {
  std::vector<std::string> unknown;
  for (const auto& [axis, placement] : named) {
    if (!mesh.AxisIndex(axis).ok()) unknown.push_back(axis);
  }
  if (unknown.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(AxesNotInMesh(unknown));
}

std::string ItemText(const std::string& field, const std::string& name) {
  return absl::StrCat(field, "['", Cut(name), "']");
}

// Names and axes of one of the four maps of arguments or outputs.
void CheckValues(const Shardings& shardings, const std::string& field, const std::string& kind,
                 const FlatModule& module, const std::vector<std::string>& known, const Mesh& mesh,
                 std::vector<FieldProblem>* problems) {
  for (const auto& [name, named] : shardings) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      problems->push_back({field, absl::StrCat(Cut(module.type_name), " has no ", kind, " '", Cut(name),
                                               "'; nearest: ", JoinNames(NearestNames(name, known)))});
    }
    if (const absl::Status axes = CheckAxes(named, mesh); !axes.ok()) {
      problems->push_back({ItemText(field, name), std::string(axes.message())});
    }
  }
}

// What the module's calls pass as tensors.
std::vector<std::string> TensorArguments(const FlatModule& module, const FlatModel& model) {
  std::vector<bool> tensors(module.argument_names.size(), false);
  for (const FlatNode& node : model.nodes) {
    if (node.kind != FlatNode::Kind::kModuleInput || node.module_path != module.path) continue;
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = tensors[i] || node.inputs[i] >= 0;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]) names.push_back(module.argument_names[i]);
  }
  return names;
}

// The inside of a local_map runs on blocks: what they are blocks of is said, for every tensor.
void CheckLocalMap(const ShardingConfig& sharding, const FlatModule& module, const FlatModel& model,
                   std::vector<FieldProblem>* problems) {
  for (const std::string& name : TensorArguments(module, model)) {
    if (sharding.in_dst_shardings.contains(name)) continue;
    problems->push_back({"", absl::StrCat("local_map needs in_dst_shardings of argument '", Cut(name), "'")});
  }
  for (const std::string& name : module.output_names) {
    if (sharding.out_src_shardings.contains(name)) continue;
    problems->push_back({"", absl::StrCat("local_map needs out_src_shardings of output '", Cut(name), "'")});
  }
}

void AddAxes(const Shardings& shardings, const Mesh& mesh, std::vector<bool>* axes) {
  for (const auto& [name, named] : shardings) {
    for (const auto& [axis, placement] : named) {
      absl::StatusOr<int> index = mesh.AxisIndex(axis);
      if (index.ok() && !placement.IsReplicate()) (*axes)[*index] = true;
    }
  }
}

}  // namespace

Layout CompleteLayout(const NamedPlacements& named, const Mesh& mesh) {
  NamedPlacements complete = named;
  for (const MeshAxis& axis : mesh.axes()) complete.emplace(axis.name, Placement::Replicate());
  return Layout::Map(std::move(complete));
}

std::string AxesNotInMesh(const std::vector<std::string>& names) {
  return absl::StrCat("axes not in mesh: {", Cut(absl::StrJoin(names, ", ")), "}");
}

std::vector<bool> UnnamedAxes(const NamedPlacements& named, const Mesh& mesh) {
  std::vector<bool> unnamed;
  for (const MeshAxis& axis : mesh.axes()) unnamed.push_back(!named.contains(axis.name));
  return unnamed;
}

absl::StatusOr<Placements> StatePlacements(const NamedPlacements& named, const FlatState& state, const Mesh& mesh) {
  TP_RETURN_IF_ERROR(CheckAxes(named, mesh));
  Placements placements(static_cast<size_t>(mesh.axis_count()));
  for (const auto& [axis, placement] : named) {
    if (placement.IsPartial()) {
      return absl::InvalidArgumentError(
          absl::StrCat(PlacementText(placement), " on axis '", axis, "': a state is not a sum over ranks"));
    }
    placements[*mesh.AxisIndex(axis)] = placement;
  }
  TP_ASSIGN_OR_RETURN(placements,
                      NormalizePlacements(placements, static_cast<int>(state.shape.size()), state.dtype, mesh));
  TP_RETURN_IF_ERROR(ValidateForShape(state.shape, placements, mesh));
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (mesh.axis_size(static_cast<int>(axis)) == 1) placements[axis] = Placement::Replicate();
  }
  return placements;
}

const FlatState* StateBelow(const FlatModel& model, const std::string& module_path, const std::string& path) {
  const std::string whole = JoinPath(module_path, path);
  for (const FlatState& state : model.states) {
    if (state.path == whole) return &state;
  }
  return nullptr;
}

std::vector<FieldProblem> ShardingProblems(const ShardingConfig& sharding, const FlatModule& module,
                                           const FlatModel& model, const Mesh& mesh, std::vector<bool>* axes) {
  std::vector<FieldProblem> problems;
  for (const auto& [path, named] : sharding.state_shardings) {
    const FlatState* state = StateBelow(model, module.path, path);
    if (state == nullptr) {
      std::vector<std::string> names;
      const std::string prefix = JoinPath(module.path, "");
      for (const FlatState& each : model.states) {
        if (each.path.compare(0, prefix.size(), prefix) == 0) names.push_back(each.path.substr(prefix.size()));
      }
      problems.push_back({"state_shardings", absl::StrCat(Cut(module.type_name), " has no state '", Cut(path),
                                                          "'; nearest: ", JoinNames(NearestNames(path, names)))});
      if (const absl::Status unknown = CheckAxes(named, mesh); !unknown.ok()) {
        problems.push_back({ItemText("state_shardings", path), std::string(unknown.message())});
      }
      continue;
    }
    absl::StatusOr<Placements> placements = StatePlacements(named, *state, mesh);
    if (placements.ok()) continue;
    problems.push_back({ItemText("state_shardings", path), std::string(placements.status().message())});
  }
  const std::vector<std::string>& outputs = module.output_names;
  CheckValues(sharding.in_src_shardings, "in_src_shardings", "argument", module, module.argument_names, mesh,
              &problems);
  CheckValues(sharding.in_dst_shardings, "in_dst_shardings", "argument", module, module.argument_names, mesh,
              &problems);
  CheckValues(sharding.out_src_shardings, "out_src_shardings", "output", module, outputs, mesh, &problems);
  CheckValues(sharding.out_dst_shardings, "out_dst_shardings", "output", module, outputs, mesh, &problems);
  if (sharding.local_map) CheckLocalMap(sharding, module, model, &problems);
  for (const auto* shardings : {&sharding.state_shardings, &sharding.in_src_shardings, &sharding.in_dst_shardings,
                                &sharding.out_src_shardings, &sharding.out_dst_shardings}) {
    AddAxes(*shardings, mesh, axes);
  }
  return problems;
}

}  // namespace tp
