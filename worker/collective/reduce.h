// Elementwise reduction of several arrays in host memory. Example: `ReduceTerms(DType::kBF16, ReduceOp::kSum, terms, n,
// out)`.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/layout/placement.h"
#include "common/tensor/dtype.h"

namespace tp::worker {

// INVALID_ARGUMENT where `dtype` has no such reduction: BOOL has min (all) and max (any) only,
// integers no avg.
absl::Status CheckReduction(DType dtype, ReduceOp op);

// out[i] = terms[0][i] op terms[1][i] op ..., from left to right; `out` may be one of the terms, but not overlap one
// otherwise. BF16 and F16 accumulate in F32 and round once; I32 and U8 accumulate in 64 bits and wrap at the end; avg
// divides by the number of terms. A NaN wins in min and max.
void ReduceTerms(DType dtype, ReduceOp op, absl::Span<const void* const> terms, int64_t count, void* out);

}  // namespace tp::worker
