// What the hosts of the CUDA kernels check. Example:
//   TP_RETURN_IF_ERROR(CheckSame("rotary", input, output));
#pragma once

#include "worker/device/cuda/elements.h"

namespace tp::worker::cuda {

// Product of all dims but the last; 1 for a scalar.
inline int64_t RowCount(absl::Span<const int64_t> shape) {
  return shape.empty() ? 1 : ElementCount(shape.first(shape.size() - 1));
}
// The last dim; 1 for a scalar.
inline int64_t RowSize(absl::Span<const int64_t> shape) { return shape.empty() ? 1 : shape.back(); }

inline bool IsKernelFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// INVALID_ARGUMENT where the two differ in shape or (where `dtypes`) in dtype.
inline absl::Status CheckSame(std::string_view kernel, const ConstTensorView& a, const ConstTensorView& b,
                              bool dtypes = true) {
  if (a.shape == b.shape && (!dtypes || a.dtype == b.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(kernel), ": ", std::string(DTypeName(a.dtype)),
                                                 ShapeText(a.shape), " and ", std::string(DTypeName(b.dtype)),
                                                 ShapeText(b.shape), " must be equal"));
}

}  // namespace tp::worker::cuda
