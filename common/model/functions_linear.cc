#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

TypeOutputs InferLinear(TypeInputs inputs, const Attributes& attributes) {
  const TensorType& input = *inputs[0];
  const TensorType& weight = *inputs[1];
  TP_RETURN_IF_ERROR(NeedFloating("linear", inputs));
  TP_RETURN_IF_ERROR(NeedOneDType("linear", inputs));
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
    if (!IsComputeFloating(output.dtype)) return Wrong("linear: output_dtype must be F32 or BF16");
  }
  return std::vector<TensorType>{output};
}

TypeOutputs InferEmbedding(TypeInputs inputs, const Attributes&) {
  const TensorType& ids = *inputs[0];
  const TensorType& weight = *inputs[1];
  if (!IsInteger(ids.dtype)) return Misfit("embedding needs I64 or I32 ids", inputs);
  if (weight.shape.size() != 2 || !IsComputeFloating(weight.dtype)) {
    return Misfit("embedding needs a floating weight [num_embeddings, embedding_dim]", inputs);
  }
  TensorType output{weight.dtype, ids.shape};
  output.shape.push_back(weight.shape[1]);
  return std::vector<TensorType>{output};
}

// One number for each spatial dim: a single one stands for all, none for `fallback`.
absl::StatusOr<std::vector<int64_t>> SpatialOf(const std::string& function, const Attributes& attributes,
                                               const char* name, size_t count, int64_t fallback, int64_t least) {
  std::vector<int64_t> values = AttributeOr<std::vector<int64_t>>(attributes, name, {});
  if (values.empty()) values = {fallback};
  if (values.size() == 1) values.assign(count, values[0]);
  if (values.size() != count) return Wrong(absl::StrCat(function, ": ", name, " needs ", count, " numbers"));
  for (int64_t value : values) {
    if (value < least || value > (int64_t{1} << 40)) {
      return Wrong(absl::StrCat(function, ": ", name, " must be at least ", least, ", given ", value));
    }
  }
  return values;
}

TypeOutputs InferConv(const std::string& function, size_t spatial, TypeInputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedFloating(function, inputs));
  TP_RETURN_IF_ERROR(NeedOneDType(function, inputs));
  const SymShape& input = inputs[0]->shape;
  const SymShape& weight = inputs[1]->shape;
  if (input.size() != spatial + 2 || weight.size() != spatial + 2) {
    return Misfit(absl::StrCat(function, " needs an input [batch, channels, ", spatial == 1 ? "size" : "height, width",
                               "] and a weight [out, in / groups, ", spatial == 1 ? "kernel" : "kernel, kernel", "]"),
                  inputs);
  }
  const int64_t groups = AttributeOr<int64_t>(attributes, "groups", 1);
  for (const Dim& dim : weight) {
    if (!dim.IsConstant() || dim.constant() < 1)
      return Misfit(absl::StrCat(function, ": a weight of fixed sizes"), inputs);
  }
  if (groups < 1 || weight[0].constant() % groups != 0) {
    return Misfit(absl::StrCat(function, ": groups (", groups, ") must divide the output channels"), inputs);
  }
  if (input[1] != weight[1] * Dim(groups)) {
    return Misfit(absl::StrCat(function, ": the input's dim 1 must be the weight's dim 1 x groups (", groups, ")"),
                  inputs);
  }
  if (inputs[2] != nullptr && (inputs[2]->shape.size() != 1 || inputs[2]->shape[0] != weight[0])) {
    return Misfit(absl::StrCat(function, ": the bias must be [out]"), inputs);
  }
  TP_ASSIGN_OR_RETURN(const std::vector<int64_t> stride, SpatialOf(function, attributes, "stride", spatial, 1, 1));
  TP_ASSIGN_OR_RETURN(const std::vector<int64_t> padding, SpatialOf(function, attributes, "padding", spatial, 0, 0));
  TP_ASSIGN_OR_RETURN(const std::vector<int64_t> dilation, SpatialOf(function, attributes, "dilation", spatial, 1, 1));
  TensorType output{inputs[0]->dtype, {input[0], weight[0]}};
  for (size_t i = 0; i < spatial; ++i) {
    int64_t reach = 0;  // what the padded size has less than the kernel's reach
    if (__builtin_mul_overflow(dilation[i], weight[2 + i].constant() - 1, &reach)) {
      return Misfit(absl::StrCat(function, ": the kernel is too big"), inputs);
    }
    const Dim rest = input[2 + i] + Dim(2 * padding[i] - reach - 1);
    if (rest.IsConstant()) {
      if (rest.constant() < 0)
        return Misfit(absl::StrCat(function, ": the kernel is longer than the padded input"), inputs);
      output.shape.push_back(Dim(rest.constant() / stride[i] + 1));
    } else if (stride[i] == 1) {
      output.shape.push_back(rest + Dim(1));
    } else {
      return Misfit(
          absl::StrCat(function, ": a stride of ", stride[i], " needs a fixed size, not ", input[2 + i].ToString()),
          inputs);
    }
  }
  return std::vector<TensorType>{output};
}

TypeOutputs InferMatmul(TypeInputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedFloating("matmul", inputs));
  TP_RETURN_IF_ERROR(NeedOneDType("matmul", inputs));
  SymShape a = inputs[0]->shape, b = inputs[1]->shape;
  if (a.empty() || b.empty()) return Misfit("matmul needs at least one dim on both sides", inputs);
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if (vector_a) a.insert(a.begin(), Dim(1));
  if (vector_b) b.push_back(Dim(1));
  if (a.back() != b[b.size() - 2]) {
    return Misfit("matmul: the last dim of input must be the last but one of other", inputs);
  }
  const Dim rows = a[a.size() - 2], columns = b.back();
  TP_ASSIGN_OR_RETURN(SymShape shape, BroadcastShapes("matmul", SymShape(a.begin(), a.end() - 2),
                                                      SymShape(b.begin(), b.end() - 2), inputs));
  if (!vector_a) shape.push_back(rows);
  if (!vector_b) shape.push_back(columns);
  return std::vector<TensorType>{{inputs[0]->dtype, std::move(shape)}};
}

TypeOutputs InferBmm(TypeInputs inputs, const Attributes& attributes) {
  const SymShape& a = inputs[0]->shape;
  const SymShape& b = inputs[1]->shape;
  if (a.size() != 3 || b.size() != 3 || a[0] != b[0]) return Misfit("bmm needs [b, m, k] and [b, k, n]", inputs);
  return InferMatmul(inputs, attributes);
}

std::vector<FunctionAttribute> ConvAttributes() {
  const std::vector<int64_t> none;
  return {{"stride", none}, {"padding", none}, {"dilation", none}, {"groups", int64_t{1}}};
}

}  // namespace

std::vector<FunctionDef> LinearFunctions() {
  auto conv = [](const std::string& name, size_t spatial) -> FunctionDef {
    return {name,
            {{"input"}, {"weight"}, {"bias", true}},
            ConvAttributes(),
            [name, spatial](TypeInputs inputs, const Attributes& attributes) {
              return InferConv(name, spatial, inputs, attributes);
            }};
  };
  return {
      {"linear", {{"input"}, {"weight"}, {"bias", true}}, {{"output_dtype", std::string()}}, InferLinear},
      {"embedding", {{"input"}, {"weight"}}, {}, InferEmbedding},
      conv("conv1d", 1),
      conv("conv2d", 2),
      {"matmul", {{"input"}, {"other"}}, {}, InferMatmul},
      {"bmm", {{"input"}, {"other"}}, {}, InferBmm},
  };
}

}  // namespace tp
