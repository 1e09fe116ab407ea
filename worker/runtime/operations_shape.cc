// Reordering and copying of elements. Sizes come from the local blocks, so that an even cut of other dims, or of equal
// parts of an interleaved one, needs nothing more.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

// From an element on.
ConstTensorView Shifted(ConstTensorView view, int64_t elements) {
  view.data = static_cast<const char*>(view.data) + elements * ItemSize(view.dtype);
  return view;
}
absl::Status Transpose(const Context& context, Values in, Values out) {
  const size_t rank = in[0].view.shape.size();
  std::vector<int> permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[static_cast<size_t>(DimOf(context, "dim0", 0, rank))],
            permutation[static_cast<size_t>(DimOf(context, "dim1", 0, rank))]);
  return context.device.Transpose(context.stream, in[0].view, permutation, out[0].view);
}

absl::Status Permute(const Context& context, Values in, Values out) {
  const auto rank = static_cast<int64_t>(in[0].view.shape.size());
  std::vector<int> permutation;
  for (const int64_t dim : AttributeOr<std::vector<int64_t>>(context.instruction.attributes, "dims", {})) {
    permutation.push_back(static_cast<int>(dim < 0 ? dim + rank : dim));
  }
  return context.device.Transpose(context.stream, in[0].view, permutation, out[0].view);
}

absl::Status Expand(const Context& context, Values in, Values out) {
  const TensorView& input = in[0].view;
  const TensorView& output = out[0].view;
  const size_t added = output.shape.size() - input.shape.size();
  const Shape own = RowMajorStrides(input.shape);
  Shape strides(output.shape.size(), 0);
  for (size_t d = 0; d < input.shape.size(); ++d) {
    if (input.shape[d] == output.shape[added + d]) {
      strides[added + d] = own[d];
    } else if (input.shape[d] != 1) {
      return absl::InternalError(
          absl::StrCat("expand: local blocks ", ShapeText(input.shape), " -> ", ShapeText(output.shape)));
    }
  }
  return context.device.CopyStrided(context.stream, input, strides, output, RowMajorStrides(output.shape),
                                    output.shape);
}

absl::Status Cat(const Context& context, Values in, Values out) {
  const TensorView& output = out[0].view;
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 0, output.shape.size()));
  Shape at(output.shape.size(), 0);
  const Shape zeros = at;
  for (const ValueView& input : in) {
    TP_RETURN_IF_ERROR(context.device.CopyBox(context.stream, input.view, zeros, output, at, input.view.shape));
    at[dim] += input.view.shape[dim];
  }
  return absl::OkStatus();
}

absl::Status Split(const Context& context, Values in, Values out) {
  const TensorView& input = in[0].view;
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 0, input.shape.size()));
  Shape at(input.shape.size(), 0);
  const Shape zeros = at;
  for (const ValueView& output : out) {
    TP_RETURN_IF_ERROR(context.device.CopyBox(context.stream, input, at, output.view, zeros, output.view.shape));
    at[dim] += output.view.shape[dim];
  }
  return absl::OkStatus();
}

// sizes[dim] elements along `dim` from `start` on, `step` apart, to the output (which may lack a dim of size 1).
absl::Status CopySlice(const Context& context, const TensorView& input, size_t dim, int64_t start, int64_t step,
                       const Shape& sizes, const TensorView& output) {
  if (ElementCount(sizes) == 0) return absl::OkStatus();
  const int64_t last = start + (sizes[dim] - 1) * step;
  if (start < 0 || last >= input.shape[dim]) {
    return absl::InvalidArgumentError(absl::StrCat(context.instruction.function, ": index ", start < 0 ? start : last,
                                                   " outside [0, ", input.shape[dim], ") of dim ", dim));
  }
  Shape strides = RowMajorStrides(input.shape);
  const int64_t offset = start * strides[dim];
  strides[dim] *= step;
  return context.device.CopyStrided(context.stream, Shifted(input, offset), strides, output, RowMajorStrides(sizes),
                                    sizes);
}

absl::Status Slice(const Context& context, Values in, Values out) {
  const TensorView& input = in[0].view;
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 0, input.shape.size()));
  int64_t start = Integer(context, "start", 0);
  if (start < 0) start = std::max<int64_t>(0, start + input.shape[dim]);
  return CopySlice(context, input, dim, start, Integer(context, "step", 1), out[0].view.shape, out[0].view);
}

absl::Status Select(const Context& context, Values in, Values out) {
  const TensorView& input = in[0].view;
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 0, input.shape.size()));
  int64_t index = Integer(context, "index", 0);
  if (index < 0) index += input.shape[dim];
  Shape sizes = out[0].view.shape;
  sizes.insert(sizes.begin() + static_cast<int64_t>(dim), 1);
  return CopySlice(context, input, dim, index, 1, sizes, out[0].view);
}

}  // namespace

absl::Span<const NamedOperation> ShapeOperations() {
  static constexpr NamedOperation kOperations[] = {
      {"reshape", CopyElements}, {"transpose", Transpose}, {"permute", Permute}, {"expand", Expand}, {"cat", Cat},
      {"split", Split},          {"slice", Slice},         {"select", Select}};
  return kOperations;
}

}  // namespace tp::worker::operations
