#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/cpu/strided.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu/kernels_binary.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "worker/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

HWY_INLINE FloatVec Apply(BinaryOp op, FloatVec a, FloatVec b) {
  if (op == BinaryOp::kAdd) return hn::Add(a, b);
  if (op == BinaryOp::kSub) return hn::Sub(a, b);
  return hn::Mul(a, b);
}
HWY_INLINE FloatVec Repeat(FloatTag d, float value) { return hn::Set(d, value); }
HWY_INLINE FloatVec Repeat(FloatTag d, uint16_t bits) {
  const hn::RebindToUnsigned<FloatTag> u;
  return hn::BitCast(d, hn::Set(u, static_cast<uint32_t>(bits) << 16));
}

// A stride is 0 (one element for the whole row) or 1.
template <typename T>
HWY_INLINE void CombineRow(BinaryOp op, const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out,
                           int64_t count) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatVec all_a = Repeat(d, a[0]);
  const FloatVec all_b = Repeat(d, b[0]);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const FloatVec va = a_stride == 0 ? all_a : LoadF32(d, a + i);
    const FloatVec vb = b_stride == 0 ? all_b : LoadF32(d, b + i);
    StoreF32(Apply(op, va, vb), d, out + i);
  }
  if (i == count) return;
  const size_t rest = static_cast<size_t>(count - i);
  const FloatVec va = a_stride == 0 ? all_a : LoadPart(d, a + i, rest);
  const FloatVec vb = b_stride == 0 ? all_b : LoadPart(d, b + i, rest);
  StorePart(Apply(op, va, vb), d, out + i, rest);
}
void CombineF32(BinaryOp op, const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* out,
                int64_t count) {
  CombineRow(op, a, a_stride, b, b_stride, out, count);
}
void CombineBF16(BinaryOp op, const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride, uint16_t* out,
                 int64_t count) {
  CombineRow(op, a, a_stride, b, b_stride, out, count);
}

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp::worker::kernels {
HWY_EXPORT(CombineF32);
HWY_EXPORT(CombineBF16);

namespace {

constexpr int64_t kGrain = 1 << 14;  // elements

// Row-major strides of `shape` along the dims of `whole`, 0 where it is broadcast.
absl::StatusOr<Shape> BroadcastStrides(absl::Span<const int64_t> shape, absl::Span<const int64_t> whole) {
  const size_t skip = whole.size() - std::min(whole.size(), shape.size());
  bool fits = shape.size() <= whole.size();
  for (size_t d = 0; d < shape.size() && fits; ++d) fits = shape[d] == 1 || shape[d] == whole[skip + d];
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("binary: ", ShapeText(shape), " does not broadcast to ", ShapeText(whole)));
  }
  const Shape strides = RowMajorStrides(shape);
  Shape result(whole.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) result[skip + d] = strides[d];
  }
  return result;
}

template <typename T>
void CombineScalar(BinaryOp op, const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const T x = a[i * a_stride];
    const T y = b[i * b_stride];
    out[i] = op == BinaryOp::kAdd ? x + y : op == BinaryOp::kSub ? x - y : x * y;
  }
}

template <typename T, typename Row>
void Run(int threads, const StridedLoop<2>& loop, const ConstTensorView& a, const ConstTensorView& b,
         const TensorView& output, const Row& row) {
  const T* from_a = static_cast<const T*>(a.data);
  const T* from_b = static_cast<const T*>(b.data);
  T* to = static_cast<T*>(output.data);
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

}  // namespace

absl::Status Binary(int threads, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                    const TensorView& output) {
  if (a.dtype != b.dtype || a.dtype != output.dtype) {
    return absl::InvalidArgumentError("binary: operands and output must have one dtype");
  }
  TP_ASSIGN_OR_RETURN(const Shape a_strides, BroadcastStrides(a.shape, output.shape));
  TP_ASSIGN_OR_RETURN(const Shape b_strides, BroadcastStrides(b.shape, output.shape));
  for (size_t i = 0; i < output.shape.size(); ++i) {
    const size_t from_end = output.shape.size() - i;
    const bool a_has = a.shape.size() >= from_end && a.shape[a.shape.size() - from_end] == output.shape[i];
    const bool b_has = b.shape.size() >= from_end && b.shape[b.shape.size() - from_end] == output.shape[i];
    if (!a_has && !b_has && output.shape[i] != 1) {
      return absl::InvalidArgumentError(absl::StrCat("binary: ", ShapeText(a.shape), " and ", ShapeText(b.shape),
                                                     " do not give ", ShapeText(output.shape)));
    }
  }
  if (ElementCount(output.shape) == 0) return absl::OkStatus();
  const auto loop = StridedLoop<2>::Create(output.shape, {a_strides, b_strides});
  switch (a.dtype) {
    case DType::kF32:
      Run<float>(threads, loop, a, b, output, [&](auto... row) { HWY_DYNAMIC_DISPATCH(CombineF32)(op, row...); });
      return absl::OkStatus();
    case DType::kBF16:
      Run<uint16_t>(threads, loop, a, b, output, [&](auto... row) { HWY_DYNAMIC_DISPATCH(CombineBF16)(op, row...); });
      return absl::OkStatus();
    case DType::kF64:
      Run<double>(threads, loop, a, b, output, [&](auto... row) { CombineScalar<double>(op, row...); });
      return absl::OkStatus();
    case DType::kI64:  // unsigned, so that an overflow wraps around
      Run<uint64_t>(threads, loop, a, b, output, [&](auto... row) { CombineScalar<uint64_t>(op, row...); });
      return absl::OkStatus();
    default:
      return Unimplemented("binary", a.dtype);
  }
}

}  // namespace tp::worker::kernels
#endif  // HWY_ONCE
