#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

TypeOutputs InferRMSNorm(TypeInputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedFloating("rms_norm", inputs));
  TP_RETURN_IF_ERROR(NeedOneDType("rms_norm", inputs));
  const TensorType& input = *inputs[0];
  if (inputs[1]->shape.size() != 1 || input.shape.empty() || input.shape.back() != inputs[1]->shape[0]) {
    return Misfit("rms_norm: the weight must be [last dim of the input]", inputs);
  }
  return std::vector<TensorType>{input};
}

TypeOutputs InferLayerNorm(TypeInputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedFloating("layer_norm", inputs));
  TP_RETURN_IF_ERROR(NeedOneDType("layer_norm", inputs));
  const TensorType& input = *inputs[0];
  const int64_t dims = AttributeOr<int64_t>(attributes, "dims", 1);
  if (dims < 1 || dims > static_cast<int64_t>(input.shape.size())) {
    return Misfit(absl::StrCat("layer_norm over the last ", dims, " dims"), inputs);
  }
  const SymShape last(input.shape.end() - dims, input.shape.end());
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] != nullptr && inputs[i]->shape != last) {
      return Misfit(
          absl::StrCat("layer_norm: weight and bias must be ", SymShapeText(last), ", the last dims of the ", "input"),
          inputs);
    }
  }
  return std::vector<TensorType>{input};
}

FunctionDef Softmax(const std::string& name) {
  return {name,
          {{"input"}},
          {{"dim", int64_t{-1}}},
          [name](TypeInputs inputs, const Attributes& attributes) -> TypeOutputs {
            TP_RETURN_IF_ERROR(NeedFloating(name, inputs));
            TP_RETURN_IF_ERROR(DimOf(name, attributes, "dim", *inputs[0]).status());
            return std::vector<TensorType>{*inputs[0]};
          }};
}

}  // namespace

std::vector<FunctionDef> NormFunctions() {
  return {
      {"rms_norm", {{"input"}, {"weight"}}, {{"eps", 1e-6}}, InferRMSNorm},
      {"layer_norm",
       {{"input"}, {"weight", true}, {"bias", true}},
       {{"dims", int64_t{1}}, {"eps", 1e-5}},
       InferLayerNorm},
      Softmax("softmax"),
      Softmax("log_softmax"),
  };
}

}  // namespace tp
