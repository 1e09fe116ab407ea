#include "common/model/flatten.h"

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/flattener.h"
#include "common/model/validate.h"

namespace tp {
std::set<std::string> Flattener::SymbolsOf(const ModelDef& model) {
  std::set<std::string> symbols;
  for (const ModelInput& input : model.inputs) {
    for (const Dim& dim : input.shape) {
      for (std::string& symbol : dim.Symbols()) symbols.insert(std::move(symbol));
    }
  }
  return symbols;
}

void Flattener::Tell(const std::string& field, const absl::Status& status) {
  constexpr size_t kMost = 100;  // each looks for the nearest names
  problems_.Add(status, field);
  stopped_ |= problems_.size() >= kMost || builder_.IsFull();
}

void Flattener::AddModules(const Module& module, const std::string& path) {
  if (const absl::Status children = ValidateChildren(module, path); !children.ok()) Tell("", children);
  FlatModule flat{path, TypeNameOf(module), &module, {}, KindOf(module), {}, OutputStructure::kSingle};
  for (const GraphInput& argument : ArgumentsOf(module)) flat.argument_names.push_back(argument.name);
  module_index_[path] = flat_.modules.size();
  flat_.modules.push_back(std::move(flat));
  absl::StatusOr<std::vector<FlatState>> states = StatesOf(module, path, compute_dtype_);
  if (states.ok()) {
    for (FlatState& state : *states) {
      flat_.state_values[state.path] = builder_.NewValue(state.path, {state.dtype, ToSymShape(state.shape)});
      flat_.states.push_back(std::move(state));
    }
  } else {
    Tell("", states.status());
    stateless_.insert(path);
  }
  for (const Module& child : module.children) AddModules(child, JoinPath(path, child.name));
}

std::optional<Made> Flattener::Call(const Module& module, const std::string& path, const std::vector<Bound>& inputs,
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
  if (const absl::Status added = builder_.AddNode(std::move(enter)); !added.ok()) {
    Tell(FieldOf(path), added);
    return std::nullopt;
  }
  MaybeMade made = Forward(module, path, seen);
  if (!made.has_value()) return std::nullopt;
  FlatNode leave{FlatNode::Kind::kModuleOutput, "", path, made->values, {}, {}, 0, {}};
  for (size_t i = 0; i < made->values.size(); ++i) {
    leave.outputs.push_back(
        builder_.NewValue(made->values.size() == 1 ? absl::StrCat(path, ":output") : absl::StrCat(path, ":output", i),
                          builder_.TypeOf(made->values[i])));
  }
  FlatModule& flat = flat_.modules[module_index_.at(path)];
  flat.output_names = made->names;
  flat.structure = made->structure;
  made->values = leave.outputs;
  if (const absl::Status added = builder_.AddNode(std::move(leave)); !added.ok()) {
    Tell(FieldOf(path), added);
    return std::nullopt;
  }
  return made;
}

std::optional<Made> Flattener::Forward(const Module& module, const std::string& path,
                                       const std::vector<Bound>& inputs) {
  if (std::holds_alternative<CompositeConfig>(module.config)) return ForwardGraph(module, path, inputs);
  if (std::holds_alternative<SequentialConfig>(module.config)) return ForwardChain(module, path, inputs);
  if (!std::holds_alternative<ModuleListConfig>(module.config) &&
      !std::holds_alternative<ModuleDictConfig>(module.config)) {
    return ForwardLeaf(module, path, inputs);
  }
  Tell(FieldOf(path), absl::StrCat(TypeNameOf(module), " has no forward: call its children"));
  return std::nullopt;
}

std::optional<Made> Flattener::ForwardLeaf(const Module& module, const std::string& path,
                                           const std::vector<Bound>& inputs) {
  const std::vector<GraphInput> arguments = ArgumentsOf(module);
  std::vector<int> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].value >= 0) {
      values.push_back(inputs[i].value);
    } else if (!inputs[i].unknown) {
      Tell(FieldOf(path), absl::StrCat(arguments[i].name, " of ", TypeNameOf(module),
                                       inputs[i].literal.has_value() ? " must be a tensor" : " is omitted"));
    }
  }
  if (values.size() < inputs.size() || stateless_.contains(path)) return std::nullopt;
  const absl::StatusOr<int> output = builder_.AddLeaf(module, path, values);
  if (output.ok()) return Made::Single(*output);
  Tell(FieldOf(path), output.status());
  return std::nullopt;
}

std::optional<Made> Flattener::ForwardChain(const Module& module, const std::string& path,
                                            const std::vector<Bound>& inputs) {
  MaybeMade made;
  if (inputs[0].value >= 0) {
    made = Made::Single(inputs[0].value);
  } else if (!inputs[0].unknown) {
    Tell(FieldOf(path), "input of Sequential must be a tensor");
  }
  for (const Module& child : module.children) {
    if (stopped_) return std::nullopt;
    const std::vector<GraphInput> arguments = ArgumentsOf(child);
    size_t required = 0;
    for (const GraphInput& argument : arguments) required += argument.optional ? 0 : 1;
    if (made.has_value() && (required > made->values.size() || made->values.size() > arguments.size())) {
      Tell(FieldOf(path), absl::StrCat("Sequential: child '", Cut(child.name), "' takes ", arguments.size(),
                                       " values and gets ", made->values.size()));
      made.reset();
    }
    std::vector<Bound> values(arguments.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (!made.has_value()) {
        values[i].unknown = true;
      } else if (i < made->values.size()) {
        values[i].value = made->values[i];
      }
    }
    const int given = made.has_value() ? static_cast<int>(made->values.size()) : 1;
    made = Call(child, JoinPath(path, child.name), values, given);
  }
  return made;
}

absl::StatusOr<FlatModel> Flattener::Run() {
  AddModules(model_.root, "");
  if (const absl::Status given = ValidateInputs(model_); !given.ok()) {
    Tell("", given);
    inputs_wrong_ = true;
  }
  const std::vector<GraphInput> arguments = ArgumentsOf(model_.root);
  std::vector<Bound> inputs(arguments.size());
  for (Bound& input : inputs) input.unknown = inputs_wrong_;
  for (const ModelInput& input : model_.inputs) {
    if (inputs_wrong_) break;
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
  const MaybeMade made = Call(model_.root, "", inputs, static_cast<int>(inputs.size()));
  TP_RETURN_IF_ERROR(problems_.status());
  if (!made.has_value()) return absl::InternalError("a model with unknown values and no problem");
  for (size_t i = 0; i < made->values.size(); ++i) {
    int value = made->values[i];
    // Tokens are chosen from logits in F32, whatever the model computes in.
    if (model_.generation.has_value() && made->names[i] == model_.generation->logits_output &&
        ItemSize(builder_.TypeOf(value).dtype) == 2) {
      TP_ASSIGN_OR_RETURN(const std::vector<int> cast,
                          builder_.AddFunction({"cast", {value}, {{"dtype", DType::kF32}}, "", made->names[i]}));
      value = cast[0];
    }
    flat_.outputs.emplace_back(made->names[i], value);
  }
  TP_RETURN_IF_ERROR(ValidateGeneration(model_, flat_));
  return std::move(flat_);
}

absl::StatusOr<FlatModel> FlattenModel(const ModelDef& model, DType compute_dtype) {
  if (!IsFloating(compute_dtype)) return absl::InvalidArgumentError("compute_dtype: must be floating");
  return Flattener(model, compute_dtype).Run();
}

}  // namespace tp
