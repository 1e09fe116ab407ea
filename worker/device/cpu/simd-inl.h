// Vectors of F32 loaded from and stored to F32 or BF16 (as uint16_t), for the kernels' row code. Included once for each
// instruction set. Example: `MapRow(in, out, n, [](auto d, auto v) HWY_ATTR { return hn::Mul(v, v); });`
#if defined(TP_WORKER_DEVICE_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TP_WORKER_DEVICE_CPU_SIMD_INL_H_
#undef TP_WORKER_DEVICE_CPU_SIMD_INL_H_
#else
#define TP_WORKER_DEVICE_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

HWY_INLINE FloatVec LoadF32(FloatTag d, const float* from) { return hn::LoadU(d, from); }
HWY_INLINE FloatVec LoadF32(FloatTag d, const uint16_t* from) {
  const hn::Rebind<uint16_t, FloatTag> half;
  const hn::RebindToUnsigned<FloatTag> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, from))));
}

HWY_INLINE void StoreF32(FloatVec v, FloatTag d, float* to) { hn::StoreU(v, d, to); }
// To nearest even; NaN stays NaN (as tp::BF16FromFloat).
HWY_INLINE void StoreF32(FloatVec v, FloatTag, uint16_t* to) {
  const hn::Rebind<uint16_t, FloatTag> half;
  const hn::RebindToUnsigned<FloatTag> unsigned_tag;
  const hn::RebindToSigned<FloatTag> signed_tag;
  const auto bits = hn::BitCast(unsigned_tag, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(unsigned_tag, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(unsigned_tag, 0x7fffu))));
  const auto nan = hn::Or(upper, hn::Set(unsigned_tag, 0x40u));
  const auto result = hn::IfThenElse(hn::RebindMask(unsigned_tag, hn::IsNaN(v)), nan, rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(signed_tag, result)), half, to);
}

// The first `count` (less than a vector) elements; the rest is 0.
template <typename T>
HWY_INLINE FloatVec LoadPart(FloatTag d, const T* from, size_t count) {
  T padded[hn::MaxLanes(FloatTag())] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return LoadF32(d, padded);
}
template <typename T>
HWY_INLINE void StorePart(FloatVec v, FloatTag d, T* to, size_t count) {
  T padded[hn::MaxLanes(FloatTag())];
  StoreF32(v, d, padded);
  std::memcpy(to, padded, count * sizeof(T));
}

// out[i] = map(in[i]).
template <typename In, typename Out, typename Map>
HWY_INLINE void MapRow(const In* in, Out* out, int64_t count, const Map& map) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) StoreF32(map(d, LoadF32(d, in + i)), d, out + i);
  if (i == count) return;
  const size_t rest = static_cast<size_t>(count - i);
  StorePart(map(d, LoadPart(d, in + i, rest)), d, out + i, rest);
}

// e^x within about 1 unit in the last place; infinity where it is too large, NaN stays NaN.
HWY_INLINE FloatVec Exponential(FloatTag d, FloatVec x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, hn::Min(x, hn::Set(d, 100.0f))));
}

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TP_WORKER_DEVICE_CPU_SIMD_INL_H_
