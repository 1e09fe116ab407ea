// FlatBuilder::AddLeaf: the forward of each leaf kind as function calls.
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/flat_builder.h"
#include "common/model/functions.h"
#include "common/model/validate.h"

namespace tp {
namespace {

// A function on the module's input and its states "weight" and "bias", as far as it has them.
struct WithStates {
  std::string function;
  bool weight = true, bias = false;
  Attributes attributes = {};
};

WithStates CallOf(const LinearConfig& linear) {
  Attributes attributes;
  if (linear.output_dtype.has_value()) attributes["output_dtype"] = std::string(DTypeName(*linear.output_dtype));
  return {"linear", true, linear.bias, std::move(attributes)};
}
WithStates CallOf(const LayerNormConfig& norm) {
  return {"layer_norm",
          norm.weight,
          norm.bias,
          {{"dims", static_cast<int64_t>(norm.normalized_shape.size())}, {"eps", norm.eps}}};
}
WithStates CallOf(const ConvConfig& conv) {
  return {conv.spatial_dims == 1 ? "conv1d" : "conv2d",
          true,
          conv.bias,
          {{"stride", conv.stride}, {"padding", conv.padding}, {"dilation", conv.dilation}, {"groups", conv.groups}}};
}

}  // namespace

absl::StatusOr<int> FlatBuilder::Attention(const AttentionConfig& config, const std::string& path,
                                           const std::vector<int>& inputs) {
  static constexpr const char* kNames[] = {"query", "key", "value"};
  std::vector<int> heads;
  auto add = [&](const char* function, std::vector<int> arguments, Attributes attributes,
                 const std::string& name) -> absl::StatusOr<int> {
    TP_ASSIGN_OR_RETURN(
        const std::vector<int> outputs,
        AddFunction({function, std::move(arguments), std::move(attributes), path, absl::StrCat(path, ":", name)}));
    return outputs[0];
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SymShape& shape = TypeOf(inputs[i]).shape;
    const int64_t count = i == 0 ? config.heads : config.kv_heads;
    if (shape.size() != 3 || shape[2] != Dim(count) * Dim(config.head_dim)) {
      return Wrong(absl::StrCat("Attention: ", kNames[i], " must be [batch, time, ", count, " * ", config.head_dim,
                                "], is ", SymShapeText(shape)));
    }
    TP_ASSIGN_OR_RETURN(int value, add("reshape", {inputs[i]},
                                       {{"shape", SymShape{shape[0], shape[1], Dim(count), Dim(config.head_dim)}}},
                                       absl::StrCat(kNames[i], "_heads")));
    if (config.rope_theta > 0 && i < 2) {
      TP_ASSIGN_OR_RETURN(value,
                          add("rotary", {value}, {{"theta", config.rope_theta}}, absl::StrCat(kNames[i], "_rotated")));
    }
    heads.push_back(value);
  }
  const SymShape shape = TypeOf(inputs[0]).shape;
  TP_ASSIGN_OR_RETURN(const int mixed,
                      add("attention", heads,
                          {{"causal", config.causal}, {"scale", config.scale}, {"cache", config.cache}}, "attention"));
  return add("reshape", {mixed}, {{"shape", shape}}, "merged");
}

absl::StatusOr<int> FlatBuilder::AddLeaf(const Module& module, const std::string& path,
                                         const std::vector<int>& inputs) {
  auto state = [&](const char* name) { return flat_->state_values.at(JoinPath(path, name)); };
  auto add = [&](const WithStates& call) -> absl::StatusOr<int> {
    FunctionCall made{call.function, {inputs[0]}, call.attributes, path, absl::StrCat(path, ":", call.function)};
    const size_t arguments = FindFunction(call.function)->arguments.size();
    if (arguments > 1) made.inputs.push_back(call.weight ? state("weight") : -1);
    if (arguments > 2) made.inputs.push_back(call.bias ? state("bias") : -1);
    TP_ASSIGN_OR_RETURN(const std::vector<int> outputs, AddFunction(made));
    return outputs[0];
  };
  if (const auto* linear = std::get_if<LinearConfig>(&module.config)) return add(CallOf(*linear));
  if (std::holds_alternative<EmbeddingConfig>(module.config)) return add({"embedding"});
  if (const auto* norm = std::get_if<RMSNormConfig>(&module.config)) {
    return add({"rms_norm", true, false, {{"eps", norm->eps}}});
  }
  if (const auto* norm = std::get_if<LayerNormConfig>(&module.config)) return add(CallOf(*norm));
  if (const auto* conv = std::get_if<ConvConfig>(&module.config)) return add(CallOf(*conv));
  if (const auto* attention = std::get_if<AttentionConfig>(&module.config)) return Attention(*attention, path, inputs);
  if (const auto* activation = std::get_if<ActivationConfig>(&module.config)) {
    return add({activation->function, false, false, activation->attributes});
  }
  return inputs[0];  // Identity and Dropout
}

}  // namespace tp
