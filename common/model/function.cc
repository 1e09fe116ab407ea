#include "common/model/function.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/tensor/shape.h"

namespace tp {
namespace {

using Inputs = absl::Span<const TensorType* const>;
using Outputs = absl::StatusOr<std::vector<TensorType>>;

std::string TypeText(const TensorType& type) {
  return absl::StrCat(std::string(DTypeName(type.dtype)), SymShapeText(type.shape));
}

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

// "INPUTS: F32[2, 3] and F32[4]" put behind what is wrong.
absl::Status Misfit(const std::string& text, Inputs inputs) {
  std::vector<std::string> types;
  for (const TensorType* type : inputs) {
    if (type != nullptr) types.push_back(TypeText(*type));
  }
  std::string given;
  for (size_t i = 0; i < types.size(); ++i) absl::StrAppend(&given, i == 0 ? "" : ", ", types[i]);
  return Wrong(absl::StrCat(text, "; given ", given));
}

absl::Status NeedFloating(Inputs inputs) {
  for (const TensorType* type : inputs) {
    if (type != nullptr && !IsFloating(type->dtype)) return Misfit("a floating dtype is needed", inputs);
  }
  return absl::OkStatus();
}

absl::Status NeedOneDType(Inputs inputs) {
  TP_RETURN_IF_ERROR(NeedFloating(inputs));
  for (const TensorType* type : inputs) {
    if (type != nullptr && type->dtype != inputs[0]->dtype) {
      return Misfit("all arguments must have one dtype (cast one of them)", inputs);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> DimOf(const Attributes& attributes, const char* name, const TensorType& input) {
  return NormalizeDim(AttributeOr<int64_t>(attributes, name, -1), static_cast<int>(input.shape.size()));
}

Outputs InferLinear(Inputs inputs, const Attributes& attributes) {
  const TensorType& input = *inputs[0];
  const TensorType& weight = *inputs[1];
  TP_RETURN_IF_ERROR(NeedOneDType(inputs));
  if (weight.shape.size() != 2) return Misfit("linear needs a weight [out, in]", inputs);
  if (input.shape.empty() || input.shape.back() != weight.shape[1]) {
    return Misfit("linear: the input's last dim must be the weight's dim 1", inputs);
  }
  if (inputs[2] != nullptr && (inputs[2]->shape.size() != 1 || inputs[2]->shape[0] != weight.shape[0])) {
    return Misfit("linear: the bias must be [out]", inputs);
  }
  TensorType output{input.dtype, input.shape};
  output.shape.back() = weight.shape[0];
  const std::string dtype = AttributeOr<std::string>(attributes, "output_dtype", "");
  if (!dtype.empty()) {
    TP_ASSIGN_OR_RETURN(output.dtype, ParseDType(dtype));
    if (!IsFloating(output.dtype)) return Wrong("linear: output_dtype must be floating");
  }
  return std::vector<TensorType>{output};
}

Outputs InferEmbedding(Inputs inputs, const Attributes&) {
  const TensorType& ids = *inputs[0];
  const TensorType& weight = *inputs[1];
  if (ids.dtype != DType::kI64 && ids.dtype != DType::kI32) return Misfit("embedding needs I64 or I32 ids", inputs);
  if (weight.shape.size() != 2 || !IsFloating(weight.dtype)) {
    return Misfit("embedding needs a floating weight [num_embeddings, embedding_dim]", inputs);
  }
  TensorType output{weight.dtype, ids.shape};
  output.shape.push_back(weight.shape[1]);
  return std::vector<TensorType>{output};
}

Outputs InferRMSNorm(Inputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedOneDType(inputs));
  const TensorType& input = *inputs[0];
  if (inputs[1]->shape.size() != 1 || input.shape.empty() || input.shape.back() != inputs[1]->shape[0]) {
    return Misfit("rms_norm: the weight must be [last dim of the input]", inputs);
  }
  return std::vector<TensorType>{input};
}

Outputs InferRotary(Inputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedFloating(inputs));
  const SymShape& shape = inputs[0]->shape;
  if (shape.size() != 4) return Misfit("rotary needs [batch, time, heads, head_dim]", inputs);
  if (!shape[3].IsConstant() || shape[3].constant() % 2 != 0) return Misfit("rotary needs an even head_dim", inputs);
  return std::vector<TensorType>{*inputs[0]};
}

Outputs InferAttention(Inputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedOneDType(inputs));
  const SymShape& query = inputs[0]->shape;
  const SymShape& key = inputs[1]->shape;
  if (query.size() != 4 || key.size() != 4 || inputs[2]->shape != key) {
    return Misfit("attention needs [batch, time, heads, head_dim] each, key and value alike", inputs);
  }
  if (query[0] != key[0] || query[1] != key[1] || query[3] != key[3]) {
    return Misfit("attention: batch, time and head_dim of query and key must be equal", inputs);
  }
  if (!query[2].IsConstant() || !key[2].IsConstant() || !key[3].IsConstant() || key[2].constant() < 1 ||
      query[2].constant() % key[2].constant() != 0) {
    return Misfit("attention: the number of query heads must be a multiple of the number of key-value heads", inputs);
  }
  return std::vector<TensorType>{*inputs[0]};
}

Outputs InferUnary(Inputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedFloating(inputs));
  return std::vector<TensorType>{*inputs[0]};
}

Outputs InferGelu(Inputs inputs, const Attributes& attributes) {
  const std::string approximate = AttributeOr<std::string>(attributes, "approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return Wrong(absl::StrCat("gelu: approximate is 'none' or 'tanh', not '", approximate, "'"));
  }
  return InferUnary(inputs, attributes);
}

Outputs InferBinary(Inputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedOneDType(inputs));
  const SymShape& a = inputs[0]->shape;
  const SymShape& b = inputs[1]->shape;
  TensorType output{inputs[0]->dtype, SymShape(std::max(a.size(), b.size()))};
  for (size_t back = 1; back <= output.shape.size(); ++back) {
    const Dim left = back <= a.size() ? a[a.size() - back] : Dim(1);
    const Dim right = back <= b.size() ? b[b.size() - back] : Dim(1);
    if (left != right && left != Dim(1) && right != Dim(1)) return Misfit("the shapes do not broadcast", inputs);
    output.shape[output.shape.size() - back] = left == Dim(1) ? right : left;
  }
  return std::vector<TensorType>{output};
}

Outputs InferSoftmax(Inputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedFloating(inputs));
  TP_RETURN_IF_ERROR(DimOf(attributes, "dim", *inputs[0]).status());
  return std::vector<TensorType>{*inputs[0]};
}

Outputs InferReshape(Inputs inputs, const Attributes& attributes) {
  const TensorType& input = *inputs[0];
  TensorType output{input.dtype, AttributeOr<SymShape>(attributes, "shape", {})};
  const std::string wanted = SymShapeText(output.shape);
  int free = -1;
  for (size_t i = 0; i < output.shape.size(); ++i) {
    if (!output.shape[i].IsConstant() || output.shape[i].constant() >= 0) continue;
    if (output.shape[i] != Dim(-1) || free >= 0) return Wrong(absl::StrCat("reshape to ", wanted, ": at most one -1"));
    free = static_cast<int>(i);
    output.shape[i] = Dim(1);
  }
  const Dim elements = ProductOf(input.shape);
  const std::string misfit = absl::StrCat("reshape to ", wanted, " does not keep the number of elements (sizes are ",
                                          "those of the whole tensor, not of one rank's shard)");
  if (free >= 0) {
    const Dim rest = ProductOf(output.shape);
    if (rest == Dim(0)) return Misfit(misfit, inputs);
    std::optional<Dim> quotient = elements.DividedBy(rest);
    if (!quotient.has_value()) return Misfit(misfit, inputs);
    output.shape[free] = *quotient;
  }
  if (ProductOf(output.shape) != elements) return Misfit(misfit, inputs);
  return std::vector<TensorType>{output};
}

Outputs InferTranspose(Inputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim0, DimOf(attributes, "dim0", *inputs[0]));
  TP_ASSIGN_OR_RETURN(const int dim1, DimOf(attributes, "dim1", *inputs[0]));
  TensorType output = *inputs[0];
  std::swap(output.shape[dim0], output.shape[dim1]);
  return std::vector<TensorType>{output};
}

Outputs InferArgmax(Inputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedFloating(inputs));
  TP_ASSIGN_OR_RETURN(const int dim, DimOf(attributes, "dim", *inputs[0]));
  TensorType output{DType::kI64, inputs[0]->shape};
  output.shape.erase(output.shape.begin() + dim);
  return std::vector<TensorType>{output};
}

Outputs InferCast(Inputs inputs, const Attributes& attributes) {
  return std::vector<TensorType>{{AttributeOr<DType>(attributes, "dtype", DType::kF32), inputs[0]->shape}};
}

const std::vector<FunctionDef>& Functions() {
  static const auto* functions = new std::vector<FunctionDef>{
      {"linear", {{"input"}, {"weight"}, {"bias", true}}, {{"output_dtype", std::string()}}, InferLinear},
      {"embedding", {{"input"}, {"weight"}}, {}, InferEmbedding},
      {"rms_norm", {{"input"}, {"weight"}}, {{"eps", 1e-6}}, InferRMSNorm},
      {"rotary", {{"input"}}, {{"theta", 10000.0}}, InferRotary},
      {"attention", {{"query"}, {"key"}, {"value"}}, {{"causal", true}, {"scale", 0.0}}, InferAttention},
      {"silu", {{"input"}}, {}, InferUnary},
      {"relu", {{"input"}}, {}, InferUnary},
      {"gelu", {{"input"}}, {{"approximate", std::string("none")}}, InferGelu},
      {"add", {{"input"}, {"other"}}, {}, InferBinary},
      {"sub", {{"input"}, {"other"}}, {}, InferBinary},
      {"mul", {{"input"}, {"other"}}, {}, InferBinary},
      {"softmax", {{"input"}}, {{"dim", int64_t{-1}}}, InferSoftmax},
      {"reshape", {{"input"}}, {{"shape", SymShape(), true}}, InferReshape},
      {"transpose", {{"input"}}, {{"dim0", int64_t{0}, true}, {"dim1", int64_t{0}, true}}, InferTranspose},
      {"argmax", {{"input"}}, {{"dim", int64_t{-1}}}, InferArgmax},
      {"cast", {{"input"}}, {{"dtype", DType::kF32, true}}, InferCast},
  };
  return *functions;
}

// Names in the order of Attribute's alternatives.
std::string KindText(const Attribute& attribute) {
  static constexpr const char* kNames[] = {"a flag", "an integer", "a number", "a text", "integers", "dims", "a dtype"};
  return kNames[attribute.index()];
}

// `given` as the type of `wanted`, where nothing is lost by it.
bool Coerce(const Attribute& wanted, Attribute* given) {
  if (given->index() == wanted.index()) return true;
  if (std::holds_alternative<double>(wanted) && std::holds_alternative<int64_t>(*given)) {
    *given = static_cast<double>(std::get<int64_t>(*given));
    return true;
  }
  if (std::holds_alternative<std::vector<int64_t>>(wanted) && std::holds_alternative<int64_t>(*given)) {
    *given = std::vector<int64_t>{std::get<int64_t>(*given)};
    return true;
  }
  if (std::holds_alternative<SymShape>(wanted) && std::holds_alternative<int64_t>(*given)) {
    *given = SymShape{Dim(std::get<int64_t>(*given))};
    return true;
  }
  if (std::holds_alternative<std::string>(wanted) && std::holds_alternative<DType>(*given)) {
    *given = std::string(DTypeName(std::get<DType>(*given)));
    return true;
  }
  if (std::holds_alternative<SymShape>(wanted) && std::holds_alternative<std::vector<int64_t>>(*given)) {
    *given = ToSymShape(std::get<std::vector<int64_t>>(*given));
    return true;
  }
  if (std::holds_alternative<DType>(wanted) && std::holds_alternative<std::string>(*given)) {
    absl::StatusOr<DType> dtype = ParseDType(std::get<std::string>(*given));
    if (!dtype.ok()) return false;
    *given = *dtype;
    return true;
  }
  return false;
}

}  // namespace

const FunctionDef* FindFunction(std::string_view name) {
  for (const FunctionDef& function : Functions()) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

std::vector<std::string> FunctionNames() {
  std::vector<std::string> names;
  for (const FunctionDef& function : Functions()) names.push_back(function.name);
  return names;
}

absl::StatusOr<Attributes> CheckAttributes(const FunctionDef& function, const Attributes& given) {
  Attributes complete;
  std::vector<std::string> known;
  for (const FunctionAttribute& attribute : function.attributes) {
    known.push_back(attribute.name);
    auto it = given.find(attribute.name);
    if (it == given.end()) {
      if (attribute.required) return Wrong(absl::StrCat(function.name, " needs attribute '", attribute.name, "'"));
      complete[attribute.name] = attribute.fallback;
      continue;
    }
    Attribute value = it->second;
    if (!Coerce(attribute.fallback, &value)) {
      return Wrong(absl::StrCat("attribute '", attribute.name, "' of ", function.name, " is ",
                                KindText(attribute.fallback), ", given ", KindText(value), " ", AttributeText(value)));
    }
    complete[attribute.name] = std::move(value);
  }
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Wrong(absl::StrCat(function.name, " has no attribute '", name,
                                "'; nearest: ", JoinNames(NearestNames(name, known))));
    }
  }
  return complete;
}

}  // namespace tp
