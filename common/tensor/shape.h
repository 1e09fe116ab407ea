// Concrete shapes with checked arithmetic. A shape [] is a scalar with one element; a 0 is legal in any dim.
// All tensors are dense and row-major. Example: `CheckedBytes({2, 3}, DType::kF32)` is 24.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/dtype.h"

namespace tp {

using Shape = std::vector<int64_t>;

// Product of the dims. INVALID_ARGUMENT for a negative dim or a product over 2^62.
absl::StatusOr<int64_t> CheckedElementCount(absl::Span<const int64_t> shape);
// Elements x item size, with the same checks.
absl::StatusOr<int64_t> CheckedBytes(absl::Span<const int64_t> shape, DType dtype);
// Product of the dims of a shape that was checked before.
int64_t ElementCount(absl::Span<const int64_t> shape);
// Row-major strides in elements.
Shape RowMajorStrides(absl::Span<const int64_t> shape);
// "[2, 3]".
std::string ShapeText(absl::Span<const int64_t> shape);
// Maps a dim in [-rank, rank) to [0, rank). INVALID_ARGUMENT naming dim and rank otherwise.
absl::StatusOr<int> NormalizeDim(int64_t dim, int rank);

}  // namespace tp
