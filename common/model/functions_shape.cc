#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostPieces = 4096;  // of a split or chunk

// `name` is reshape or view: both keep the order of the elements.
TypeOutputs InferReshape(const std::string& name, TypeInputs inputs, const Attributes& attributes) {
  const TensorType& input = *inputs[0];
  TensorType output{input.dtype, AttributeOr<SymShape>(attributes, "shape", {})};
  const std::string wanted = SymShapeText(output.shape);
  int free = -1;
  for (size_t i = 0; i < output.shape.size(); ++i) {
    if (!output.shape[i].IsConstant() || output.shape[i].constant() >= 0) continue;
    if (output.shape[i] != Dim(-1) || free >= 0) {
      return Wrong(absl::StrCat(name, " to ", wanted, ": at most one -1"));
    }
    free = static_cast<int>(i);
    output.shape[i] = Dim(1);
  }
  const Dim elements = ProductOf(input.shape);
  const std::string misfit = absl::StrCat(name, " to ", wanted, " does not keep the number of elements (sizes are ",
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

TypeOutputs InferFlatten(TypeInputs inputs, const Attributes& attributes) {
  TensorType output = *inputs[0];
  if (output.shape.empty()) output.shape = {Dim(1)};
  TP_ASSIGN_OR_RETURN(const int start, DimOf("flatten", attributes, "start_dim", output));
  TP_ASSIGN_OR_RETURN(const int end, DimOf("flatten", attributes, "end_dim", output));
  if (start > end) return Misfit(absl::StrCat("flatten: dim ", start, " comes after dim ", end), inputs);
  const auto begin = output.shape.begin();
  output.shape[start] = ProductOf(SymShape(begin + start, begin + end + 1));
  output.shape.erase(begin + start + 1, begin + end + 1);
  return std::vector<TensorType>{output};
}

TypeOutputs InferSqueeze(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(std::vector<int> dims, DimsOf("squeeze", attributes, "dims", *inputs[0]));
  TensorType output = *inputs[0];
  if (dims.empty()) {
    for (size_t i = 0; i < output.shape.size(); ++i) {
      if (output.shape[i] == Dim(1)) dims.push_back(static_cast<int>(i));
    }
  }
  std::sort(dims.rbegin(), dims.rend());
  for (int dim : dims) {
    if (output.shape[dim] != Dim(1)) {
      return Misfit(absl::StrCat("squeeze: dim ", dim, " has size ", output.shape[dim].ToString(), ", not 1"), inputs);
    }
    output.shape.erase(output.shape.begin() + dim);
  }
  return std::vector<TensorType>{output};
}

TypeOutputs InferUnsqueeze(TypeInputs inputs, const Attributes& attributes) {
  TensorType output = *inputs[0];
  output.shape.push_back(Dim(1));  // the rank that the dim counts in
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("unsqueeze", attributes, "dim", output));
  output.shape.pop_back();
  output.shape.insert(output.shape.begin() + dim, Dim(1));
  return std::vector<TensorType>{output};
}

TypeOutputs InferTranspose(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim0, DimOf("transpose", attributes, "dim0", *inputs[0]));
  TP_ASSIGN_OR_RETURN(const int dim1, DimOf("transpose", attributes, "dim1", *inputs[0]));
  TensorType output = *inputs[0];
  std::swap(output.shape[dim0], output.shape[dim1]);
  return std::vector<TensorType>{output};
}

TypeOutputs InferPermute(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const std::vector<int> dims, DimsOf("permute", attributes, "dims", *inputs[0]));
  if (dims.size() != inputs[0]->shape.size()) return Misfit("permute: dims must name every dim once", inputs);
  TensorType output = *inputs[0];
  for (size_t i = 0; i < dims.size(); ++i) output.shape[i] = inputs[0]->shape[dims[i]];
  return std::vector<TensorType>{output};
}

TypeOutputs InferExpand(TypeInputs inputs, const Attributes& attributes) {
  const SymShape& input = inputs[0]->shape;
  TensorType output{inputs[0]->dtype, AttributeOr<SymShape>(attributes, "shape", {})};
  const std::string text = absl::StrCat("expand to ", SymShapeText(output.shape));
  if (output.shape.size() < input.size()) return Misfit(absl::StrCat(text, ": fewer dims than the input"), inputs);
  const size_t added = output.shape.size() - input.size();
  for (size_t i = 0; i < output.shape.size(); ++i) {
    Dim& size = output.shape[i];
    if (size == Dim(-1) && i >= added) size = input[i - added];
    if (size.IsConstant() && size.constant() < 0) return Misfit(absl::StrCat(text, ": a negative size"), inputs);
    if (i >= added && input[i - added] != size && input[i - added] != Dim(1)) {
      return Misfit(absl::StrCat(text, ": only a size of 1 can be expanded"), inputs);
    }
  }
  return std::vector<TensorType>{output};
}

TypeOutputs InferCat(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("cat", attributes, "dim", *inputs[0]));
  TensorType output = *inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    const TensorType& next = *inputs[i];
    if (next.dtype != output.dtype) return NeedOneDType("cat", inputs);
    bool fits = next.shape.size() == output.shape.size();
    for (size_t d = 0; fits && d < next.shape.size(); ++d) {
      fits = static_cast<int>(d) == dim || next.shape[d] == output.shape[d];
    }
    if (!fits) return Misfit(absl::StrCat("cat: all dims but ", dim, " must be equal"), inputs);
    output.shape[dim] = output.shape[dim] + next.shape[dim];
  }
  return std::vector<TensorType>{output};
}

TypeOutputs InferStack(TypeInputs inputs, const Attributes& attributes) {
  for (const TensorType* type : inputs) {
    if (type->dtype != inputs[0]->dtype) return NeedOneDType("stack", inputs);
    if (type->shape != inputs[0]->shape) return Misfit("stack: all shapes must be equal", inputs);
  }
  TensorType output = *inputs[0];
  output.shape.push_back(Dim(1));
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("stack", attributes, "dim", output));
  output.shape.pop_back();
  output.shape.insert(output.shape.begin() + dim, Dim(static_cast<int64_t>(inputs.size())));
  return std::vector<TensorType>{output};
}

std::vector<TensorType> Pieces(const TensorType& input, int dim, const std::vector<int64_t>& sizes) {
  std::vector<TensorType> pieces(sizes.size(), input);
  for (size_t i = 0; i < sizes.size(); ++i) pieces[i].shape[dim] = Dim(sizes[i]);
  return pieces;
}

TypeOutputs InferSplit(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("split", attributes, "dim", *inputs[0]));
  const std::vector<int64_t> sizes = AttributeOr<std::vector<int64_t>>(attributes, "sizes", {});
  if (sizes.empty() || sizes.size() > kMostPieces) return Misfit("split: sizes must hold 1 to 4096 numbers", inputs);
  Dim sum;
  for (int64_t size : sizes) {
    if (size < 0) return Misfit(absl::StrCat("split: a size is negative: ", size), inputs);
    sum = sum + Dim(size);
  }
  if (sum != inputs[0]->shape[dim]) {
    return Misfit(absl::StrCat("split: the sizes make ", sum.ToString(), ", dim ", dim, " has ",
                               inputs[0]->shape[dim].ToString()),
                  inputs);
  }
  return Pieces(*inputs[0], dim, sizes);
}

TypeOutputs InferChunk(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("chunk", attributes, "dim", *inputs[0]));
  const int64_t chunks = AttributeOr<int64_t>(attributes, "chunks", 0);
  if (chunks < 1 || chunks > kMostPieces) return Misfit(absl::StrCat("chunk: 1 to 4096 chunks, not ", chunks), inputs);
  const Dim& size = inputs[0]->shape[dim];
  if (!size.IsConstant()) {
    return Misfit(absl::StrCat("chunk needs a fixed size in dim ", dim, ", not ", size.ToString()), inputs);
  }
  const int64_t whole = size.constant();
  const int64_t each = std::max<int64_t>(1, whole / chunks + (whole % chunks != 0 ? 1 : 0));
  std::vector<int64_t> sizes;
  for (int64_t begin = 0; begin < whole; begin += each) sizes.push_back(std::min(each, whole - begin));
  if (sizes.empty()) sizes.assign(chunks, 0);
  return Pieces(*inputs[0], dim, sizes);
}

TypeOutputs InferSlice(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("slice", attributes, "dim", *inputs[0]));
  int64_t start = AttributeOr<int64_t>(attributes, "start", 0);
  int64_t end = AttributeOr<int64_t>(attributes, "end", kToTheEnd);
  const int64_t step = AttributeOr<int64_t>(attributes, "step", 1);
  if (step < 1) return Misfit(absl::StrCat("slice: step must be at least 1, given ", step), inputs);
  TensorType output = *inputs[0];
  Dim& size = output.shape[dim];
  if (size.IsConstant()) {
    auto place = [whole = size.constant()](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + whole : at, 0, whole);
    };
    start = place(start);
    end = place(end);
    const int64_t length = std::max<int64_t>(0, end - start);
    size = Dim(length / step + (length % step != 0 ? 1 : 0));
    return std::vector<TensorType>{output};
  }
  // Of a free size only what is a polynomial of it whatever its value: [start:] and [start:-end].
  if (step != 1 || start < 0 || (end >= 0 && end != kToTheEnd)) {
    return Misfit(absl::StrCat("slice of a free size (", size.ToString(),
                               "): start from the front, step 1, and end left out or counted from the back"),
                  inputs);
  }
  size = size - Dim(start) + Dim(end == kToTheEnd ? 0 : end);
  return std::vector<TensorType>{output};
}

TypeOutputs InferSelect(TypeInputs inputs, const Attributes& attributes) {
  TP_ASSIGN_OR_RETURN(const int dim, DimOf("select", attributes, "dim", *inputs[0]));
  const int64_t index = AttributeOr<int64_t>(attributes, "index", 0);
  TensorType output = *inputs[0];
  const Dim& size = output.shape[dim];
  if (size.IsConstant() && (index >= size.constant() || index < -size.constant())) {
    return Misfit(absl::StrCat("select: index ", index, " is not in dim ", dim, " of size ", size.constant()), inputs);
  }
  output.shape.erase(output.shape.begin() + dim);
  return std::vector<TensorType>{output};
}

FunctionDef Reshape(const std::string& name) {
  return {name, {{"input"}}, {{"shape", SymShape(), true}}, [name](TypeInputs inputs, const Attributes& attributes) {
            return InferReshape(name, inputs, attributes);
          }};
}

}  // namespace

std::vector<FunctionDef> ShapeFunctions() {
  const FunctionAttribute dim{"dim", int64_t{0}, true}, first_dim{"dim", int64_t{0}};
  const FunctionArgument tensors{"tensors", false, true};
  const std::vector<int64_t> none;
  return {
      Reshape("reshape"),
      Reshape("view"),
      {"flatten", {{"input"}}, {{"start_dim", int64_t{0}}, {"end_dim", int64_t{-1}}}, InferFlatten},
      {"squeeze", {{"input"}}, {{"dims", none}}, InferSqueeze},
      {"unsqueeze", {{"input"}}, {dim}, InferUnsqueeze},
      {"transpose", {{"input"}}, {{"dim0", int64_t{0}, true}, {"dim1", int64_t{0}, true}}, InferTranspose},
      {"permute", {{"input"}}, {{"dims", none, true}}, InferPermute},
      {"expand", {{"input"}}, {{"shape", SymShape(), true}}, InferExpand},
      {"cat", {tensors}, {first_dim}, InferCat},
      {"stack", {tensors}, {first_dim}, InferStack},
      {"split", {{"input"}}, {{"sizes", none, true}, first_dim}, InferSplit},
      {"chunk", {{"input"}}, {{"chunks", int64_t{1}, true}, first_dim}, InferChunk},
      {"slice", {{"input"}}, {first_dim, {"start", int64_t{0}}, {"end", kToTheEnd}, {"step", int64_t{1}}}, InferSlice},
      {"select", {{"input"}}, {dim, {"index", int64_t{0}, true}}, InferSelect},
  };
}

}  // namespace tp
