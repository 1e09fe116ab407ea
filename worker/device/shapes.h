// What kernels of any device ask of the shapes of their operands, and the walks that follow; every error text of theirs
// stands here once. All INVALID_ARGUMENT. Example: RowsAlong({2, 3, 4}, 1) is 8 rows of 3 elements, 4 apart.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/shape.h"
#include "worker/device/device.h"
#include "worker/device/strided.h"

namespace tp::worker {

// Product of all dims but the last; 1 for a scalar.
int64_t RowCount(absl::Span<const int64_t> shape);
// The last dim; 1 for a scalar.
int64_t RowSize(absl::Span<const int64_t> shape);
// The two may not differ in shape or (where `dtypes`) in dtype.
absl::Status CheckSame(std::string_view kernel, const ConstTensorView& a, const ConstTensorView& b, bool dtypes = true);

// Elements along one dim: row r is element `first(r)` and every `inner`-th after it, `count` in all.
struct DimRows {
  int64_t rows = 0;
  int64_t count = 0;
  int64_t inner = 1;
  int64_t first(int64_t row) const { return row / inner * count * inner + row % inner; }
};
absl::StatusOr<DimRows> RowsAlong(const Shape& shape, int dim);
// The results of ArgExtreme and TopK hold `elements`; the values (or nullptr) have the input's dtype.
absl::Status CheckOrdered(std::string_view kernel, const ConstTensorView& input, int64_t elements,
                          const TensorView* values, const TensorView& indices);

// The walk of CopyStrided over from and to.
absl::StatusOr<StridedLoop<2>> CopyLoop(const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                                        const TensorView& to, absl::Span<const int64_t> to_strides,
                                        absl::Span<const int64_t> sizes);
// The input's strides along the dims of the output.
absl::StatusOr<Shape> TransposeStrides(const ConstTensorView& input, absl::Span<const int> permutation,
                                       const TensorView& output);
// The output's strides along the dims of the input: 0 along those that are reduced.
absl::StatusOr<Shape> ReduceStrides(const Shape& input, absl::Span<const int> dims, const Shape& output);

absl::Status CheckEmbedding(const ConstTensorView& ids, const ConstTensorView& table, const TensorView& output);
absl::Status CheckSelectRows(const ConstTensorView& input, const ConstTensorView& rows, const TensorView& output);
// The walk over index and input (without the dim), in the output's order.
struct GatherPlan {
  StridedLoop<2> loop;
  int64_t dim_stride = 0;
  int64_t dim_size = 0;
};
absl::StatusOr<GatherPlan> PlanGather(const ConstTensorView& input, const ConstTensorView& index, int dim,
                                      const TensorView& output);

}  // namespace tp::worker
