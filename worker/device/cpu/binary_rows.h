// What kernels_binary.cc and kernels_binary_plain.cc share: the walk over the rows of two broadcast operands.
#pragma once

#include <algorithm>

#include "worker/device/cpu/parallel.h"
#include "worker/device/device.h"
#include "worker/device/strided.h"

namespace tp::worker::kernels {

// row(a, a's stride, b, b's stride, out, count) for pieces of the output; a stride is 0 or 1.
template <typename A, typename B, typename Out, typename Row>
void ForBinaryRows(int threads, const StridedLoop<2>& loop, const void* a, const void* b, void* output,
                   const Row& row) {
  constexpr int64_t kGrain = 1 << 14;  // elements
  const A* from_a = static_cast<const A*>(a);
  const B* from_b = static_cast<const B*>(b);
  Out* to = static_cast<Out*>(output);
  const int64_t inner = loop.inner();
  const int64_t sa = loop.inner_stride(0);
  const int64_t sb = loop.inner_stride(1);
  if (loop.sizes.size() == 1) {
    return ParallelFor(threads, inner, kGrain, [&](int64_t begin, int64_t end) {
      row(from_a + begin * sa, sa, from_b + begin * sb, sb, to + begin, end - begin);
    });
  }
  ParallelFor(threads, loop.outer(), std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
    loop.ForRows(begin, end, [&](int64_t r, const std::array<int64_t, 2>& offsets) {
      row(from_a + offsets[0], sa, from_b + offsets[1], sb, to + r * inner, inner);
    });
  });
}

// kernels_binary_plain.cc: loops of one element after the other, for what has no vector form. b's dtype is a's, or F32
// for a BF16 a. UNIMPLEMENTED where the dtype has not the function.
absl::Status BinaryPlain(int threads, BinaryOp op, const StridedLoop<2>& loop, const ConstTensorView& a,
                         const ConstTensorView& b, const TensorView& output);

}  // namespace tp::worker::kernels
