// Elements as kernels compute with them: 16-bit floats widen to F32 and round to nearest even; on the host and the
// device by the same arithmetic. Example: Store(out, i, Load(in, i) * 2);
#pragma once

#include <cstdint>
#include <cstring>

#include "worker/device/cuda/launch.h"

namespace tp::worker::cuda {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

template <class To, class From>
TP_HD To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

TP_HD float Widen(BF16 value) { return BitCast<float>(static_cast<uint32_t>(value.bits) << 16); }
TP_HD float Widen(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu, mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1f) return BitCast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return BitCast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * (1.0f / 16777216.0f);  // subnormal: mantissa * 2^-24
  return sign != 0 ? -magnitude : magnitude;
}
template <class T>
TP_HD T Widen(T value) {
  return value;
}

// Narrow<T>(x): x rounded once to T.
template <class T>
struct NarrowTo {
  template <class From>
  TP_HD static T From_(From value) {
    return static_cast<T>(value);
  }
};
template <>
struct NarrowTo<BF16> {
  TP_HD static BF16 From_(float value) {
    const uint32_t bits = BitCast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
  }
};
template <>
struct NarrowTo<F16> {
  TP_HD static F16 From_(float value) {
    const uint32_t bits = BitCast<uint32_t>(value), sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to over 65504
    if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, rounded by the adder
      const float shifted = BitCast<float>(magnitude) + 0.5f;
      return {static_cast<uint16_t>(sign | (BitCast<uint32_t>(shifted) - 0x3f000000u))};
    }
    return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13))};
  }
};
template <class T, class From>
TP_HD T Narrow(From value) {
  return NarrowTo<T>::From_(value);
}

// The type that arithmetic on T is done in.
template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<BF16> {
  using type = float;
};
template <>
struct Wide<F16> {
  using type = float;
};
template <class T>
using WideType = typename Wide<T>::type;

}  // namespace tp::worker::cuda
