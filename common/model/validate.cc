#include "common/model/validate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/problems.h"
#include "common/base/status.h"
#include "common/model/initializer.h"
#include "common/model/kinds.h"

namespace tp {
namespace {

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

void NeedPositive(const std::string& field, const char* name, int64_t value, Problems* problems) {
  if (value < 1) problems->Invalid(absl::StrCat(field, ": ", name, " must be at least 1, given ", value));
}

void AtLeastZero(const std::string& field, const char* name, double value, Problems* problems) {
  if (value >= 0 && std::isfinite(value)) return;
  problems->Invalid(absl::StrCat(field, ": ", name, " is ", value, "; must be finite and at least 0"));
}

std::vector<StateDef> ConvStates(const ConvConfig& given, const std::string& field, Problems* problems) {
  ConvConfig conv = given;
  if (const absl::Status status = CompleteConv(&conv); !status.ok()) problems->Add(status, field);
  NeedPositive(field, "in_channels", conv.in_channels, problems);
  NeedPositive(field, "out_channels", conv.out_channels, problems);
  NeedPositive(field, "groups", conv.groups, problems);
  if (conv.groups < 1) return {};
  if (conv.in_channels % conv.groups != 0 || conv.out_channels % conv.groups != 0) {
    problems->Invalid(absl::StrCat(field, ": groups (", conv.groups, ") must divide in_channels (", conv.in_channels,
                                   ") and out_channels (", conv.out_channels, ")"));
  }
  Shape weight{conv.out_channels, conv.in_channels / conv.groups};
  weight.insert(weight.end(), conv.kernel_size.begin(), conv.kernel_size.end());
  std::vector<StateDef> states{{.name = "weight", .shape = weight, .dtype = {}}};
  if (conv.bias) states.push_back({.name = "bias", .shape = {conv.out_channels}, .dtype = {}});
  return states;
}

// What a leaf's configuration makes of states, before names and initializers are checked.
std::vector<StateDef> DefinedStates(const Module& module, const std::string& field, Problems* problems) {
  if (const auto* linear = std::get_if<LinearConfig>(&module.config)) {
    NeedPositive(field, "in_features", linear->in_features, problems);
    NeedPositive(field, "out_features", linear->out_features, problems);
    std::vector<StateDef> states{{.name = "weight", .shape = {linear->out_features, linear->in_features}, .dtype = {}}};
    if (linear->bias) states.push_back({.name = "bias", .shape = {linear->out_features}, .dtype = {}});
    return states;
  }
  if (const auto* embedding = std::get_if<EmbeddingConfig>(&module.config)) {
    NeedPositive(field, "num_embeddings", embedding->num_embeddings, problems);
    NeedPositive(field, "embedding_dim", embedding->embedding_dim, problems);
    return {{.name = "weight", .shape = {embedding->num_embeddings, embedding->embedding_dim}, .dtype = {}}};
  }
  if (const auto* norm = std::get_if<RMSNormConfig>(&module.config)) {
    NeedPositive(field, "dim", norm->dim, problems);
    return {{.name = "weight", .shape = {norm->dim}, .dtype = {}}};
  }
  if (const auto* norm = std::get_if<LayerNormConfig>(&module.config)) {
    if (norm->normalized_shape.empty()) {
      problems->Invalid(absl::StrCat(field, ": normalized_shape must not be empty"));
    }
    for (int64_t size : norm->normalized_shape) NeedPositive(field, "normalized_shape", size, problems);
    if (norm->bias && !norm->weight) {
      problems->Invalid(absl::StrCat(field, ": a LayerNorm without weight has no bias"));
    }
    std::vector<StateDef> states;
    if (norm->weight) states.push_back({.name = "weight", .shape = norm->normalized_shape, .dtype = {}});
    if (norm->bias) states.push_back({.name = "bias", .shape = norm->normalized_shape, .dtype = {}});
    return states;
  }
  if (const auto* conv = std::get_if<ConvConfig>(&module.config)) return ConvStates(*conv, field, problems);
  if (const auto* attention = std::get_if<AttentionConfig>(&module.config)) {
    NeedPositive(field, "heads", attention->heads, problems);
    NeedPositive(field, "kv_heads", attention->kv_heads, problems);
    NeedPositive(field, "head_dim", attention->head_dim, problems);
    if (attention->kv_heads >= 1 && attention->heads % attention->kv_heads != 0) {
      problems->Invalid(absl::StrCat(field, ": heads (", attention->heads, ") must be a multiple of kv_heads (",
                                     attention->kv_heads, ")"));
    }
    AtLeastZero(field, "rope_theta", attention->rope_theta, problems);
    return {};
  }
  if (const auto* dropout = std::get_if<DropoutConfig>(&module.config)) {
    if (!(dropout->p >= 0 && dropout->p <= 1)) {
      problems->Invalid(absl::StrCat(field, ": p is ", dropout->p, ", not in [0, 1]"));
    }
  }
  if (const auto* activation = std::get_if<ActivationConfig>(&module.config)) {
    const std::vector<std::string>& known = ActivationNames();
    if (std::find(known.begin(), known.end(), activation->function) == known.end()) {
      problems->Invalid(absl::StrCat(field, ": there is no activation '", Cut(activation->function),
                                     "'; nearest: ", JoinNames(NearestNames(activation->function, known))));
    }
  }
  if (const auto* composite = std::get_if<CompositeConfig>(&module.config)) return composite->states;
  return {};
}

void CheckName(const std::string& field, const char* what, const std::string& name, Problems* problems) {
  if (name.empty()) problems->Invalid(absl::StrCat(field, ": a ", what, " has no name"));
  if (name.find('.') != std::string::npos) {
    problems->Invalid(absl::StrCat(field, ": ", what, " name '", Cut(name), "' holds a dot"));
  }
}

}  // namespace

std::string FieldOf(const std::string& path) { return path.empty() ? "root" : absl::StrCat("root.", Cut(path, 160)); }

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
  Problems problems;
  std::vector<FlatState> states;
  std::vector<std::string> names;
  const std::vector<StateDef> definitions = DefinedStates(module, field, &problems);
  if (!problems.empty() && definitions.empty()) return problems.status();
  const bool sized = problems.empty();
  for (const StateDef& definition : definitions) {
    const std::string name = Cut(definition.name);
    CheckName(field, "state", definition.name, &problems);
    if (std::find(names.begin(), names.end(), definition.name) != names.end()) {
      problems.Invalid(absl::StrCat(field, ": two states have the name '", name, "'"));
    }
    for (const Module& child : module.children) {
      if (child.name != definition.name) continue;
      problems.Invalid(absl::StrCat(field, ": a state and a child have the name '", name, "'"));
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
    if (const absl::Status bytes = CheckedBytes(state.shape, state.dtype).status(); sized && !bytes.ok()) {
      problems.Add(bytes, absl::StrCat(field, ": state '", name, "'"));
    }
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
      problems.Invalid(absl::StrCat(field, ": param_init names '", Cut(name), "', which ", TypeNameOf(module),
                                    " does not have; nearest: ", JoinNames(NearestNames(name, names))));
    }
  }
  TP_RETURN_IF_ERROR(problems.status());
  return states;
}

absl::Status ValidateChildren(const Module& module, const std::string& path) {
  const std::string field = FieldOf(path);
  Problems problems;
  if (!module.children.empty() && !IsContainer(module)) {
    problems.Invalid(absl::StrCat(field, ": ", TypeNameOf(module), " can't have children"));
  }
  if (module.wrapped && IsContainer(module)) {
    problems.Invalid(absl::StrCat(field, ": only leaf kinds exist as Module(K), not ", KindOf(module)));
  }
  std::set<std::string> names;
  for (const Module& child : module.children) {
    CheckName(field, "child", child.name, &problems);
    if (!names.insert(child.name).second) {
      problems.Invalid(absl::StrCat(field, ": two children have the name '", Cut(child.name), "'"));
    }
  }
  return problems.status();
}

absl::Status ValidateInputs(const ModelDef& model) {
  const std::vector<GraphInput> arguments = ArgumentsOf(model.root);
  Problems problems;
  std::vector<std::string> names;
  for (const GraphInput& argument : arguments) names.push_back(argument.name);
  std::set<std::string> given, symbols;
  for (const ModelInput& input : model.inputs) {
    const std::string field = absl::StrCat("inputs '", Cut(input.name), "': ");
    if (std::find(names.begin(), names.end(), input.name) == names.end()) {
      problems.Invalid(absl::StrCat(
          field, "the root module has no such input; nearest: ", JoinNames(NearestNames(input.name, names))));
    }
    if (!given.insert(input.name).second) problems.Invalid(absl::StrCat(field, "named twice"));
    for (const Dim& dim : input.shape) {
      const std::vector<std::string> names_of_dim = dim.Symbols();
      symbols.insert(names_of_dim.begin(), names_of_dim.end());
      if (dim.IsConstant()) {
        if (dim.constant() >= 0) continue;
        problems.Invalid(absl::StrCat(field, "a size is negative: ", SymShapeText(input.shape)));
      } else if (names_of_dim.size() != 1 || dim != Dim::Symbol(names_of_dim[0])) {
        problems.Invalid(
            absl::StrCat(field, "a dim is a number or one symbol, given ", Cut(SymShapeText(input.shape))));
      } else if (names_of_dim[0] == "rows") {
        problems.Invalid(absl::StrCat(field, "the symbol 'rows' is reserved"));
      }
    }
  }
  for (const GraphInput& argument : arguments) {
    if (argument.optional || given.contains(argument.name)) continue;
    // What has another name is the one that is missing.
    if (std::any_of(given.begin(), given.end(), [&](const std::string& name) {
          return std::find(names.begin(), names.end(), name) == names.end();
        })) {
      continue;
    }
    problems.Invalid(absl::StrCat("inputs: the root module's input '", Cut(argument.name), "' has no dtype and shape"));
  }
  const std::vector<std::string> known(symbols.begin(), symbols.end());
  for (const auto& [symbol, limit] : model.symbol_limits) {
    const std::string field = absl::StrCat("symbol_limits '", Cut(symbol), "': ");
    if (!symbols.contains(symbol)) {
      problems.Invalid(absl::StrCat(field, "no input has it; nearest: ", JoinNames(NearestNames(symbol, known))));
    }
    if (limit < 1) problems.Invalid(absl::StrCat(field, "must be at least 1, given ", limit));
  }
  return problems.status();
}

}  // namespace tp
