#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

enum class Operands { kFloating, kNumbers, kNumbersOrBool, kBool };

absl::Status CheckOperands(const std::string& function, Operands operands, TypeInputs inputs) {
  bool all_bool = true, any_bool = false;
  for (const TensorType* type : inputs) {
    if (type == nullptr) continue;
    all_bool &= type->dtype == DType::kBool;
    any_bool |= type->dtype == DType::kBool;
  }
  switch (operands) {
    case Operands::kFloating:
      return NeedFloating(function, inputs);
    case Operands::kNumbers:
      return NeedNumbers(function, inputs);
    case Operands::kNumbersOrBool:
      if (any_bool) return all_bool ? absl::OkStatus() : NeedOneDType(function, inputs);
      return NeedNumbers(function, inputs);
    case Operands::kBool:
      if (!all_bool) return Misfit(absl::StrCat(function, " needs BOOL"), inputs);
      break;
  }
  return absl::OkStatus();
}

FunctionDef Unary(const std::string& name, Operands operands) {
  return {name, {{"input"}}, {}, [name, operands](TypeInputs inputs, const Attributes&) -> TypeOutputs {
            TP_RETURN_IF_ERROR(CheckOperands(name, operands, inputs));
            return std::vector<TensorType>{*inputs[0]};
          }};
}

TypeOutputs InferGelu(TypeInputs inputs, const Attributes& attributes) {
  const std::string approximate = AttributeOr<std::string>(attributes, "approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return Wrong(absl::StrCat("gelu: approximate is 'none' or 'tanh', not '", approximate, "'"));
  }
  TP_RETURN_IF_ERROR(NeedFloating("gelu", inputs));
  return std::vector<TensorType>{*inputs[0]};
}

// `scalar`: the function takes exactly one of `other` and the attribute `scalar`.
FunctionDef Binary(const std::string& name, Operands operands, bool scalar, bool makes_bool) {
  std::vector<FunctionAttribute> attributes;
  if (scalar) attributes.push_back({"scalar", std::numeric_limits<double>::quiet_NaN()});
  auto infer = [=](TypeInputs inputs, const Attributes& given) -> TypeOutputs {
    const double number = AttributeOr<double>(given, "scalar", std::numeric_limits<double>::quiet_NaN());
    if (scalar && (inputs[1] == nullptr) == std::isnan(number)) {
      return Misfit(absl::StrCat(name, " takes exactly one of 'other' and attribute 'scalar'"), inputs);
    }
    TP_RETURN_IF_ERROR(CheckOperands(name, operands, inputs));
    TP_RETURN_IF_ERROR(NeedOneDType(name, inputs));
    TensorType output = *inputs[0];
    if (inputs[1] != nullptr) {
      TP_ASSIGN_OR_RETURN(output.shape, BroadcastShapes(name, inputs[0]->shape, inputs[1]->shape, inputs));
    } else {
      if (output.dtype == DType::kBool) return Misfit(absl::StrCat(name, ": a BOOL tensor has no scalar"), inputs);
      if (IsInteger(output.dtype)) {
        TP_RETURN_IF_ERROR(NeedWhole(name, "scalar", number, output.dtype));
        if (number == 0 && (name == "floor_div" || name == "remainder")) {
          return Misfit(absl::StrCat(name, ": division by 0"), inputs);
        }
      }
    }
    if (makes_bool) output.dtype = DType::kBool;
    return std::vector<TensorType>{output};
  };
  return {name, {{"input"}, {"other", scalar}}, std::move(attributes), std::move(infer)};
}

TypeOutputs InferCast(TypeInputs inputs, const Attributes& attributes) {
  return std::vector<TensorType>{{AttributeOr<DType>(attributes, "dtype", DType::kF32), inputs[0]->shape}};
}

TypeOutputs InferWhere(TypeInputs inputs, const Attributes&) {
  if (inputs[0]->dtype != DType::kBool) return Misfit("where: the condition must be BOOL", inputs);
  if (inputs[1]->dtype != inputs[2]->dtype) {
    return Misfit("where: input and other must have one dtype (cast one of them)", inputs);
  }
  TP_ASSIGN_OR_RETURN(SymShape shape, BroadcastShapes("where", inputs[1]->shape, inputs[2]->shape, inputs));
  TP_ASSIGN_OR_RETURN(shape, BroadcastShapes("where", inputs[0]->shape, shape, inputs));
  return std::vector<TensorType>{{inputs[1]->dtype, std::move(shape)}};
}

TypeOutputs InferMaskedFill(TypeInputs inputs, const Attributes& attributes) {
  if (inputs[1]->dtype != DType::kBool) return Misfit("masked_fill: the mask must be BOOL", inputs);
  TP_RETURN_IF_ERROR(NeedNumbers("masked_fill", inputs.subspan(0, 1)));
  const DType dtype = inputs[0]->dtype;
  if (IsInteger(dtype)) {
    TP_RETURN_IF_ERROR(NeedWhole("masked_fill", "value", AttributeOr<double>(attributes, "value", 0), dtype));
  }
  TP_ASSIGN_OR_RETURN(const SymShape shape, BroadcastShapes("masked_fill", inputs[0]->shape, inputs[1]->shape, inputs));
  if (shape != inputs[0]->shape) return Misfit("masked_fill: the mask must broadcast to the input's shape", inputs);
  return std::vector<TensorType>{*inputs[0]};
}

}  // namespace

std::vector<FunctionDef> ElementwiseFunctions() {
  std::vector<FunctionDef> functions;
  for (const char* name : {"neg", "abs"}) functions.push_back(Unary(name, Operands::kNumbers));
  for (const char* name : {"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "silu", "relu"}) {
    functions.push_back(Unary(name, Operands::kFloating));
  }
  functions.push_back({"gelu", {{"input"}}, {{"approximate", std::string("none")}}, InferGelu});
  functions.push_back(Unary("logical_not", Operands::kBool));
  functions.push_back({"cast", {{"input"}}, {{"dtype", DType::kF32, true}}, InferCast});
  for (const char* name : {"add", "sub", "mul", "maximum", "minimum", "floor_div", "remainder"}) {
    functions.push_back(Binary(name, Operands::kNumbers, true, false));
  }
  for (const char* name : {"div", "pow"}) functions.push_back(Binary(name, Operands::kFloating, true, false));
  for (const char* name : {"eq", "ne"}) functions.push_back(Binary(name, Operands::kNumbersOrBool, true, true));
  for (const char* name : {"lt", "le", "gt", "ge"}) functions.push_back(Binary(name, Operands::kNumbers, true, true));
  for (const char* name : {"logical_and", "logical_or"}) {
    functions.push_back(Binary(name, Operands::kBool, false, true));
  }
  functions.push_back({"where", {{"condition"}, {"input"}, {"other"}}, {}, InferWhere});
  functions.push_back({"masked_fill", {{"input"}, {"mask"}}, {{"value", 0.0, true}}, InferMaskedFill});
  return functions;
}

}  // namespace tp
