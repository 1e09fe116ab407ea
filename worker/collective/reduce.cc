#include "worker/collective/reduce.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tp::worker {
namespace {

constexpr int64_t kBlock = 1024;  // elements; the accumulator stays in the first-level cache

// How one dtype is stored and accumulated.
template <typename T, typename A>
struct Plain {
  using Stored = T;
  using Accumulator = A;
  static A Load(T value) { return static_cast<A>(value); }
  static T Store(A value) { return static_cast<T>(value); }
};
struct BF16 {
  using Stored = uint16_t;
  using Accumulator = float;
  static float Load(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static uint16_t Store(float value) { return BF16FromFloat(value); }
};
struct F16 {
  using Stored = uint16_t;
  using Accumulator = float;
  static float Load(uint16_t bits) { return FloatFromF16(bits); }
  static uint16_t Store(float value) { return F16FromFloat(value); }
};

// Signed integers wrap: the arithmetic is done unsigned.
template <typename A>
A Add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename A>
A Multiply(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}
template <typename A>
A Lesser(A a, A b) {
  return (b < a || b != b) ? b : a;
}
template <typename A>
A Greater(A a, A b) {
  return (a < b || b != b) ? b : a;
}

template <typename Type, typename Combine>
void Run(absl::Span<const void* const> terms, int64_t count, void* out, bool average, Combine combine) {
  using A = typename Type::Accumulator;
  using S = typename Type::Stored;
  A sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const S* first = static_cast<const S*>(terms[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = Type::Load(first[i]);
    for (size_t t = 1; t < terms.size(); ++t) {
      const S* term = static_cast<const S*>(terms[t]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = combine(sum[i], Type::Load(term[i]));
    }
    if (average) {
      const A divisor = static_cast<A>(terms.size());
      for (int64_t i = 0; i < n; ++i) sum[i] = sum[i] / divisor;
    }
    S* to = static_cast<S*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = Type::Store(sum[i]);
  }
}

template <typename Type>
void Dispatch(ReduceOp op, absl::Span<const void* const> terms, int64_t count, void* out) {
  using A = typename Type::Accumulator;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return Run<Type>(terms, count, out, op == ReduceOp::kAvg, [](A a, A b) { return Add(a, b); });
    case ReduceOp::kMin:
      return Run<Type>(terms, count, out, false, [](A a, A b) { return Lesser(a, b); });
    case ReduceOp::kMax:
      return Run<Type>(terms, count, out, false, [](A a, A b) { return Greater(a, b); });
    case ReduceOp::kProduct:
      return Run<Type>(terms, count, out, false, [](A a, A b) { return Multiply(a, b); });
  }
}

}  // namespace

absl::Status CheckReduction(DType dtype, ReduceOp op) {
  if (dtype == DType::kBool && op != ReduceOp::kMin && op != ReduceOp::kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("reduction ", std::string(ReduceOpName(op)), " of BOOL; allowed: min, max"));
  }
  if (op == ReduceOp::kAvg && !IsFloating(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("reduction avg of ", std::string(DTypeName(dtype)), "; allowed: sum, min, max, product"));
  }
  return absl::OkStatus();
}

void ReduceTerms(DType dtype, ReduceOp op, absl::Span<const void* const> terms, int64_t count, void* out) {
  TP_CHECK(!terms.empty());
  if (count == 0) return;
  switch (dtype) {
    case DType::kF32:
      return Dispatch<Plain<float, float>>(op, terms, count, out);
    case DType::kBF16:
      return Dispatch<BF16>(op, terms, count, out);
    case DType::kF16:
      return Dispatch<F16>(op, terms, count, out);
    case DType::kF64:
      return Dispatch<Plain<double, double>>(op, terms, count, out);
    case DType::kI64:
      return Dispatch<Plain<int64_t, int64_t>>(op, terms, count, out);
    case DType::kI32:
      return Dispatch<Plain<int32_t, int64_t>>(op, terms, count, out);
    case DType::kU8:
      return Dispatch<Plain<uint8_t, int64_t>>(op, terms, count, out);
    case DType::kBool:
      return Dispatch<Plain<uint8_t, uint8_t>>(op, terms, count, out);
  }
}

}  // namespace tp::worker
