#include "worker/device/shapes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/broadcast.h"

namespace tp::worker {

int64_t RowCount(absl::Span<const int64_t> shape) {
  return shape.empty() ? 1 : ElementCount(shape.first(shape.size() - 1));
}
int64_t RowSize(absl::Span<const int64_t> shape) { return shape.empty() ? 1 : shape.back(); }

absl::Status CheckSame(std::string_view kernel, const ConstTensorView& a, const ConstTensorView& b, bool dtypes) {
  if (a.shape == b.shape && (!dtypes || a.dtype == b.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(kernel), ": ", std::string(DTypeName(a.dtype)),
                                                 ShapeText(a.shape), " and ", std::string(DTypeName(b.dtype)),
                                                 ShapeText(b.shape), " must be equal"));
}

absl::StatusOr<DimRows> RowsAlong(const Shape& shape, int dim) {
  TP_ASSIGN_OR_RETURN(const int at, NormalizeDim(dim, static_cast<int>(shape.size())));
  const auto span = absl::MakeConstSpan(shape);
  const size_t axis = static_cast<size_t>(at);
  DimRows rows;
  rows.count = span[axis];
  rows.inner = ElementCount(span.subspan(axis + 1));
  rows.rows = ElementCount(span.first(axis)) * rows.inner;
  return rows;
}

absl::Status CheckOrdered(std::string_view kernel, const ConstTensorView& input, int64_t elements,
                          const TensorView* values, const TensorView& indices) {
  if (ElementCount(indices.shape) == elements &&
      (values == nullptr || (ElementCount(values->shape) == elements && values->dtype == input.dtype))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(kernel), ": ", ShapeText(input.shape), " to ", ShapeText(indices.shape)));
}

absl::StatusOr<StridedLoop<2>> CopyLoop(const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                                        const TensorView& to, absl::Span<const int64_t> to_strides,
                                        absl::Span<const int64_t> sizes) {
  if (from.dtype != to.dtype || from_strides.size() != sizes.size() || to_strides.size() != sizes.size()) {
    return absl::InvalidArgumentError("copy_strided: two dtypes, or another number of strides than of sizes");
  }
  return StridedLoop<2>::Create(
      sizes, {Shape(from_strides.begin(), from_strides.end()), Shape(to_strides.begin(), to_strides.end())});
}

absl::StatusOr<Shape> TransposeStrides(const ConstTensorView& input, absl::Span<const int> permutation,
                                       const TensorView& output) {
  const size_t rank = input.shape.size();
  bool fits = permutation.size() == rank && output.shape.size() == rank && input.dtype == output.dtype;
  std::vector<bool> used(rank, false);
  for (size_t d = 0; d < rank && fits; ++d) {
    const size_t from = static_cast<size_t>(permutation[d]);
    fits = permutation[d] >= 0 && from < rank && !used[from] && output.shape[d] == input.shape[from];
    if (fits) used[from] = true;
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("transpose: ", ShapeText(input.shape), " to ",
                                                   ShapeText(output.shape), " by a permutation of ", permutation.size(),
                                                   " dims"));
  }
  const Shape input_strides = RowMajorStrides(input.shape);
  Shape strides(rank);
  for (size_t d = 0; d < rank; ++d) strides[d] = input_strides[static_cast<size_t>(permutation[d])];
  return strides;
}

absl::StatusOr<Shape> ReduceStrides(const Shape& input, absl::Span<const int> dims, const Shape& output) {
  const size_t rank = input.size();
  std::vector<bool> reduced(rank, false);
  for (const int dim : dims) {
    if (dim < 0 || static_cast<size_t>(dim) >= rank || reduced[static_cast<size_t>(dim)]) {
      return absl::InvalidArgumentError(absl::StrCat("reduce: dim ", dim, " of ", ShapeText(input)));
    }
    reduced[static_cast<size_t>(dim)] = true;
  }
  int64_t outputs = 1;
  Shape strides(rank, 0);
  for (size_t d = rank; d-- > 0;) {
    if (reduced[d]) continue;
    strides[d] = outputs;
    outputs *= input[d];
  }
  if (ElementCount(output) != outputs) {
    return absl::InvalidArgumentError(absl::StrCat("reduce: ", ShapeText(input), " to ", ShapeText(output)));
  }
  return strides;
}

absl::Status CheckEmbedding(const ConstTensorView& ids, const ConstTensorView& table, const TensorView& output) {
  Shape expected = ids.shape;
  if (table.shape.size() == 2) expected.push_back(table.shape[1]);
  if (table.shape.size() == 2 && table.dtype == output.dtype && expected == output.shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("embedding: ids ", ShapeText(ids.shape), ", table ",
                                                 ShapeText(table.shape), ", output ", ShapeText(output.shape)));
}

absl::Status CheckSelectRows(const ConstTensorView& input, const ConstTensorView& rows, const TensorView& output) {
  const int64_t count = ElementCount(rows.shape);
  if (input.shape.empty() || input.dtype != output.dtype) {
    return absl::InvalidArgumentError("select_rows: the input needs a dim and the output's dtype");
  }
  if (ElementCount(output.shape) == count * ElementCount(absl::MakeConstSpan(input.shape).subspan(1))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("select_rows: ", count, " rows of ", ShapeText(input.shape), " to ", ShapeText(output.shape)));
}

absl::StatusOr<GatherPlan> PlanGather(const ConstTensorView& input, const ConstTensorView& index, int dim,
                                      const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const int at, NormalizeDim(dim, static_cast<int>(input.shape.size())));
  const size_t axis = static_cast<size_t>(at);
  bool fits = output.shape.size() == input.shape.size() && output.dtype == input.dtype;
  for (size_t d = 0; fits && d < input.shape.size(); ++d) fits = d == axis || output.shape[d] <= input.shape[d];
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("gather: ", ShapeText(input.shape), " along dim ", at, " to ", ShapeText(output.shape)));
  }
  TP_ASSIGN_OR_RETURN(const Shape index_strides, BroadcastStrides("gather", index.shape, output.shape));
  Shape strides = RowMajorStrides(input.shape);
  GatherPlan plan;
  plan.dim_stride = strides[axis];
  plan.dim_size = input.shape[axis];
  strides[axis] = 0;
  plan.loop = StridedLoop<2>::Create(output.shape, {index_strides, strides});
  return plan;
}

}  // namespace tp::worker
