#include "common/program/styles.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/program/shardings.h"

namespace tp {
namespace {

constexpr char kPairs[] = "input_layouts and desired_input_layouts must be provided together with equal length";
constexpr char kKeys[] = "input keyword layout maps must contain equal keys";
constexpr char kOutputs[] = "output layouts must have equal length";
constexpr char kRequired[] = "a layout is required";

// The fields that a style may have, in one view; nullptr where it has not.
struct Fields {
  const std::vector<Layout>* inputs = nullptr;
  const std::vector<Layout>* desired_inputs = nullptr;
  const std::map<std::string, Layout>* named = nullptr;
  const std::map<std::string, Layout>* desired_named = nullptr;
  const std::vector<Layout>* outputs = nullptr;
  const std::vector<Layout>* desired_outputs = nullptr;
};

Fields FieldsOf(const Style& style) {
  Fields fields;
  auto take_inputs = [&](const auto& any) {
    fields.inputs = &any.input_layouts;
    fields.desired_inputs = &any.desired_input_layouts;
    fields.named = &any.input_kwarg_layouts;
    fields.desired_named = &any.desired_input_kwarg_layouts;
  };
  auto take_outputs = [&](const auto& any) {
    fields.outputs = &any.output_layouts;
    fields.desired_outputs = &any.desired_output_layouts;
  };
  if (const auto* input = std::get_if<PrepareModuleInput>(&style)) take_inputs(*input);
  if (const auto* output = std::get_if<PrepareModuleOutput>(&style)) take_outputs(*output);
  if (const auto* both = std::get_if<PrepareModuleInputOutput>(&style)) {
    take_inputs(*both);
    take_outputs(*both);
  }
  return fields;
}

struct WeightLayouts {
  const Layout* input = nullptr;  // nullptr: not a style that cuts weights
  const Layout* output = nullptr;
};
WeightLayouts WeightLayoutsOf(const Style& style) {
  if (const auto* colwise = std::get_if<ColwiseParallel>(&style)) {
    return {&colwise->input_layouts, &colwise->output_layouts};
  }
  if (const auto* rowwise = std::get_if<RowwiseParallel>(&style)) {
    return {&rowwise->input_layouts, &rowwise->output_layouts};
  }
  return {};
}

// Every layout with the field that it stands in.
std::vector<std::pair<std::string, const Layout*>> LayoutsOf(const Style& style) {
  if (const WeightLayouts weights = WeightLayoutsOf(style); weights.input != nullptr) {
    return {{"input_layouts", weights.input}, {"output_layouts", weights.output}};
  }
  std::vector<std::pair<std::string, const Layout*>> layouts;
  const Fields fields = FieldsOf(style);
  auto add_list = [&](const char* field, const std::vector<Layout>* list) {
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      layouts.emplace_back(absl::StrCat(field, "[", i, "]"), &(*list)[i]);
    }
  };
  auto add_map = [&](const char* field, const std::map<std::string, Layout>* map) {
    if (map == nullptr) return;
    for (const auto& [name, layout] : *map) layouts.emplace_back(absl::StrCat(field, "['", Cut(name), "']"), &layout);
  };
  add_list("input_layouts", fields.inputs);
  add_list("desired_input_layouts", fields.desired_inputs);
  add_list("output_layouts", fields.outputs);
  add_list("desired_output_layouts", fields.desired_outputs);
  add_map("input_kwarg_layouts", fields.named);
  add_map("desired_input_kwarg_layouts", fields.desired_named);
  return layouts;
}

// None = untouched, whatever is desired.
LayoutChange ChangeOf(const Layout& declared, const Layout& desired, const std::string& field) {
  if (declared.IsNone()) return {};
  return {declared, desired, field, absl::StrCat("desired_", field)};
}

// What a sharding does to the value `name`.
LayoutChange ShardingChange(const std::map<std::string, NamedPlacements>& from, const std::string& from_field,
                            const std::map<std::string, NamedPlacements>& to, const std::string& to_field,
                            const std::string& name, const Mesh& mesh) {
  LayoutChange change;
  change.field = absl::StrCat(from_field, "['", Cut(name), "']");
  if (auto it = from.find(name); it != from.end()) change.declared = CompleteLayout(it->second, mesh);
  if (auto it = to.find(name); it != to.end()) {
    change.desired = CompleteLayout(it->second, mesh);
    change.desired_field = absl::StrCat(to_field, "['", Cut(name), "']");
    change.unnamed_axes = UnnamedAxes(it->second, mesh);
  }
  return change;
}

// Of a value that is no tensor, as Python names it.
const char* TypeText(const Attribute& literal) {
  if (std::holds_alternative<bool>(literal)) return "bool";
  if (std::holds_alternative<int64_t>(literal)) return "int";
  if (std::holds_alternative<double>(literal)) return "float";
  if (std::holds_alternative<std::vector<int64_t>>(literal) || std::holds_alternative<SymShape>(literal)) return "list";
  return "str";
}

bool SameKeys(const std::map<std::string, Layout>& a, const std::map<std::string, Layout>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& left, const auto& right) { return left.first == right.first; });
}

}  // namespace

bool CutsWeights(const Style& style) { return WeightLayoutsOf(style).input != nullptr; }

absl::StatusOr<AxisPlacements> ResolveLayout(const Layout& layout, const Mesh& mesh, int axis) {
  AxisPlacements resolved(static_cast<size_t>(mesh.axis_count()));
  switch (layout.form) {
    case Layout::Form::kNone:
      break;
    case Layout::Form::kAxis:
      if (axis >= 0) resolved[axis] = layout.placements[0];
      break;
    case Layout::Form::kList:
      if (layout.placements.size() != resolved.size()) {
        return absl::InvalidArgumentError(absl::StrCat("layout count must equal mesh rank: ", layout.placements.size(),
                                                       " layouts, ", resolved.size(), " mesh axes"));
      }
      for (size_t i = 0; i < resolved.size(); ++i) resolved[i] = layout.placements[i];
      break;
    case Layout::Form::kMap: {
      std::vector<std::string> unknown;
      for (const auto& [name, placement] : layout.axes) {
        absl::StatusOr<int> index = mesh.AxisIndex(name);
        if (index.ok()) {
          resolved[*index] = placement;
        } else {
          unknown.push_back(name);
        }
      }
      if (!unknown.empty()) {
        return absl::InvalidArgumentError(AxesNotInMesh(unknown));
      }
      break;
    }
  }
  return resolved;
}

absl::StatusOr<std::vector<LayoutChange>> InputChanges(const PlanEntry& entry, const FlatModule& module,
                                                       const FlatNode& call, const Mesh& mesh) {
  const size_t count = call.inputs.size();
  std::vector<LayoutChange> changes(count);
  if (const auto* sharding = std::get_if<ShardingConfig>(&entry.style)) {
    for (size_t i = 0; i < count; ++i) {
      if (call.inputs[i] < 0) continue;
      const std::string& name = module.argument_names[i];
      changes[i] = ShardingChange(sharding->in_src_shardings, "in_src_shardings", sharding->in_dst_shardings,
                                  "in_dst_shardings", name, mesh);
    }
    return changes;
  }
  if (const auto* sequence = std::get_if<SequenceParallel>(&entry.style)) {
    if (count == 0 || call.inputs[0] < 0) {
      auto literal = call.literals.find(0);
      return absl::InvalidArgumentError(
          absl::StrCat("expecting input of SequenceParallel to be a tensor or DTensor, ", "but got ",
                       literal == call.literals.end() ? "None" : TypeText(literal->second)));
    }
    changes[0].desired = Placement::Shard(sequence->sequence_dim);
    changes[0].desired_field = "sequence_dim";
    return changes;
  }
  if (const WeightLayouts weights = WeightLayoutsOf(entry.style); weights.input != nullptr) {
    const bool cuts = std::holds_alternative<RowwiseParallel>(entry.style) && module.kind == "Linear";
    if (entry.input_layouts_written) changes[0].declared = *weights.input;
    changes[0].desired = cuts ? Placement::Shard(-1) : Placement::Replicate();
    changes[0].field = changes[0].desired_field = "input_layouts";
    return changes;
  }
  const Fields fields = FieldsOf(entry.style);
  if (fields.inputs == nullptr) return changes;
  const size_t given = fields.inputs->size();
  if (given > 0) {
    // Arguments may be passed by name, and a graph calls a module either way: layouts cover those passed by position,
    // or all that have no keyword layout.
    const size_t others = count >= fields.named->size() ? count - fields.named->size() : 0;
    if (given != static_cast<size_t>(call.positional) && given != others) {
      return absl::InvalidArgumentError(absl::StrCat(
          "module input count does not match input layouts: ", call.positional, " inputs, ", given, " layouts"));
    }
  }
  for (size_t i = 0; i < given && i < count; ++i) {
    if (call.inputs[i] < 0) continue;
    changes[i] = ChangeOf((*fields.inputs)[i], (*fields.desired_inputs)[i], absl::StrCat("input_layouts[", i, "]"));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = module.argument_names[i];
    auto named = fields.named->find(name);
    if (named == fields.named->end() || call.inputs[i] < 0) continue;
    LayoutChange change =
        ChangeOf(named->second, fields.desired_named->at(name), absl::StrCat("input_kwarg_layouts['", Cut(name), "']"));
    if (change.declared.IsNone()) continue;
    if (!changes[i].declared.IsNone()) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument '", Cut(name), "' has a layout in input_layouts and in input_kwarg_layouts"));
    }
    changes[i] = std::move(change);
  }
  return changes;
}

absl::StatusOr<std::vector<LayoutChange>> OutputChanges(const PlanEntry& entry, const FlatModule& module,
                                                        const std::vector<int>& ranks, const Mesh& mesh) {
  std::vector<LayoutChange> changes(ranks.size());
  if (const auto* sharding = std::get_if<ShardingConfig>(&entry.style)) {
    const std::vector<std::string>& names = module.output_names;
    for (size_t i = 0; i < ranks.size() && i < names.size(); ++i) {
      changes[i] = ShardingChange(sharding->out_src_shardings, "out_src_shardings", sharding->out_dst_shardings,
                                  "out_dst_shardings", names[i], mesh);
    }
    return changes;
  }
  if (const auto* sequence = std::get_if<SequenceParallel>(&entry.style)) {
    // The first output has the sequence; others may be without one.
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int dim = sequence->sequence_dim;
      if (i == 0 || (dim < ranks[i] && dim >= -ranks[i])) changes[i].desired = Placement::Shard(dim);
      changes[i].desired_field = "sequence_dim";
    }
    return changes;
  }
  if (const WeightLayouts weights = WeightLayoutsOf(entry.style); weights.output != nullptr) {
    changes[0].desired = *weights.output;
    changes[0].desired_field = "output_layouts";
    return changes;
  }
  const Fields fields = FieldsOf(entry.style);
  if (fields.outputs == nullptr) return changes;
  if (fields.outputs->size() != ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("module output count does not match output layouts: ", ranks.size(),
                                                   " outputs, ", fields.outputs->size(), " layouts"));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    changes[i] = ChangeOf((*fields.outputs)[i], (*fields.desired_outputs)[i], absl::StrCat("output_layouts[", i, "]"));
  }
  return changes;
}

std::vector<FieldProblem> StyleProblems(const Style& style, const Mesh& mesh, int axis, std::vector<bool>* axes) {
  std::vector<FieldProblem> problems;
  const Fields fields = FieldsOf(style);
  if (const WeightLayouts weights = WeightLayoutsOf(style); weights.input != nullptr) {
    if (weights.input->IsNone()) problems.push_back({"input_layouts", kRequired});
    if (weights.output->IsNone()) problems.push_back({"output_layouts", kRequired});
  }
  if (fields.inputs != nullptr) {
    if (fields.inputs->size() != fields.desired_inputs->size()) problems.push_back({"", kPairs});
    if (!SameKeys(*fields.named, *fields.desired_named)) problems.push_back({"", kKeys});
  }
  const bool no_inputs = fields.inputs == nullptr || (fields.inputs->empty() && fields.desired_inputs->empty() &&
                                                      fields.named->empty() && fields.desired_named->empty());
  if (fields.outputs != nullptr) {
    if (fields.outputs->size() != fields.desired_outputs->size()) {
      problems.push_back({"", kOutputs});
    } else if (fields.outputs->empty()) {
      problems.push_back({"", kRequired});
    }
  } else if (fields.inputs != nullptr && no_inputs) {
    problems.push_back({"", kRequired});
  }
  for (const auto& [field, layout] : LayoutsOf(style)) {
    absl::StatusOr<AxisPlacements> resolved = ResolveLayout(*layout, mesh, axis);
    if (!resolved.ok()) {
      problems.push_back({field, std::string(resolved.status().message())});
      continue;
    }
    for (size_t i = 0; i < resolved->size(); ++i) {
      if ((*resolved)[i].has_value()) (*axes)[i] = true;
    }
  }
  const int source = std::visit(
      [](const auto& any) {
        if constexpr (requires { any.src_data_rank; }) return any.src_data_rank;
        return 0;
      },
      style);
  if (source < 0) {
    problems.push_back({"", absl::StrCat("src_data_rank is ", source, "; must not be negative")});
  } else if (axis >= 0 && source >= mesh.axis_size(axis)) {
    problems.push_back({"", absl::StrCat("src_data_rank is ", source, "; axis '", Cut(mesh.axes()[axis].name), "' has ",
                                         mesh.axis_size(axis), " ranks")});
  }
  return problems;
}

std::vector<FieldProblem> ModuleProblems(const Style& style, const FlatModule& module) {
  std::vector<FieldProblem> problems;
  if (CutsWeights(style) && module.kind != "Linear" && module.kind != "Embedding") {
    problems.push_back({"", absl::StrCat(StyleName(style), " supports Linear and Embedding modules")});
  }
  if (std::holds_alternative<SequenceParallel>(style) && module.argument_names.empty()) {
    problems.push_back({"", "expecting input of SequenceParallel to be a tensor or DTensor, but got None"});
  }
  const Fields fields = FieldsOf(style);
  if (fields.named == nullptr) return problems;
  std::map<std::string, Layout> both = *fields.named;
  both.insert(fields.desired_named->begin(), fields.desired_named->end());
  for (const auto& [name, layout] : both) {
    const auto& names = module.argument_names;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    problems.push_back({"input_kwarg_layouts", absl::StrCat(Cut(module.type_name), " has no argument '", Cut(name),
                                                            "'; nearest: ", JoinNames(NearestNames(name, names)))});
  }
  return problems;
}

std::vector<std::string> StyleWarnings(const Style& style) {
  std::vector<std::string> warnings;
  const Fields fields = FieldsOf(style);
  auto compare = [&](const Layout& declared, const Layout& desired, const std::string& item) {
    if (!declared.IsNone() || desired.IsNone()) return;
    warnings.push_back(absl::StrCat("desired layout of ", item, " has no effect: its declared layout is none"));
  };
  if (fields.inputs != nullptr) {
    for (size_t i = 0; i < std::min(fields.inputs->size(), fields.desired_inputs->size()); ++i) {
      compare((*fields.inputs)[i], (*fields.desired_inputs)[i], absl::StrCat("input ", i));
    }
    for (const auto& [name, layout] : *fields.named) {
      auto desired = fields.desired_named->find(name);
      if (desired != fields.desired_named->end()) {
        compare(layout, desired->second, absl::StrCat("input '", Cut(name), "'"));
      }
    }
  }
  if (fields.outputs != nullptr) {
    for (size_t i = 0; i < std::min(fields.outputs->size(), fields.desired_outputs->size()); ++i) {
      compare((*fields.outputs)[i], (*fields.desired_outputs)[i], absl::StrCat("output ", i));
    }
  }
  return warnings;
}

}  // namespace tp
