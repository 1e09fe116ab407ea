// One element as one of another dtype, as tp::ConvertTo: floats are rounded once to nearest even, floats to integers
// are cut towards 0 and kept in range (NaN: 0), anything to BOOL by != 0. Example: Convert<BF16>(int64_t{3}).
#pragma once

#include <limits>
#include <type_traits>

#include "worker/device/cuda/elements.h"

namespace tp::worker::cuda {

// As float, rounded to odd: a second rounding to 16 bits then equals one rounding.
TP_HD float RoundToOdd(float value) { return value; }
TP_HD float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (value != value || back == value) return nearest;
  uint32_t bits = BitCast<uint32_t>(nearest);
  if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;  // one step towards 0
  return BitCast<float>(bits | 1u);
}
TP_HD float RoundToOdd(int64_t value) {
  uint64_t magnitude = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  uint64_t lost = 0;
  float unit = 1;
  while (magnitude >> 24 != 0) {
    lost |= magnitude & 1;
    magnitude >>= 1;
    unit *= 2;
  }
  const float result = static_cast<float>(magnitude | lost) * unit;
  return value < 0 ? -result : result;
}

template <class To>
struct Range {
  static constexpr To kLowest = std::numeric_limits<To>::min(), kHighest = std::numeric_limits<To>::max();
  static constexpr uint64_t kHalf = uint64_t{1} << (std::numeric_limits<To>::digits - 1);  // of kHighest + 1
};
// The highest and 1 is a power of two, exact in every floating type.
template <class To, class From>
TP_HD To Truncate(From value) {
  if (value != value) return 0;
  if (value <= static_cast<From>(Range<To>::kLowest)) return Range<To>::kLowest;
  if (value >= static_cast<From>(Range<To>::kHalf) * From{2}) return Range<To>::kHighest;
  return static_cast<To>(value);
}

template <class To, class From>
TP_HD To Convert(From value) {
  const auto number = Widen(value);
  using N = WideType<From>;
  if constexpr (std::is_same_v<To, BF16> || std::is_same_v<To, F16>) {
    if constexpr (std::is_integral_v<N>) {
      return Narrow<To>(RoundToOdd(static_cast<int64_t>(number)));
    } else {
      return Narrow<To>(RoundToOdd(number));
    }
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<N>) {
    return Truncate<To>(number);
  } else {
    return Narrow<To>(number);
  }
}

}  // namespace tp::worker::cuda
