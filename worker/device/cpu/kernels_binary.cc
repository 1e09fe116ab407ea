#include "common/base/status.h"
#include "worker/device/broadcast.h"
#include "worker/device/cpu/binary_rows.h"
#include "worker/device/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu/kernels_binary.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "worker/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

HWY_INLINE FloatVec Apply(BinaryOp op, FloatVec a, FloatVec b) {
  switch (op) {
    case BinaryOp::kAdd:
      return hn::Add(a, b);
    case BinaryOp::kSub:
      return hn::Sub(a, b);
    case BinaryOp::kMul:
      return hn::Mul(a, b);
    case BinaryOp::kDiv:
      return hn::Div(a, b);
    case BinaryOp::kMaximum:
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
    default:
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Min(a, b)));
  }
}
HWY_INLINE FloatVec Repeat(FloatTag d, float value) { return hn::Set(d, value); }
HWY_INLINE FloatVec Repeat(FloatTag d, uint16_t bits) {
  const hn::RebindToUnsigned<FloatTag> u;
  return hn::BitCast(d, hn::Set(u, static_cast<uint32_t>(bits) << 16));
}

// A stride is 0 (one element for the whole row) or 1.
template <typename A, typename B>
HWY_INLINE void CombineRow(BinaryOp op, const A* a, int64_t a_stride, const B* b, int64_t b_stride, A* out,
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
// b is one number.
void CombineBF16AndF32(BinaryOp op, const uint16_t* a, int64_t a_stride, const float* b, int64_t, uint16_t* out,
                       int64_t count) {
  CombineRow(op, a, a_stride, b, 0, out, count);
}

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp::worker::kernels {
HWY_EXPORT(CombineF32);
HWY_EXPORT(CombineBF16);
HWY_EXPORT(CombineBF16AndF32);

namespace {

bool HasVectorForm(BinaryOp op) { return op <= BinaryOp::kDiv || op == BinaryOp::kMaximum || op == BinaryOp::kMinimum; }

// b's dtype is a's, or F32 for a BF16 a and one number b.
absl::Status Combine(int threads, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                     const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const StridedLoop<2> loop, BinaryLoop(op, a, b, output));
  if (ElementCount(output.shape) == 0) return absl::OkStatus();
  if (!HasVectorForm(op) || (a.dtype != DType::kF32 && a.dtype != DType::kBF16)) {
    return BinaryPlain(threads, op, loop, a, b, output);
  }
  if (a.dtype == DType::kF32) {
    ForBinaryRows<float, float, float>(threads, loop, a.data, b.data, output.data, [&](auto... row) {
      HWY_DYNAMIC_DISPATCH(CombineF32)(op, row...);
    });
  } else if (b.dtype == DType::kF32) {
    ForBinaryRows<uint16_t, float, uint16_t>(threads, loop, a.data, b.data, output.data, [&](auto... row) {
      HWY_DYNAMIC_DISPATCH(CombineBF16AndF32)(op, row...);
    });
  } else {
    ForBinaryRows<uint16_t, uint16_t, uint16_t>(threads, loop, a.data, b.data, output.data, [&](auto... row) {
      HWY_DYNAMIC_DISPATCH(CombineBF16)(op, row...);
    });
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Binary(int threads, BinaryOp op, const ConstTensorView& a, const ConstTensorView& b,
                    const TensorView& output) {
  if (a.dtype != b.dtype) return absl::InvalidArgumentError("binary: operands must have one dtype");
  return Combine(threads, op, a, b, output);
}

absl::Status BinaryScalar(int threads, BinaryOp op, const ConstTensorView& a, double b, const TensorView& output) {
  const DType dtype = a.dtype == DType::kBF16 ? DType::kF32 : a.dtype;
  TP_ASSIGN_OR_RETURN(const Element element, EncodeElement("binary", dtype, b));
  return Combine(threads, op, a, ConstTensorView(dtype, element.bytes, {}), output);
}

}  // namespace tp::worker::kernels
#endif  // HWY_ONCE
