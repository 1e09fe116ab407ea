#include "common/model/validate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/initializer.h"
#include "common/model/kinds.h"

namespace tp {
namespace {

absl::Status Wrong(const std::string& field, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", text));
}

struct TypeName {
  std::string operator()(const CompositeConfig& config) const {
    return config.type_name.empty() ? "Module" : config.type_name;
  }
  std::string operator()(const SequentialConfig&) const { return "Sequential"; }
  std::string operator()(const ModuleListConfig&) const { return "ModuleList"; }
  std::string operator()(const ModuleDictConfig&) const { return "ModuleDict"; }
  std::string operator()(const LinearConfig&) const { return "Linear"; }
  std::string operator()(const EmbeddingConfig&) const { return "Embedding"; }
  std::string operator()(const RMSNormConfig&) const { return "RMSNorm"; }
  std::string operator()(const LayerNormConfig&) const { return "LayerNorm"; }
  std::string operator()(const ConvConfig& config) const { return absl::StrCat("Conv", config.spatial_dims, "d"); }
  std::string operator()(const DropoutConfig&) const { return "Dropout"; }
  std::string operator()(const AttentionConfig&) const { return "Attention"; }
  std::string operator()(const ActivationConfig&) const { return "Activation"; }
  std::string operator()(const IdentityConfig&) const { return "Identity"; }
};

bool IsContainer(const Module& module) {
  return std::holds_alternative<CompositeConfig>(module.config) ||
         std::holds_alternative<SequentialConfig>(module.config) ||
         std::holds_alternative<ModuleListConfig>(module.config) ||
         std::holds_alternative<ModuleDictConfig>(module.config);
}

absl::Status NeedPositive(const std::string& field, const char* name, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return Wrong(field, absl::StrCat(name, " must be at least 1, given ", value));
}

absl::Status AtLeastZero(const std::string& field, const char* name, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Wrong(field, absl::StrCat(name, " is ", value, "; must be finite and at least 0"));
}

absl::StatusOr<std::vector<StateDef>> ConvStates(const ConvConfig& given, const std::string& field) {
  ConvConfig conv = given;
  if (absl::Status status = CompleteConv(&conv); !status.ok()) return Annotate(status, field);
  TP_RETURN_IF_ERROR(NeedPositive(field, "in_channels", conv.in_channels));
  TP_RETURN_IF_ERROR(NeedPositive(field, "out_channels", conv.out_channels));
  TP_RETURN_IF_ERROR(NeedPositive(field, "groups", conv.groups));
  if (conv.in_channels % conv.groups != 0 || conv.out_channels % conv.groups != 0) {
    return Wrong(field, absl::StrCat("groups (", conv.groups, ") must divide in_channels (", conv.in_channels,
                                     ") and out_channels (", conv.out_channels, ")"));
  }
  Shape weight{conv.out_channels, conv.in_channels / conv.groups};
  weight.insert(weight.end(), conv.kernel_size.begin(), conv.kernel_size.end());
  std::vector<StateDef> states{{.name = "weight", .shape = weight, .dtype = {}}};
  if (conv.bias) states.push_back({.name = "bias", .shape = {conv.out_channels}, .dtype = {}});
  return states;
}

// What a leaf's configuration makes of states, before names and initializers are checked.
absl::StatusOr<std::vector<StateDef>> DefinedStates(const Module& module, const std::string& field) {
  if (const auto* linear = std::get_if<LinearConfig>(&module.config)) {
    TP_RETURN_IF_ERROR(NeedPositive(field, "in_features", linear->in_features));
    TP_RETURN_IF_ERROR(NeedPositive(field, "out_features", linear->out_features));
    std::vector<StateDef> states{{.name = "weight", .shape = {linear->out_features, linear->in_features}, .dtype = {}}};
    if (linear->bias) states.push_back({.name = "bias", .shape = {linear->out_features}, .dtype = {}});
    return states;
  }
  if (const auto* embedding = std::get_if<EmbeddingConfig>(&module.config)) {
    TP_RETURN_IF_ERROR(NeedPositive(field, "num_embeddings", embedding->num_embeddings));
    TP_RETURN_IF_ERROR(NeedPositive(field, "embedding_dim", embedding->embedding_dim));
    return std::vector<StateDef>{
        {.name = "weight", .shape = {embedding->num_embeddings, embedding->embedding_dim}, .dtype = {}}};
  }
  if (const auto* norm = std::get_if<RMSNormConfig>(&module.config)) {
    TP_RETURN_IF_ERROR(NeedPositive(field, "dim", norm->dim));
    return std::vector<StateDef>{{.name = "weight", .shape = {norm->dim}, .dtype = {}}};
  }
  if (const auto* norm = std::get_if<LayerNormConfig>(&module.config)) {
    if (norm->normalized_shape.empty()) return Wrong(field, "normalized_shape must not be empty");
    for (int64_t size : norm->normalized_shape) TP_RETURN_IF_ERROR(NeedPositive(field, "normalized_shape", size));
    if (norm->bias && !norm->weight) return Wrong(field, "a LayerNorm without weight has no bias");
    std::vector<StateDef> states;
    if (norm->weight) states.push_back({.name = "weight", .shape = norm->normalized_shape, .dtype = {}});
    if (norm->bias) states.push_back({.name = "bias", .shape = norm->normalized_shape, .dtype = {}});
    return states;
  }
  if (const auto* conv = std::get_if<ConvConfig>(&module.config)) return ConvStates(*conv, field);
  if (const auto* attention = std::get_if<AttentionConfig>(&module.config)) {
    TP_RETURN_IF_ERROR(NeedPositive(field, "heads", attention->heads));
    TP_RETURN_IF_ERROR(NeedPositive(field, "kv_heads", attention->kv_heads));
    TP_RETURN_IF_ERROR(NeedPositive(field, "head_dim", attention->head_dim));
    if (attention->heads % attention->kv_heads != 0) {
      return Wrong(field, absl::StrCat("heads (", attention->heads, ") must be a multiple of kv_heads (",
                                       attention->kv_heads, ")"));
    }
    TP_RETURN_IF_ERROR(AtLeastZero(field, "rope_theta", attention->rope_theta));
    return std::vector<StateDef>{};
  }
  if (const auto* dropout = std::get_if<DropoutConfig>(&module.config)) {
    if (!(dropout->p >= 0 && dropout->p <= 1))
      return Wrong(field, absl::StrCat("p is ", dropout->p, ", not in [0, 1]"));
  }
  if (const auto* composite = std::get_if<CompositeConfig>(&module.config)) return composite->states;
  return std::vector<StateDef>{};
}

absl::Status CheckName(const std::string& field, const char* what, const std::string& name) {
  if (name.empty()) return Wrong(field, absl::StrCat("a ", what, " has no name"));
  if (name.find('.') != std::string::npos) {
    return Wrong(field, absl::StrCat(what, " name '", name, "' holds a dot"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FieldOf(const std::string& path) { return path.empty() ? "root" : absl::StrCat("root.", path); }

std::string JoinPath(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

std::string KindOf(const Module& module) { return std::visit(TypeName{}, module.config); }

std::string TypeNameOf(const Module& module) {
  return module.wrapped ? absl::StrCat("Module(", KindOf(module), ")") : KindOf(module);
}

std::vector<GraphInput> ArgumentsOf(const Module& module) {
  if (const auto* composite = std::get_if<CompositeConfig>(&module.config)) return composite->inputs;
  if (std::holds_alternative<ModuleListConfig>(module.config) ||
      std::holds_alternative<ModuleDictConfig>(module.config)) {
    return {};
  }
  if (std::holds_alternative<AttentionConfig>(module.config)) {
    return {{.name = "query"}, {.name = "key"}, {.name = "value"}};
  }
  return {{.name = "input"}};
}

absl::StatusOr<std::vector<FlatState>> StatesOf(const Module& module, const std::string& path, DType compute_dtype) {
  const std::string field = FieldOf(path);
  TP_ASSIGN_OR_RETURN(const std::vector<StateDef> definitions, DefinedStates(module, field));
  std::vector<FlatState> states;
  std::vector<std::string> names;
  for (const StateDef& definition : definitions) {
    TP_RETURN_IF_ERROR(CheckName(field, "state", definition.name));
    if (std::find(names.begin(), names.end(), definition.name) != names.end()) {
      return Wrong(field, absl::StrCat("two states have the name '", definition.name, "'"));
    }
    for (const Module& child : module.children) {
      if (child.name == definition.name) {
        return Wrong(field, absl::StrCat("a state and a child have the name '", child.name, "'"));
      }
    }
    names.push_back(definition.name);
    FlatState state{.path = JoinPath(path, definition.name),
                    .module_path = path,
                    .name = definition.name,
                    .shape = definition.shape,
                    .dtype = definition.dtype.value_or(compute_dtype),
                    .buffer = definition.buffer,
                    .persistent = definition.persistent,
                    .requires_grad = definition.requires_grad,
                    .has_initializer = false,
                    .initializer = {}};
    absl::StatusOr<int64_t> bytes = CheckedBytes(state.shape, state.dtype);
    if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat(field, ": state '", state.name, "'"));
    auto given = module.param_init.find(state.name);
    if (given != module.param_init.end()) {
      state.initializer = given->second;
      state.has_initializer = true;
    } else {
      // A param_init stands in place of all defaults of the kind.
      state.has_initializer =
          module.param_init.empty() && DefaultInitializer(module.config, state.name, &state.initializer);
    }
    states.push_back(std::move(state));
  }
  for (const auto& [name, initializer] : module.param_init) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return Wrong(field, absl::StrCat("param_init names '", name, "', which ", TypeNameOf(module),
                                       " does not have; nearest: ", JoinNames(NearestNames(name, names))));
    }
  }
  return states;
}

absl::Status ValidateChildren(const Module& module, const std::string& path) {
  const std::string field = FieldOf(path);
  if (!module.children.empty() && !IsContainer(module)) {
    return Wrong(field, absl::StrCat(TypeNameOf(module), " can't have children"));
  }
  if (module.wrapped && IsContainer(module)) {
    return Wrong(field, absl::StrCat("only leaf kinds exist as Module(K), not ", KindOf(module)));
  }
  std::set<std::string> names;
  for (const Module& child : module.children) {
    TP_RETURN_IF_ERROR(CheckName(field, "child", child.name));
    if (!names.insert(child.name).second)
      return Wrong(field, absl::StrCat("two children have the name '", child.name, "'"));
  }
  return absl::OkStatus();
}

absl::Status ValidateInputs(const ModelDef& model) {
  const std::vector<GraphInput> arguments = ArgumentsOf(model.root);
  std::vector<std::string> names;
  for (const GraphInput& argument : arguments) names.push_back(argument.name);
  std::set<std::string> given, symbols;
  for (const ModelInput& input : model.inputs) {
    const std::string field = absl::StrCat("inputs '", input.name, "'");
    if (std::find(names.begin(), names.end(), input.name) == names.end()) {
      return Wrong(field, absl::StrCat("the root module has no such input; nearest: ",
                                       JoinNames(NearestNames(input.name, names))));
    }
    if (!given.insert(input.name).second) return Wrong(field, "named twice");
    for (const Dim& dim : input.shape) {
      if (dim.IsConstant()) {
        if (dim.constant() < 0) return Wrong(field, absl::StrCat("a size is negative: ", SymShapeText(input.shape)));
        continue;
      }
      const std::vector<std::string> names_of_dim = dim.Symbols();
      if (names_of_dim.size() != 1 || dim != Dim::Symbol(names_of_dim[0])) {
        return Wrong(field, absl::StrCat("a dim is a number or one symbol, given ", SymShapeText(input.shape)));
      }
      if (names_of_dim[0] == "rows") return Wrong(field, "the symbol 'rows' is reserved");
      symbols.insert(names_of_dim[0]);
    }
  }
  for (const GraphInput& argument : arguments) {
    if (!argument.optional && !given.contains(argument.name)) {
      return Wrong("inputs", absl::StrCat("the root module's input '", argument.name, "' has no dtype and shape"));
    }
  }
  const std::vector<std::string> known(symbols.begin(), symbols.end());
  for (const auto& [symbol, limit] : model.symbol_limits) {
    const std::string field = absl::StrCat("symbol_limits '", symbol, "'");
    if (!symbols.contains(symbol)) {
      return Wrong(field, absl::StrCat("no input has it; nearest: ", JoinNames(NearestNames(symbol, known))));
    }
    if (limit < 1) return Wrong(field, absl::StrCat("must be at least 1, given ", limit));
  }
  return absl::OkStatus();
}

}  // namespace tp
