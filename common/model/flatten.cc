#include "common/model/flatten.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/flat_builder.h"
#include "common/model/graph_scope.h"
#include "common/model/validate.h"

namespace tp {
namespace {

absl::Status Wrong(const std::string& field, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", text));
}

std::set<std::string> SymbolsOf(const ModelDef& model) {
  std::set<std::string> symbols;
  for (const ModelInput& input : model.inputs) {
    for (const Dim& dim : input.shape) {
      for (std::string& symbol : dim.Symbols()) symbols.insert(std::move(symbol));
    }
  }
  return symbols;
}

// What a call makes.
struct Made {
  std::vector<int> values;
  std::vector<std::string> names;  // one for each
  OutputStructure structure = OutputStructure::kSingle;
};

Made Single(int value) { return {{value}, {"output"}, OutputStructure::kSingle}; }

// Walks the module tree and its graphs; `flat_` grows.
class Flattener {
 public:
  Flattener(const ModelDef& model, DType compute_dtype)
      : model_(model), compute_dtype_(compute_dtype), builder_(&flat_, SymbolsOf(model)) {}

  absl::StatusOr<FlatModel> Run();

 private:
  absl::Status AddModules(const Module& module, const std::string& path);
  // Adds a call of `module`; `inputs` has one entry for each argument; `positional`: how many of them the call passes
  // by position.
  absl::StatusOr<Made> Call(const Module& module, const std::string& path, const std::vector<Bound>& inputs,
                            int positional);
  absl::StatusOr<Made> Forward(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  absl::StatusOr<Made> ForwardChain(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  absl::StatusOr<Made> ForwardGraph(const Module& module, const std::string& path, const std::vector<Bound>& inputs);
  absl::StatusOr<Made> CallNode(const Module& module, const std::string& path, const GraphNode& node,
                                const GraphScope& scope);
  absl::StatusOr<Made> CallFunction(const CompositeConfig& graph, const std::string& path, const GraphNode& node,
                                    const GraphScope& scope);
  absl::StatusOr<Made> GraphOutputs(const CompositeConfig& graph, const std::string& field, const GraphScope& scope);

  const ModelDef& model_;
  const DType compute_dtype_;
  FlatModel flat_;
  FlatBuilder builder_;
  std::map<std::string, size_t> module_index_;  // path -> index in flat_.modules
};

absl::Status Flattener::AddModules(const Module& module, const std::string& path) {
  TP_RETURN_IF_ERROR(ValidateChildren(module, path));
  FlatModule flat{path, TypeNameOf(module), &module, {}, KindOf(module), {}, OutputStructure::kSingle};
  for (const GraphInput& argument : ArgumentsOf(module)) flat.argument_names.push_back(argument.name);
  module_index_[path] = flat_.modules.size();
  flat_.modules.push_back(std::move(flat));
  TP_ASSIGN_OR_RETURN(std::vector<FlatState> states, StatesOf(module, path, compute_dtype_));
  for (FlatState& state : states) {
    flat_.state_values[state.path] = builder_.NewValue(state.path, {state.dtype, ToSymShape(state.shape)});
    flat_.states.push_back(std::move(state));
  }
  for (const Module& child : module.children) TP_RETURN_IF_ERROR(AddModules(child, JoinPath(path, child.name)));
  return absl::OkStatus();
}

absl::StatusOr<Made> Flattener::Call(const Module& module, const std::string& path, const std::vector<Bound>& inputs,
                                     int positional) {
  const std::vector<GraphInput> arguments = ArgumentsOf(module);
  FlatNode enter{FlatNode::Kind::kModuleInput, "", path, {}, {}, {}, positional, {}};
  std::vector<Bound> seen = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value >= 0) {
      seen[i].value = builder_.NewValue(absl::StrCat(path, ":", arguments[i].name), builder_.TypeOf(inputs[i].value));
    } else if (inputs[i].literal.has_value()) {
      enter.literals[static_cast<int>(i)] = *inputs[i].literal;
    }
    enter.inputs.push_back(inputs[i].value);
    enter.outputs.push_back(seen[i].value);
  }
  if (absl::Status added = builder_.AddNode(std::move(enter)); !added.ok()) return Annotate(added, FieldOf(path));
  TP_ASSIGN_OR_RETURN(Made made, Forward(module, path, seen));
  FlatNode leave{FlatNode::Kind::kModuleOutput, "", path, made.values, {}, {}, 0, {}};
  for (size_t i = 0; i < made.values.size(); ++i) {
    leave.outputs.push_back(
        builder_.NewValue(made.values.size() == 1 ? absl::StrCat(path, ":output") : absl::StrCat(path, ":output", i),
                          builder_.TypeOf(made.values[i])));
  }
  FlatModule& flat = flat_.modules[module_index_.at(path)];
  flat.output_names = made.names;
  flat.structure = made.structure;
  made.values = leave.outputs;
  if (absl::Status added = builder_.AddNode(std::move(leave)); !added.ok()) return Annotate(added, FieldOf(path));
  return made;
}

absl::StatusOr<Made> Flattener::Forward(const Module& module, const std::string& path,
                                        const std::vector<Bound>& inputs) {
  if (std::holds_alternative<CompositeConfig>(module.config)) return ForwardGraph(module, path, inputs);
  if (std::holds_alternative<ModuleListConfig>(module.config) ||
      std::holds_alternative<ModuleDictConfig>(module.config)) {
    return Wrong(FieldOf(path), absl::StrCat(TypeNameOf(module), " has no forward: call its children"));
  }
  if (std::holds_alternative<SequentialConfig>(module.config)) return ForwardChain(module, path, inputs);
  const std::vector<GraphInput> arguments = ArgumentsOf(module);
  std::vector<int> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value < 0) {
      return Wrong(FieldOf(path), absl::StrCat(arguments[i].name, " of ", TypeNameOf(module),
                                               inputs[i].literal.has_value() ? " must be a tensor" : " is omitted"));
    }
    values.push_back(inputs[i].value);
  }
  absl::StatusOr<int> output = builder_.AddLeaf(module, path, values);
  if (!output.ok()) return Annotate(output.status(), FieldOf(path));
  return Single(*output);
}

absl::StatusOr<Made> Flattener::ForwardChain(const Module& module, const std::string& path,
                                             const std::vector<Bound>& inputs) {
  if (inputs[0].value < 0) return Wrong(FieldOf(path), "input of Sequential must be a tensor");
  Made made = Single(inputs[0].value);
  for (const Module& child : module.children) {
    const std::vector<GraphInput> arguments = ArgumentsOf(child);
    size_t required = 0;
    for (const GraphInput& argument : arguments) required += argument.optional ? 0 : 1;
    if (required > made.values.size() || made.values.size() > arguments.size()) {
      return Wrong(FieldOf(path), absl::StrCat("Sequential: child '", child.name, "' takes ", arguments.size(),
                                               " values and gets ", made.values.size()));
    }
    std::vector<Bound> values(arguments.size());
    for (size_t i = 0; i < made.values.size(); ++i) values[i].value = made.values[i];
    const int given = static_cast<int>(made.values.size());
    TP_ASSIGN_OR_RETURN(made, Call(child, JoinPath(path, child.name), values, given));
  }
  return made;
}

absl::StatusOr<Made> Flattener::CallFunction(const CompositeConfig& graph, const std::string& path,
                                             const GraphNode& node, const GraphScope& scope) {
  FunctionCall call{node.function,
                    {},
                    node.attributes,
                    path,
                    absl::StrCat(path, ":", node.outputs.empty() ? node.name : node.outputs[0])};
  const FunctionDef* function = FindFunction(node.function);
  if (function == nullptr) return builder_.AddFunction(call).status();
  std::vector<Parameter> parameters;
  for (const FunctionArgument& argument : function->arguments) {
    parameters.push_back({argument.name, argument.optional, argument.variadic});
  }
  TP_ASSIGN_OR_RETURN(const BoundArguments arguments,
                      OrderArguments(node.function, node.arguments, parameters, scope, graph.nodes));
  for (size_t i = 0; i < arguments.bound.size(); ++i) {
    if (arguments.bound[i].literal.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "argument '", parameters[std::min(i, parameters.size() - 1)].name, "' of ", node.function,
          " must be a tensor, given ", AttributeText(*arguments.bound[i].literal), " (attributes take literals)"));
    }
    call.inputs.push_back(arguments.bound[i].value);
  }
  for (const auto& [attribute, input] : node.attribute_inputs) {
    TP_ASSIGN_OR_RETURN(const auto found, scope.Get(input, graph.nodes));
    const Bound& bound = found[0].second;
    if (bound.value >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute '", attribute, "' of ", node.function, " can't be a tensor ('", input, "')"));
    }
    if (bound.literal.has_value()) call.attributes[attribute] = *bound.literal;
  }
  TP_ASSIGN_OR_RETURN(std::vector<int> outputs, builder_.AddFunction(call));
  if (outputs.size() == 1 && function->name != "split" && function->name != "chunk") return Single(outputs[0]);
  Made made{std::move(outputs), {}, OutputStructure::kTuple};
  for (size_t i = 0; i < made.values.size(); ++i) made.names.push_back(absl::StrCat(i));
  return made;
}

absl::StatusOr<Made> Flattener::CallNode(const Module& module, const std::string& path, const GraphNode& node,
                                         const GraphScope& scope) {
  const auto& graph = std::get<CompositeConfig>(module.config);
  if (node.child.empty() == node.function.empty()) {
    return absl::InvalidArgumentError("exactly one of child and function must be set");
  }
  if (!node.function.empty()) return CallFunction(graph, path, node, scope);
  if (!node.attributes.empty() || !node.attribute_inputs.empty())
    return absl::InvalidArgumentError("attributes belong to functions, not to child modules");
  const Module* child = &module;
  std::string child_path = path;
  for (absl::string_view piece : absl::StrSplit(node.child, '.')) {
    const std::string token(piece.data(), piece.size());
    const auto next = std::find_if(child->children.begin(), child->children.end(),
                                   [&](const Module& candidate) { return candidate.name == token; });
    if (next == child->children.end()) {
      std::vector<std::string> names;
      for (const Module& candidate : child->children) names.push_back(candidate.name);
      return absl::InvalidArgumentError(absl::StrCat("there is no child '", node.child, "' (", FieldOf(child_path),
                                                     " has no '", token,
                                                     "'); nearest: ", JoinNames(NearestNames(token, names))));
    }
    child = &*next;
    child_path = JoinPath(child_path, token);
  }
  std::vector<Parameter> parameters;
  for (const GraphInput& input : ArgumentsOf(*child)) parameters.push_back({input.name, input.optional, false});
  TP_ASSIGN_OR_RETURN(const BoundArguments arguments, OrderArguments(absl::StrCat("'", node.child, "'"), node.arguments,
                                                                     parameters, scope, graph.nodes));
  return Call(*child, child_path, arguments.bound, arguments.positional);
}

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

absl::StatusOr<Made> Flattener::ForwardGraph(const Module& module, const std::string& path,
                                             const std::vector<Bound>& inputs) {
  const auto& graph = std::get<CompositeConfig>(module.config);
  const std::string field = FieldOf(path);
  GraphScope scope;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].name.empty()) return Wrong(field, "an input has no name");
    if (absl::Status added = scope.Add(graph.inputs[i].name, inputs[i]); !added.ok()) return Annotate(added, field);
  }
  for (const StateDef& state : graph.states) {
    absl::Status added = scope.Add("self." + state.name, {flat_.state_values.at(JoinPath(path, state.name)), {}});
    if (!added.ok()) return Annotate(added, field);
  }
  for (const GraphNode& node : graph.nodes) {
    const std::string label = node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
    const std::string node_field = absl::StrCat(field, ": node '", label, "'");
    absl::StatusOr<Made> made = CallNode(module, path, node, scope);
    if (!made.ok()) {
      // An error from inside a child carries its own path already.
      const bool inner = absl::StartsWith(made.status().message(), "root");
      return inner ? made.status() : Annotate(made.status(), node_field);
    }
    absl::StatusOr<std::vector<std::string>> names = ValueNames(node, *made);
    if (!names.ok()) return Annotate(names.status(), node_field);
    for (size_t i = 0; i < names->size(); ++i) {
      if ((*names)[i].empty()) return Wrong(node_field, "an output has no name");
      absl::Status added = scope.Add((*names)[i], {made->values[i], {}});
      if (!added.ok()) return Annotate(added, node_field);
    }
  }
  return GraphOutputs(graph, field, scope);
}

absl::StatusOr<Made> Flattener::GraphOutputs(const CompositeConfig& graph, const std::string& field,
                                             const GraphScope& scope) {
  if (graph.outputs.empty()) return Wrong(field, "the graph has no outputs");
  const bool several = graph.outputs.size() > 1 || graph.structure != OutputStructure::kSingle;
  Made made{{}, {}, graph.structure};
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphOutput& output = graph.outputs[i];
    const std::string output_field = absl::StrCat(field, ": output '", output.name, "'");
    if (output.name.empty() && graph.structure == OutputStructure::kMap) return Wrong(field, "an output has no name");
    absl::StatusOr<std::vector<std::pair<std::string, Bound>>> values = scope.Get(output.value, {});
    if (!values.ok()) return Annotate(values.status(), output_field);
    for (const auto& [rest, bound] : *values) {
      if (bound.literal.has_value()) return Wrong(output_field, absl::StrCat("'", output.value, "' is no tensor"));
      if (bound.IsOmitted()) return Wrong(output_field, absl::StrCat("input '", output.value, "' is omitted"));
      std::string name = output.name;
      if (name.empty() && several) name = absl::StrCat(i);
      if (!rest.empty()) {
        name = name.empty() ? rest : absl::StrCat(name, ".", rest);
        if (made.structure == OutputStructure::kSingle) made.structure = OutputStructure::kTuple;
      }
      if (name.empty()) name = "output";
      if (std::find(made.names.begin(), made.names.end(), name) != made.names.end()) {
        return Wrong(output_field, "named twice");
      }
      made.names.push_back(std::move(name));
      made.values.push_back(bound.value);
    }
  }
  if (several && made.structure == OutputStructure::kSingle) made.structure = OutputStructure::kTuple;
  return made;
}

absl::StatusOr<FlatModel> Flattener::Run() {
  TP_RETURN_IF_ERROR(AddModules(model_.root, ""));
  TP_RETURN_IF_ERROR(ValidateInputs(model_));
  const std::vector<GraphInput> arguments = ArgumentsOf(model_.root);
  std::vector<Bound> inputs(arguments.size());
  for (const ModelInput& input : model_.inputs) {
    int seen = builder_.NewValue(input.name, {input.dtype, input.shape});
    flat_.inputs.emplace_back(input.name, seen);
    // A value of the model is in the compute dtype between operators, whatever floats a request sends.
    if (IsFloating(input.dtype) && input.dtype != compute_dtype_) {
      TP_ASSIGN_OR_RETURN(
          const std::vector<int> cast,
          builder_.AddFunction({"cast", {seen}, {{"dtype", compute_dtype_}}, "", input.name + ":cast"}));
      seen = cast[0];
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name == input.name) inputs[i].value = seen;
    }
  }
  TP_ASSIGN_OR_RETURN(const Made made, Call(model_.root, "", inputs, static_cast<int>(inputs.size())));
  for (size_t i = 0; i < made.values.size(); ++i) flat_.outputs.emplace_back(made.names[i], made.values[i]);
  TP_RETURN_IF_ERROR(ValidateGeneration(model_, flat_));
  return std::move(flat_);
}

}  // namespace

absl::StatusOr<FlatModel> FlattenModel(const ModelDef& model, DType compute_dtype) {
  if (!IsFloating(compute_dtype)) return Wrong("compute_dtype", "must be floating");
  return Flattener(model, compute_dtype).Run();
}

}  // namespace tp
