#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

// `shape` without `dims`, or with 1 in their place.
SymShape Without(SymShape shape, std::vector<int> dims, bool keepdim) {
  std::sort(dims.rbegin(), dims.rend());
  for (int dim : dims) {
    if (keepdim) {
      shape[dim] = Dim(1);
    } else {
      shape.erase(shape.begin() + dim);
    }
  }
  return shape;
}

absl::Status NeedValues(const std::string& function, const std::vector<int>& dims, TypeInputs inputs) {
  for (int dim : dims) {
    if (inputs[0]->shape[dim] == Dim(0)) return Misfit(absl::StrCat(function, " of no values"), inputs);
  }
  return absl::OkStatus();
}

enum class Reduction { kSum, kMean, kExtreme };

FunctionDef Reduce(const std::string& name, Reduction reduction) {
  auto infer = [=](TypeInputs inputs, const Attributes& attributes) -> TypeOutputs {
    TensorType output = *inputs[0];
    if (reduction == Reduction::kMean) {
      TP_RETURN_IF_ERROR(NeedFloating(name, inputs));
    } else if (reduction == Reduction::kSum && output.dtype == DType::kBool) {
      output.dtype = DType::kI64;
    } else {
      TP_RETURN_IF_ERROR(NeedNumbers(name, inputs));
    }
    TP_ASSIGN_OR_RETURN(std::vector<int> dims, DimsOf(name, attributes, "dims", *inputs[0]));
    if (dims.empty()) {
      for (size_t i = 0; i < output.shape.size(); ++i) dims.push_back(static_cast<int>(i));
    }
    if (reduction == Reduction::kExtreme) TP_RETURN_IF_ERROR(NeedValues(name, dims, inputs));
    output.shape = Without(std::move(output.shape), std::move(dims), AttributeOr<bool>(attributes, "keepdim", false));
    return std::vector<TensorType>{output};
  };
  return {name, {{"input"}}, {{"dims", std::vector<int64_t>()}, {"keepdim", false}}, std::move(infer)};
}

// argmax (indices only) and *_with_index.
FunctionDef Extreme(const std::string& name, bool with_values) {
  auto infer = [=](TypeInputs inputs, const Attributes& attributes) -> TypeOutputs {
    TP_RETURN_IF_ERROR(NeedNumbers(name, inputs));
    TP_ASSIGN_OR_RETURN(const int dim, DimOf(name, attributes, "dim", *inputs[0]));
    TP_RETURN_IF_ERROR(NeedValues(name, {dim}, inputs));
    const SymShape shape = Without(inputs[0]->shape, {dim}, AttributeOr<bool>(attributes, "keepdim", false));
    std::vector<TensorType> outputs;
    if (with_values) outputs.push_back({inputs[0]->dtype, shape});
    outputs.push_back({DType::kI64, shape});
    return outputs;
  };
  return {name, {{"input"}}, {{"dim", int64_t{-1}, with_values}, {"keepdim", false}}, std::move(infer)};
}

TypeOutputs InferTopk(TypeInputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedNumbers("topk", inputs));
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("topk", attributes, "dim", *inputs[0]));
  const int64_t k = AttributeOr<int64_t>(attributes, "k", 0);
  SymShape shape = inputs[0]->shape;
  if (!shape[dim].IsConstant()) {
    return Misfit(absl::StrCat("topk needs a fixed size in dim ", dim, ", not ", shape[dim].ToString()), inputs);
  }
  if (k < 1 || k > shape[dim].constant()) {
    return Misfit(absl::StrCat("topk: k is ", k, ", not in [1, ", shape[dim].constant(), "]"), inputs);
  }
  shape[dim] = Dim(k);
  return std::vector<TensorType>{{inputs[0]->dtype, shape}, {DType::kI64, shape}};
}

TypeOutputs InferCrossEntropy(TypeInputs inputs, const Attributes& attributes) {
  if (inputs[2] != nullptr) return absl::UnimplementedError("cross_entropy: class weights (argument 'weight')");
  if (AttributeOr<double>(attributes, "label_smoothing", 0) != 0) {
    return absl::UnimplementedError("cross_entropy: attribute 'label_smoothing'");
  }
  TP_RETURN_IF_ERROR(NeedFloating("cross_entropy", inputs.subspan(0, 1)));
  if (!IsInteger(inputs[1]->dtype)) return Misfit("cross_entropy needs targets of I64 or I32", inputs);
  SymShape rest = inputs[0]->shape;
  // Logits of one position have the class dim alone.
  if (rest.size() == 1 && AttributeOr<int64_t>(attributes, "dim", 1) == 1) {
    rest.clear();
  } else {
    TP_ASSIGN_OR_RETURN(const int dim, DimOf("cross_entropy", attributes, "dim", *inputs[0]));
    rest.erase(rest.begin() + dim);
  }
  if (inputs[1]->shape != rest) {
    return Misfit(absl::StrCat("cross_entropy: the target must be the input without its class dim: ",
                               SymShapeText(rest), " (attribute dim says which it is)"),
                  inputs);
  }
  const std::string reduction = AttributeOr<std::string>(attributes, "reduction", "mean");
  if (reduction != "mean" && reduction != "sum" && reduction != "none") {
    return Wrong(absl::StrCat("cross_entropy: reduction is 'mean', 'sum' or 'none', not '", reduction, "'"));
  }
  return std::vector<TensorType>{{DType::kF32, reduction == "none" ? rest : SymShape()}};
}

}  // namespace

std::vector<FunctionDef> ReduceFunctions() {
  return {
      Reduce("sum", Reduction::kSum),
      Reduce("mean", Reduction::kMean),
      Reduce("max", Reduction::kExtreme),
      Reduce("min", Reduction::kExtreme),
      Extreme("argmax", false),
      {"topk", {{"input"}}, {{"k", int64_t{1}, true}, {"dim", int64_t{-1}}}, InferTopk},
      Extreme("max_with_index", true),
      Extreme("min_with_index", true),
      {"cross_entropy",
       {{"input"}, {"target"}, {"weight", true}},
       {{"dim", int64_t{1}},
        {"ignore_index", int64_t{-100}},
        {"reduction", std::string("mean")},
        {"label_smoothing", 0.0}},
       InferCrossEntropy},
  };
}

}  // namespace tp
