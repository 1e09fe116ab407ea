#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

constexpr int64_t kLargest = int64_t{1} << 62;

TypeOutputs InferIndexSelect(TypeInputs inputs, const Attributes& attributes) {
  if (!IsInteger(inputs[1]->dtype) || inputs[1]->shape.size() != 1) {
    return Misfit("index_select needs an index [n] of I64 or I32", inputs);
  }
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("index_select", attributes, "dim", *inputs[0]));
  TensorType output = *inputs[0];
  output.shape[dim] = inputs[1]->shape[0];
  return std::vector<TensorType>{output};
}

TypeOutputs InferGather(TypeInputs inputs, const Attributes& attributes) {
  const SymShape& input = inputs[0]->shape;
  const SymShape& index = inputs[1]->shape;
  if (!IsInteger(inputs[1]->dtype) || index.size() != input.size()) {
    return Misfit("gather needs an index of the input's rank, I64 or I32", inputs);
  }
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("gather", attributes, "dim", *inputs[0]));
  for (size_t i = 0; i < input.size(); ++i) {
    if (static_cast<int>(i) == dim || index[i] == input[i]) continue;
    if (!index[i].IsConstant() || !input[i].IsConstant() || index[i].constant() > input[i].constant()) {
      return Misfit(absl::StrCat("gather: the index must not be larger than the input in dim ", i), inputs);
    }
  }
  return std::vector<TensorType>{{inputs[0]->dtype, index}};
}

TypeOutputs InferArange(TypeInputs, const Attributes& attributes) {
  const SymShape end = AttributeOr<SymShape>(attributes, "end", {});
  if (end.size() != 1) return Wrong(absl::StrCat("arange: end is one size, given ", SymShapeText(end)));
  const int64_t start = AttributeOr<int64_t>(attributes, "start", 0);
  const int64_t step = AttributeOr<int64_t>(attributes, "step", 1);
  const DType dtype = AttributeOr<DType>(attributes, "dtype", DType::kI64);
  if (!IsInteger(dtype) && !IsComputeFloating(dtype)) {
    return Wrong(absl::StrCat("arange makes I64, I32, F32 or BF16, not ", std::string(DTypeName(dtype))));
  }
  if (step == 0) return Wrong("arange: step must not be 0");
  for (int64_t number : {start, step, end[0].IsConstant() ? end[0].constant() : 0}) {
    if (number < -kLargest || number > kLargest) return Wrong("arange: numbers must lie within +-2^62");
  }
  const Dim length = end[0] - Dim(start);
  Dim count;
  if (length.IsConstant()) {
    const int64_t whole = length.constant() / step;
    count = Dim(std::max<int64_t>(0, whole + (length.constant() % step != 0 && (length.constant() > 0) == (step > 0))));
  } else {
    std::optional<Dim> quotient = length.DividedBy(Dim(step));
    if (!quotient.has_value()) {
      return Wrong(absl::StrCat("arange from ", start, " to ", end[0].ToString(), ": a step of ", step,
                                " must divide the length"));
    }
    count = *quotient;
  }
  return std::vector<TensorType>{{dtype, {count}}};
}

TypeOutputs InferPick(TypeInputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedNumbers("pick", inputs.subspan(0, 1)));
  if (!IsInteger(inputs[1]->dtype)) return Misfit("pick needs an index of I64 or I32", inputs);
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("pick", attributes, "dim", *inputs[0]));
  SymShape rest = inputs[0]->shape;
  rest.erase(rest.begin() + dim);
  if (inputs[1]->shape != rest) {
    return Misfit(absl::StrCat("pick: the index must be the input without dim ", dim, ": ", SymShapeText(rest)),
                  inputs);
  }
  TensorType output = *inputs[0];
  output.shape[dim] = Dim(1);
  return std::vector<TensorType>{output};
}

}  // namespace

std::vector<FunctionDef> IndexFunctions() {
  const FunctionAttribute dim{"dim", int64_t{0}, true};
  return {
      {"index_select", {{"input"}, {"index"}}, {dim}, InferIndexSelect},
      {"gather", {{"input"}, {"index"}}, {dim}, InferGather},
      {"arange",
       {},
       {{"start", int64_t{0}}, {"end", SymShape(), true}, {"step", int64_t{1}}, {"dtype", DType::kI64}},
       InferArange},
      {"pick", {{"input"}, {"index"}}, {dim, {"ignore_index", int64_t{-100}}}, InferPick},
  };
}

}  // namespace tp
