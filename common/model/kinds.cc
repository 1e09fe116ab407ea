#include "common/model/kinds.h"

#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/model/function.h"

namespace tp {
namespace {

constexpr int64_t kNeeded = 0;

int64_t Integer(const Attributes& fields, const char* name) { return std::get<int64_t>(fields.at(name)); }
double Number(const Attributes& fields, const char* name) { return std::get<double>(fields.at(name)); }
bool Flag(const Attributes& fields, const char* name) { return std::get<bool>(fields.at(name)); }
std::vector<int64_t> Integers(const Attributes& fields, const char* name) {
  return std::get<std::vector<int64_t>>(fields.at(name));
}

struct Kind {
  std::string name;
  std::vector<FunctionAttribute> fields;
  std::function<absl::StatusOr<ModuleConfig>(const Attributes& fields)> make;
  bool container = false;
};

template <typename Config>
Kind Plain(const char* name, bool container) {
  return {name, {}, [](const Attributes&) { return ModuleConfig(Config{}); }, container};
}

Kind Activation(const char* name, const char* function, std::vector<FunctionAttribute> fields) {
  return {name, std::move(fields), [function](const Attributes& given) {
            return ModuleConfig(ActivationConfig{function, given});
          }};
}

Kind Conv(const char* name, int spatial_dims) {
  const std::vector<int64_t> none;
  return {name,
          {{"in_channels", kNeeded, true},
           {"out_channels", kNeeded, true},
           {"kernel_size", none, true},
           {"stride", none},
           {"padding", none},
           {"dilation", none},
           {"groups", int64_t{1}},
           {"bias", true}},
          [spatial_dims](const Attributes& fields) -> absl::StatusOr<ModuleConfig> {
            ConvConfig config{spatial_dims,
                              Integer(fields, "in_channels"),
                              Integer(fields, "out_channels"),
                              Integers(fields, "kernel_size"),
                              Integers(fields, "stride"),
                              Integers(fields, "padding"),
                              Integers(fields, "dilation"),
                              Integer(fields, "groups"),
                              Flag(fields, "bias")};
            TP_RETURN_IF_ERROR(CompleteConv(&config));
            return ModuleConfig(std::move(config));
          }};
}

absl::StatusOr<ModuleConfig> MakeLinear(const Attributes& fields) {
  LinearConfig config{Integer(fields, "in_features"), Integer(fields, "out_features"), Flag(fields, "bias"), {}};
  const std::string& dtype = std::get<std::string>(fields.at("output_dtype"));
  if (!dtype.empty()) {
    TP_ASSIGN_OR_RETURN(config.output_dtype, ParseDType(dtype));
  }
  return ModuleConfig(config);
}

absl::StatusOr<ModuleConfig> MakeAttention(const Attributes& fields) {
  AttentionConfig config{Integer(fields, "heads"), Integer(fields, "kv_heads"),  Integer(fields, "head_dim"),
                         Flag(fields, "causal"),   Number(fields, "rope_theta"), Number(fields, "scale"),
                         Flag(fields, "cache")};
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  return ModuleConfig(config);
}

const std::vector<Kind>& Kinds() {
  static const auto* kinds = new std::vector<Kind>{
      {"Linear",
       {{"in_features", kNeeded, true},
        {"out_features", kNeeded, true},
        {"bias", true},
        {"output_dtype", std::string()}},
       MakeLinear},
      {"Embedding",
       {{"num_embeddings", kNeeded, true}, {"embedding_dim", kNeeded, true}},
       [](const Attributes& fields) {
         return ModuleConfig(EmbeddingConfig{Integer(fields, "num_embeddings"), Integer(fields, "embedding_dim")});
       }},
      {"RMSNorm",
       {{"dim", kNeeded, true}, {"eps", 1e-6}},
       [](const Attributes& fields) {
         return ModuleConfig(RMSNormConfig{Integer(fields, "dim"), Number(fields, "eps")});
       }},
      {"LayerNorm",
       {{"normalized_shape", std::vector<int64_t>(), true}, {"eps", 1e-5}, {"weight", true}, {"bias", true}},
       [](const Attributes& fields) {
         return ModuleConfig(LayerNormConfig{Integers(fields, "normalized_shape"), Number(fields, "eps"),
                                             Flag(fields, "weight"), Flag(fields, "weight") && Flag(fields, "bias")});
       }},
      Conv("Conv1d", 1),
      Conv("Conv2d", 2),
      {"Dropout",
       {{"p", 0.5}},
       [](const Attributes& fields) { return ModuleConfig(DropoutConfig{Number(fields, "p")}); }},
      {"Attention",
       {{"heads", kNeeded, true},
        {"kv_heads", int64_t{0}},
        {"head_dim", kNeeded, true},
        {"causal", true},
        {"rope_theta", 0.0},
        {"scale", 0.0},
        {"cache", true}},
       MakeAttention},
      {"Activation",
       {{"function", std::string(), true}},
       [](const Attributes& fields) {
         return ModuleConfig(ActivationConfig{std::get<std::string>(fields.at("function")), {}});
       }},
      Activation("ReLU", "relu", {}),
      Activation("GELU", "gelu", {{"approximate", std::string("none")}}),
      Activation("SiLU", "silu", {}),
      Activation("Sigmoid", "sigmoid", {}),
      Activation("Tanh", "tanh", {}),
      Activation("Softmax", "softmax", {{"dim", int64_t{-1}}}),
      Activation("LogSoftmax", "log_softmax", {{"dim", int64_t{-1}}}),
      Plain<IdentityConfig>("Identity", false),
      Plain<SequentialConfig>("Sequential", true),
      Plain<ModuleListConfig>("ModuleList", true),
      Plain<ModuleDictConfig>("ModuleDict", true),
  };
  return *kinds;
}

absl::Status Complete(const char* name, size_t count, int64_t fallback, int64_t least, std::vector<int64_t>* values) {
  if (values->empty() && fallback >= least) values->assign(count, fallback);
  if (values->size() == 1) values->assign(count, values->front());
  if (values->size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(name, " needs ",
                                                   count == 1 ? "one number" : absl::StrCat("one number or ", count),
                                                   ", given ", values->size()));
  }
  for (int64_t value : *values) {
    if (value < least || value > (int64_t{1} << 40)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " must be at least ", least, ", given ", value));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NamedConfig> ConfigOfKind(const std::string& kind, const Attributes& fields, bool has_children) {
  NamedConfig named;
  std::string name = kind;
  if (absl::StartsWith(kind, "Module(") && absl::EndsWith(kind, ")")) {
    name = kind.substr(7, kind.size() - 8);
    named.wrapped = true;
  }
  for (const Kind& known : Kinds()) {
    if (known.name != name || (named.wrapped && known.container)) continue;
    TP_ASSIGN_OR_RETURN(const Attributes complete, CheckAttributes({name, {}, known.fields, {}}, fields));
    TP_ASSIGN_OR_RETURN(named.config, known.make(complete));
    return named;
  }
  if (has_children) return absl::InvalidArgumentError(absl::StrCat("Unknown container kind: ", Cut(kind)));
  return absl::InvalidArgumentError(
      absl::StrCat("there is no kind '", Cut(kind), "'; nearest: ", JoinNames(NearestNames(name, KindNames()))));
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const Kind& kind : Kinds()) names.push_back(kind.name);
  return names;
}

absl::Status CompleteConv(ConvConfig* config) {
  const size_t count = static_cast<size_t>(config->spatial_dims);
  TP_RETURN_IF_ERROR(Complete("kernel_size", count, 0, 1, &config->kernel_size));
  TP_RETURN_IF_ERROR(Complete("stride", count, 1, 1, &config->stride));
  TP_RETURN_IF_ERROR(Complete("padding", count, 0, 0, &config->padding));
  return Complete("dilation", count, 1, 1, &config->dilation);
}

const std::vector<std::string>& ActivationNames() {
  static const auto* names =
      new std::vector<std::string>{"gelu", "log_softmax", "relu", "sigmoid", "silu", "softmax", "tanh"};
  return *names;
}

}  // namespace tp
