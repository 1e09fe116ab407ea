#include "common/model/flatten.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/validate.h"

namespace tp {
namespace {

constexpr size_t kMostNodes = 1 << 17;  // shared modules can multiply: a small definition must not fill the memory

absl::Status Wrong(const std::string& field, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", text));
}

// Walks the module tree and its graphs; `flat_` grows.
class Flattener {
 public:
  Flattener(const ModelDef& model, DType compute_dtype) : model_(model), compute_dtype_(compute_dtype) {}

  absl::StatusOr<FlatModel> Run();

 private:
  absl::Status AddModules(const Module& module, const std::string& path);
  int NewValue(std::string name, TensorType type);
  absl::StatusOr<int> AddFunction(const std::string& function, std::vector<int> inputs, const Attributes& attributes,
                                  const std::string& module_path, const std::string& value_name);
  // Adds a call of `module`; `inputs` has one entry for each argument, -1 = omitted; `positional`: how many of them the
  // call passes by position.
  absl::StatusOr<std::vector<int>> Call(const Module& module, const std::string& path, const std::vector<int>& inputs,
                                        int positional);
  absl::StatusOr<std::vector<int>> Forward(const Module& module, const std::string& path,
                                           const std::vector<int>& inputs);
  absl::StatusOr<std::vector<int>> ForwardGraph(const Module& module, const std::string& path,
                                                const std::vector<int>& inputs);
  absl::StatusOr<std::vector<int>> CallNode(const Module& module, const std::string& path, const GraphNode& node,
                                            const std::map<std::string, int>& scope);
  int State(const std::string& path, const std::string& name) const {
    return flat_.state_values.at(JoinPath(path, name));
  }

  const ModelDef& model_;
  const DType compute_dtype_;
  FlatModel flat_;
};

int Flattener::NewValue(std::string name, TensorType type) {
  flat_.values.push_back({std::move(name), std::move(type)});
  return static_cast<int>(flat_.values.size()) - 1;
}

absl::Status Flattener::AddModules(const Module& module, const std::string& path) {
  TP_RETURN_IF_ERROR(ValidateChildren(module, path));
  FlatModule flat{path, TypeNameOf(module), &module, {}, KindOf(module), {}, OutputStructure::kSingle};
  for (const GraphInput& argument : ArgumentsOf(module)) flat.argument_names.push_back(argument.name);
  flat_.modules.push_back(std::move(flat));
  TP_ASSIGN_OR_RETURN(std::vector<FlatState> states, StatesOf(module, path, compute_dtype_));
  for (FlatState& state : states) {
    flat_.state_values[state.path] = NewValue(state.path, {state.dtype, ToSymShape(state.shape)});
    flat_.states.push_back(std::move(state));
  }
  for (const Module& child : module.children) TP_RETURN_IF_ERROR(AddModules(child, JoinPath(path, child.name)));
  return absl::OkStatus();
}

absl::StatusOr<int> Flattener::AddFunction(const std::string& function, std::vector<int> inputs,
                                           const Attributes& attributes, const std::string& module_path,
                                           const std::string& value_name) {
  const FunctionDef* definition = FindFunction(function);
  if (definition == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no function '", function,
                                                   "'; nearest: ", JoinNames(NearestNames(function, FunctionNames()))));
  }
  TP_ASSIGN_OR_RETURN(Attributes complete, CheckAttributes(*definition, attributes));
  std::vector<const TensorType*> types;
  for (int input : inputs) types.push_back(input < 0 ? nullptr : &flat_.values[input].type);
  TP_ASSIGN_OR_RETURN(std::vector<TensorType> outputs, definition->infer(types, complete));
  if (flat_.nodes.size() >= kMostNodes)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMostNodes, " nodes"));
  const int output = NewValue(value_name, outputs[0]);
  flat_.nodes.push_back(
      {FlatNode::Kind::kFunction, function, module_path, std::move(inputs), {output}, std::move(complete), 0});
  return output;
}

absl::StatusOr<std::vector<int>> Flattener::Call(const Module& module, const std::string& path,
                                                 const std::vector<int>& inputs, int positional) {
  if (flat_.nodes.size() >= kMostNodes) return Wrong(FieldOf(path), absl::StrCat("more than ", kMostNodes, " nodes"));
  const std::vector<GraphInput> arguments = ArgumentsOf(module);
  std::vector<int> seen(inputs.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] >= 0) seen[i] = NewValue(absl::StrCat(path, ":", arguments[i].name), flat_.values[inputs[i]].type);
  }
  flat_.nodes.push_back({FlatNode::Kind::kModuleInput, "", path, inputs, seen, {}, positional});
  TP_ASSIGN_OR_RETURN(const std::vector<int> made, Forward(module, path, seen));
  std::vector<int> outputs;
  for (size_t i = 0; i < made.size(); ++i) {
    outputs.push_back(NewValue(made.size() == 1 ? absl::StrCat(path, ":output") : absl::StrCat(path, ":output", i),
                               flat_.values[made[i]].type));
  }
  flat_.nodes.push_back({FlatNode::Kind::kModuleOutput, "", path, made, outputs, {}, 0});
  return outputs;
}

absl::StatusOr<std::vector<int>> Flattener::Forward(const Module& module, const std::string& path,
                                                    const std::vector<int>& inputs) {
  auto single = [&](const std::string& function, std::vector<int> arguments,
                    const Attributes& attributes) -> absl::StatusOr<std::vector<int>> {
    absl::StatusOr<int> output =
        AddFunction(function, std::move(arguments), attributes, path, absl::StrCat(path, ":", function));
    if (!output.ok()) return Annotate(output.status(), FieldOf(path));
    return std::vector<int>{*output};
  };
  if (std::holds_alternative<CompositeConfig>(module.config)) return ForwardGraph(module, path, inputs);
  if (std::holds_alternative<ModuleListConfig>(module.config) ||
      std::holds_alternative<ModuleDictConfig>(module.config)) {
    return Wrong(FieldOf(path), absl::StrCat(TypeNameOf(module), " has no forward: call its children"));
  }
  if (inputs[0] < 0) return Wrong(FieldOf(path), absl::StrCat("input of ", TypeNameOf(module), " is omitted"));
  if (const auto* linear = std::get_if<LinearConfig>(&module.config)) {
    Attributes attributes;
    if (linear->output_dtype.has_value()) attributes["output_dtype"] = std::string(DTypeName(*linear->output_dtype));
    return single("linear", {inputs[0], State(path, "weight"), linear->bias ? State(path, "bias") : -1}, attributes);
  }
  if (std::holds_alternative<EmbeddingConfig>(module.config)) {
    return single("embedding", {inputs[0], State(path, "weight")}, {});
  }
  if (const auto* norm = std::get_if<RMSNormConfig>(&module.config)) {
    return single("rms_norm", {inputs[0], State(path, "weight")}, {{"eps", norm->eps}});
  }
  if (const auto* activation = std::get_if<ActivationConfig>(&module.config)) {
    const std::vector<std::string> known{"gelu", "relu", "silu", "softmax"};
    if (std::find(known.begin(), known.end(), activation->function) == known.end()) {
      return Wrong(FieldOf(path), absl::StrCat("there is no activation '", activation->function,
                                               "'; nearest: ", JoinNames(NearestNames(activation->function, known))));
    }
    return single(activation->function, {inputs[0]}, activation->attributes);
  }
  // Identity hands its input on; Sequential does with no child.
  std::vector<int> values{inputs[0]};
  for (const Module& child : module.children) {
    const std::vector<GraphInput> arguments = ArgumentsOf(child);
    const std::string child_path = JoinPath(path, child.name);
    size_t required = 0;
    for (const GraphInput& argument : arguments) required += argument.optional ? 0 : 1;
    if (required > values.size() || values.size() > arguments.size()) {
      return Wrong(FieldOf(path), absl::StrCat("Sequential: child '", child.name, "' takes ", arguments.size(),
                                               " values and gets ", values.size()));
    }
    const int given = static_cast<int>(values.size());
    values.resize(arguments.size(), -1);
    TP_ASSIGN_OR_RETURN(values, Call(child, child_path, values, given));
  }
  return values;
}

std::vector<std::string> OutputNames(const GraphNode& node) {
  return node.outputs.empty() ? std::vector<std::string>{node.name} : node.outputs;
}

std::vector<std::string> MadeIn(const CompositeConfig& graph) {
  std::vector<std::string> names;
  for (const GraphNode& node : graph.nodes) {
    for (std::string& name : OutputNames(node)) names.push_back(std::move(name));
  }
  return names;
}

// Puts a call's arguments in the order of the callee's. `graph`: whose node calls.
absl::StatusOr<std::vector<int>> OrderArguments(const std::string& callee, const std::vector<Argument>& given,
                                                const std::vector<GraphInput>& wanted,
                                                const std::map<std::string, int>& scope, const CompositeConfig& graph) {
  std::vector<std::string> names;
  for (const GraphInput& argument : wanted) names.push_back(argument.name);
  std::vector<int> ordered(wanted.size(), -1);
  std::vector<bool> set(wanted.size(), false);
  size_t position = 0;
  for (const Argument& argument : given) {
    size_t index = position;
    if (argument.name.empty()) {
      ++position;
      if (index >= wanted.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(callee, " takes ", wanted.size(), " arguments and gets ", given.size()));
      }
    } else {
      index = std::find(names.begin(), names.end(), argument.name) - names.begin();
      if (index == names.size()) {
        return absl::InvalidArgumentError(absl::StrCat(callee, " has no argument '", argument.name,
                                                       "'; nearest: ", JoinNames(NearestNames(argument.name, names))));
      }
    }
    if (set[index]) {
      return absl::InvalidArgumentError(absl::StrCat("argument '", names[index], "' of ", callee, " is given twice"));
    }
    set[index] = true;
    if (argument.value.empty()) continue;
    auto value = scope.find(argument.value);
    if (value == scope.end()) {
      const std::vector<std::string> later = MadeIn(graph);
      if (std::find(later.begin(), later.end(), argument.value) != later.end()) {
        return absl::InvalidArgumentError(absl::StrCat("value '", argument.value, "' is used before it is made"));
      }
      std::vector<std::string> in_scope;
      for (const auto& [name, made] : scope) in_scope.push_back(name);
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no value '", argument.value, "'; nearest: ", JoinNames(NearestNames(argument.value, in_scope))));
    }
    ordered[index] = value->second;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (ordered[i] < 0 && !wanted[i].optional) {
      return absl::InvalidArgumentError(absl::StrCat("argument '", names[i], "' of ", callee, " is omitted"));
    }
  }
  return ordered;
}

absl::StatusOr<std::vector<int>> Flattener::CallNode(const Module& module, const std::string& path,
                                                     const GraphNode& node, const std::map<std::string, int>& scope) {
  const auto& graph = std::get<CompositeConfig>(module.config);
  if (node.child.empty() == node.function.empty()) {
    return absl::InvalidArgumentError("exactly one of child and function must be set");
  }
  if (!node.function.empty()) {
    const FunctionDef* function = FindFunction(node.function);
    std::vector<GraphInput> arguments;
    if (function != nullptr) {
      for (const FunctionArgument& argument : function->arguments)
        arguments.push_back({argument.name, argument.optional});
      TP_ASSIGN_OR_RETURN(std::vector<int> inputs,
                          OrderArguments(node.function, node.arguments, arguments, scope, graph));
      TP_ASSIGN_OR_RETURN(const int output, AddFunction(node.function, std::move(inputs), node.attributes, path,
                                                        absl::StrCat(path, ":", OutputNames(node)[0])));
      return std::vector<int>{output};
    }
    return AddFunction(node.function, {}, {}, path, "").status();
  }
  if (!node.attributes.empty())
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
  TP_ASSIGN_OR_RETURN(const std::vector<int> inputs, OrderArguments(absl::StrCat("'", node.child, "'"), node.arguments,
                                                                    ArgumentsOf(*child), scope, graph));
  int positional = 0;
  for (const Argument& argument : node.arguments) positional += argument.name.empty() ? 1 : 0;
  return Call(*child, child_path, inputs, positional);
}

absl::StatusOr<std::vector<int>> Flattener::ForwardGraph(const Module& module, const std::string& path,
                                                         const std::vector<int>& inputs) {
  const auto& graph = std::get<CompositeConfig>(module.config);
  const std::string field = FieldOf(path);
  std::map<std::string, int> scope;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::string& name = graph.inputs[i].name;
    if (name.empty()) return Wrong(field, "an input has no name");
    if (!scope.emplace(name, inputs[i]).second)
      return Wrong(field, absl::StrCat("two values have the name '", name, "'"));
  }
  for (const StateDef& state : graph.states) scope["self." + state.name] = State(path, state.name);
  for (const GraphNode& node : graph.nodes) {
    const std::string label = node.name.empty() ? OutputNames(node)[0] : node.name;
    const std::string node_field = absl::StrCat(field, ": node '", label, "'");
    absl::StatusOr<std::vector<int>> values = CallNode(module, path, node, scope);
    if (!values.ok()) {
      // An error from inside a child carries its own path already.
      const bool inner = absl::StartsWith(values.status().message(), "root");
      return inner ? values.status() : Annotate(values.status(), node_field);
    }
    const std::vector<std::string> names = OutputNames(node);
    if (names.size() != values->size()) {
      return Wrong(node_field,
                   absl::StrCat("names ", names.size(), " outputs of ", values->size(), " (field outputs)"));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) return Wrong(node_field, "an output has no name");
      if (!scope.emplace(names[i], (*values)[i]).second) {
        return Wrong(node_field, absl::StrCat("two values have the name '", names[i], "'"));
      }
    }
  }
  if (graph.outputs.empty()) return Wrong(field, "the graph has no outputs");
  std::vector<int> outputs;
  std::vector<std::string> names, in_scope;
  for (const auto& [name, value] : scope) in_scope.push_back(name);
  for (const GraphOutput& output : graph.outputs) {
    const std::string output_field = absl::StrCat(field, ": output '", output.name, "'");
    if (std::find(names.begin(), names.end(), output.name) != names.end()) return Wrong(output_field, "named twice");
    names.push_back(output.name);
    auto value = scope.find(output.value);
    if (value == scope.end()) {
      return Wrong(output_field, absl::StrCat("there is no value '", output.value,
                                              "'; nearest: ", JoinNames(NearestNames(output.value, in_scope))));
    }
    if (value->second < 0) return Wrong(output_field, absl::StrCat("input '", output.value, "' is omitted"));
    outputs.push_back(value->second);
  }
  return outputs;
}

absl::StatusOr<FlatModel> Flattener::Run() {
  TP_RETURN_IF_ERROR(AddModules(model_.root, ""));
  TP_RETURN_IF_ERROR(ValidateInputs(model_));
  const std::vector<GraphInput> arguments = ArgumentsOf(model_.root);
  std::vector<int> inputs(arguments.size(), -1);
  for (const ModelInput& input : model_.inputs) {
    const int value = NewValue(input.name, {input.dtype, input.shape});
    flat_.inputs.emplace_back(input.name, value);
    int seen = value;
    // A value of the model is in the compute dtype between operators, whatever floats a request sends.
    if (IsFloating(input.dtype) && input.dtype != compute_dtype_) {
      TP_ASSIGN_OR_RETURN(seen, AddFunction("cast", {value}, {{"dtype", compute_dtype_}}, "", input.name + ":cast"));
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name == input.name) inputs[i] = seen;
    }
  }
  TP_ASSIGN_OR_RETURN(const std::vector<int> outputs, Call(model_.root, "", inputs, static_cast<int>(inputs.size())));
  const auto* graph = std::get_if<CompositeConfig>(&model_.root.config);
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string name = graph != nullptr ? graph->outputs[i].name : outputs.size() == 1 ? "output" : absl::StrCat(i);
    if (name.empty()) return Wrong("root", "an output has no name");
    flat_.outputs.emplace_back(std::move(name), outputs[i]);
  }
  TP_RETURN_IF_ERROR(ValidateGeneration(model_, flat_));
  return std::move(flat_);
}

}  // namespace

absl::StatusOr<FlatModel> FlattenModel(const ModelDef& model, DType compute_dtype) {
  if (!IsFloating(compute_dtype)) return Wrong("compute_dtype", "must be floating");
  return Flattener(model, compute_dtype).Run();
}

}  // namespace tp
