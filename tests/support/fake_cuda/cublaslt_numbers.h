// Elements of the fake cuBLASLt: how its types are read and written, with round to nearest even. Example:
//   float x = ReadElement(CUDA_R_16BF, data, i);
#pragma once

#include <cublasLt.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tp_fake {

inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Keeps the upper bits of the mantissa: 13 dropped bits give TF32, 16 give BF16.
inline float DropBits(float value, int dropped) {
  if (!std::isfinite(value)) return value;
  const uint32_t bits = BitsOf(value), half = (1u << (dropped - 1)) - 1;
  return FloatOf((bits + half + ((bits >> dropped) & 1u)) & ~((1u << dropped) - 1));
}

inline float FromHalf(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  const float sign = (half & 0x8000) != 0 ? -1.f : 1.f;
  if (exponent == 0x1f) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

inline uint16_t ToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);                       // magnitude = f * 2^exponent, f in [0.5, 1)
  const int unit = exponent < -13 ? -24 : exponent - 11;  // of the last place
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  return static_cast<uint16_t>(sign + (unit == -24 ? steps : steps + (static_cast<uint32_t>(unit + 24) << 10)));
}

inline size_t ElementBytes(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

template <class T>
T ReadElement(cudaDataType type, const void* data, int64_t index) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<T>(static_cast<const double*>(data)[index]);
    case CUDA_R_32F:
      return static_cast<const float*>(data)[index];
    case CUDA_R_16F:
      return FromHalf(static_cast<const uint16_t*>(data)[index]);
    default:
      return FloatOf(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[index]) << 16);
  }
}

template <class T>
void WriteElement(cudaDataType type, void* data, int64_t index, T value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[index] = value;
      return;
    case CUDA_R_32F:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case CUDA_R_16F:
      static_cast<uint16_t*>(data)[index] = ToHalf(static_cast<float>(value));
      return;
    default: {
      const float single = static_cast<float>(value);
      static_cast<uint16_t*>(data)[index] = std::isnan(single) ? 0x7fc0 : BitsOf(DropBits(single, 16)) >> 16;
    }
  }
}

}  // namespace tp_fake
