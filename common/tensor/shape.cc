#include "common/tensor/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace tp {
namespace {

constexpr int64_t kMaxProduct = int64_t{1} << 62;

}  // namespace

absl::StatusOr<int64_t> CheckedElementCount(absl::Span<const int64_t> shape) {
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return absl::InvalidArgumentError(absl::StrCat("negative dim in shape ", ShapeText(shape)));
    empty = empty || size == 0;
  }
  if (empty) return 0;
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (count > kMaxProduct / size) {
      return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(shape), " has more than 2^62 elements"));
    }
    count *= size;
  }
  return count;
}

absl::StatusOr<int64_t> CheckedBytes(absl::Span<const int64_t> shape, DType dtype) {
  TP_ASSIGN_OR_RETURN(const int64_t count, CheckedElementCount(shape));
  if (count > kMaxProduct / ItemSize(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(shape), " has more than 2^62 bytes"));
  }
  return count * ItemSize(dtype);
}

int64_t ElementCount(absl::Span<const int64_t> shape) {
  for (const int64_t size : shape) {
    if (size == 0) return 0;
  }
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

Shape RowMajorStrides(absl::Span<const int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::string ShapeText(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::StatusOr<int> NormalizeDim(int64_t dim, int rank) {
  if (dim < -rank || dim >= rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("dim ", dim, " is outside [", -rank, ", ", rank, ") of a tensor of rank ", rank));
  }
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

}  // namespace tp
