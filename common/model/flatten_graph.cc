// Flattener's graphs: nodes, the values that they name, and what a graph answers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/names.h"
#include "common/model/flattener.h"
#include "common/model/validate.h"

namespace tp {
namespace {

// The names of a node's values in its graph.
absl::StatusOr<std::vector<std::string>> ValueNames(const GraphNode& node, const Made& made) {
  if (!node.outputs.empty()) {
    if (node.outputs.size() == made.values.size()) return node.outputs;
    return absl::InvalidArgumentError(
        absl::StrCat("names ", node.outputs.size(), " outputs of ", made.values.size(), " (field outputs)"));
  }
  if (node.name.empty()) return absl::InvalidArgumentError("an output has no name");
  if (made.structure == OutputStructure::kSingle) return std::vector<std::string>{node.name};
  std::vector<std::string> names;
  for (const std::string& name : made.names) names.push_back(absl::StrCat(node.name, ".", name));
  return names;
}

}  // namespace

std::optional<Made> Flattener::CallFunction(const CompositeConfig& graph, const std::string& path,
                                            const GraphNode& node, const GraphScope& scope, const std::string& field) {
  FunctionCall call{node.function,
                    {},
                    node.attributes,
                    path,
                    absl::StrCat(path, ":", node.outputs.empty() ? node.name : node.outputs[0])};
  const FunctionDef* function = FindFunction(node.function);
  if (function == nullptr) {
    Tell(field, builder_.AddFunction(call).status());
    TellUnknownValues(node, graph, scope, field);
    return std::nullopt;
  }
  std::vector<Parameter> parameters;
  for (const FunctionArgument& argument : function->arguments) {
    parameters.push_back({argument.name, argument.optional, argument.variadic});
  }
  std::vector<absl::Status> wrong;
  const BoundArguments arguments =
      OrderArguments(node.function, node.arguments, parameters, scope, graph.nodes, &wrong);
  bool unknown = inputs_wrong_, unknown_attributes = false;
  for (size_t i = 0; i < arguments.bound.size(); ++i) {
    if (arguments.bound[i].literal.has_value()) {
      wrong.push_back(absl::InvalidArgumentError(
          absl::StrCat("argument '", parameters[std::min(i, parameters.size() - 1)].name, "' of ", node.function,
                       " must be a tensor, given ", Cut(AttributeText(*arguments.bound[i].literal)),
                       " (attributes take literals)")));
    }
    unknown |= arguments.bound[i].unknown;
    call.inputs.push_back(arguments.bound[i].value);
  }
  for (const auto& [attribute, input] : node.attribute_inputs) {
    const auto found = scope.Get(input, graph.nodes);
    if (!found.ok()) {
      wrong.push_back(found.status());
      unknown_attributes = true;
      continue;
    }
    const Bound& bound = (*found)[0].second;
    unknown_attributes |= bound.unknown;
    if (bound.value >= 0) {
      unknown_attributes = true;
      wrong.push_back(absl::InvalidArgumentError(absl::StrCat("attribute '", Cut(attribute), "' of ", node.function,
                                                              " can't be a tensor ('", Cut(input), "')")));
    }
    if (bound.literal.has_value()) call.attributes[attribute] = *bound.literal;
  }
  if (!wrong.empty() || unknown || unknown_attributes) {
    for (const absl::Status& status : wrong) Tell(field, status);
    if (unknown_attributes) return std::nullopt;
    const absl::Status attributes = CheckAttributes(*function, call.attributes).status();
    if (!attributes.ok()) Tell(field, attributes);
    return std::nullopt;
  }
  absl::StatusOr<std::vector<int>> outputs = builder_.AddFunction(call);
  if (!outputs.ok()) {
    Tell(field, outputs.status());
    return std::nullopt;
  }
  if (outputs->size() == 1 && function->name != "split" && function->name != "chunk")
    return Made::Single((*outputs)[0]);
  Made made{*std::move(outputs), {}, OutputStructure::kTuple};
  for (size_t i = 0; i < made.values.size(); ++i) made.names.push_back(absl::StrCat(i));
  return made;
}

void Flattener::TellUnknownValues(const GraphNode& node, const CompositeConfig& graph, const GraphScope& scope,
                                  const std::string& field) {
  for (const Argument& argument : node.arguments) {
    if (argument.literal.has_value() || argument.value.empty()) continue;
    const absl::Status found = scope.Get(argument.value, graph.nodes).status();
    if (!found.ok()) Tell(field, found);
  }
}

std::optional<Made> Flattener::CallNode(const Module& module, const std::string& path, const GraphNode& node,
                                        const GraphScope& scope, const std::string& field) {
  const auto& graph = std::get<CompositeConfig>(module.config);
  if (node.child.empty() == node.function.empty()) {
    Tell(field, "exactly one of child and function must be set");
    TellUnknownValues(node, graph, scope, field);
    return std::nullopt;
  }
  if (!node.function.empty()) return CallFunction(graph, path, node, scope, field);
  const bool attributes = !node.attributes.empty() || !node.attribute_inputs.empty();
  if (attributes) Tell(field, "attributes belong to functions, not to child modules");
  const Module* child = &module;
  std::string child_path = path;
  for (absl::string_view piece : absl::StrSplit(node.child, '.')) {
    const std::string token(piece.data(), piece.size());
    const auto next = std::find_if(child->children.begin(), child->children.end(),
                                   [&](const Module& candidate) { return candidate.name == token; });
    if (next == child->children.end()) {
      std::vector<std::string> names;
      for (const Module& candidate : child->children) names.push_back(candidate.name);
      Tell(field, absl::StrCat("there is no child '", Cut(node.child), "' (", FieldOf(child_path), " has no '",
                               Cut(token), "'); nearest: ", JoinNames(NearestNames(token, names))));
      TellUnknownValues(node, graph, scope, field);
      return std::nullopt;
    }
    child = &*next;
    child_path = JoinPath(child_path, token);
  }
  std::vector<Parameter> parameters;
  for (const GraphInput& input : ArgumentsOf(*child)) parameters.push_back({input.name, input.optional, false});
  std::vector<absl::Status> wrong;
  BoundArguments arguments =
      OrderArguments(absl::StrCat("'", Cut(node.child), "'"), node.arguments, parameters, scope, graph.nodes, &wrong);
  for (const absl::Status& status : wrong) Tell(field, status);
  if (!wrong.empty()) {
    arguments.bound.assign(parameters.size(), Bound{.value = -1, .literal = {}, .unknown = true});
  }
  MaybeMade made = Call(*child, child_path, arguments.bound, arguments.positional);
  return wrong.empty() && !attributes ? std::move(made) : std::nullopt;
}

std::optional<Made> Flattener::ForwardGraph(const Module& module, const std::string& path,
                                            const std::vector<Bound>& inputs) {
  const auto& graph = std::get<CompositeConfig>(module.config);
  const std::string field = FieldOf(path);
  GraphScope scope;
  auto add = [&](const std::string& name, const Bound& bound, const std::string& where) {
    if (name.empty()) return;
    if (const absl::Status added = scope.Add(name, bound); !added.ok()) Tell(where, added);
  };
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].name.empty()) Tell(field, "an input has no name");
    add(graph.inputs[i].name, inputs[i], field);
  }
  if (stateless_.contains(path)) {
    scope.AddUnknown("self");
  } else {
    for (const StateDef& state : graph.states) {
      add("self." + state.name, {.value = flat_.state_values.at(JoinPath(path, state.name)), .literal = {}}, field);
    }
  }
  for (const GraphNode& node : graph.nodes) {
    if (stopped_) return std::nullopt;
    const std::string label = node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
    const std::string node_field = absl::StrCat(field, ": node '", Cut(label), "'");
    const MaybeMade made = CallNode(module, path, node, scope, node_field);
    std::vector<std::string> unknown = node.outputs;
    if (unknown.empty()) unknown.push_back(node.name);
    if (made.has_value()) {
      absl::StatusOr<std::vector<std::string>> names = ValueNames(node, *made);
      if (names.ok()) {
        for (size_t i = 0; i < names->size(); ++i) {
          if ((*names)[i].empty()) Tell(node_field, "an output has no name");
          add((*names)[i], {.value = made->values[i], .literal = {}}, node_field);
        }
        continue;
      }
      Tell(node_field, names.status());
    }
    for (const std::string& name : unknown) scope.AddUnknown(name);
  }
  return GraphOutputs(graph, field, scope);
}

std::optional<Made> Flattener::GraphOutputs(const CompositeConfig& graph, const std::string& field,
                                            const GraphScope& scope) {
  if (graph.outputs.empty()) {
    Tell(field, "the graph has no outputs");
    return std::nullopt;
  }
  const bool several = graph.outputs.size() > 1 || graph.structure != OutputStructure::kSingle;
  Made made{{}, {}, graph.structure};
  bool known = true;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphOutput& output = graph.outputs[i];
    const std::string output_field = absl::StrCat(field, ": output '", Cut(output.name), "'");
    auto wrong = [&](const std::string& where, const absl::Status& status) {
      Tell(where, status);
      known = false;
    };
    if (output.name.empty() && graph.structure == OutputStructure::kMap) {
      wrong(field, absl::InvalidArgumentError("an output has no name"));
    }
    absl::StatusOr<std::vector<std::pair<std::string, Bound>>> values = scope.Get(output.value, {});
    if (!values.ok()) {
      wrong(output_field, values.status());
      continue;
    }
    for (const auto& [rest, bound] : *values) {
      const std::string text = absl::StrCat("'", Cut(output.value), "'");
      if (bound.literal.has_value()) {
        wrong(output_field, absl::InvalidArgumentError(absl::StrCat(text, " is no tensor")));
      }
      if (bound.IsOmitted()) {
        wrong(output_field, absl::InvalidArgumentError(absl::StrCat("input ", text, " is omitted")));
      }
      known &= !bound.unknown;
      std::string name = output.name;
      if (name.empty() && several) name = absl::StrCat(i);
      if (!rest.empty()) {
        name = name.empty() ? rest : absl::StrCat(name, ".", rest);
        if (made.structure == OutputStructure::kSingle) made.structure = OutputStructure::kTuple;
      }
      if (name.empty()) name = "output";
      if (std::find(made.names.begin(), made.names.end(), name) != made.names.end()) {
        wrong(output_field, absl::InvalidArgumentError("named twice"));
      }
      made.names.push_back(std::move(name));
      made.values.push_back(bound.value);
    }
  }
  if (!known) return std::nullopt;
  if (several && made.structure == OutputStructure::kSingle) made.structure = OutputStructure::kTuple;
  return made;
}

}  // namespace tp
