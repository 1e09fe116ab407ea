#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/broadcast.h"
#include "worker/device/cpu/binary_rows.h"
#include "worker/device/cpu/kernels.h"

namespace tp::worker::kernels {
namespace {

// An element as the number that is computed with, and back. uint16_t is BF16, uint8_t is BOOL.
template <typename T>
T Number(T value) {
  return value;
}
float Number(uint16_t bits) { return FloatFromBF16(bits); }
uint8_t Number(uint8_t value) { return value != 0 ? 1 : 0; }
template <typename Out, typename N>
Out Store(N value) {
  if constexpr (std::is_same_v<Out, uint16_t>) {
    return BF16FromFloat(value);
  } else {
    return static_cast<Out>(value);
  }
}

// Operands in memory and output; the walk.
struct Operands {
  int threads;
  const StridedLoop<2>& loop;
  const void* a;
  const void* b;
  void* output;
};

template <typename A, typename B, typename Out, typename Function>
absl::Status Map(const Operands& operands, const Function& function) {
  ForBinaryRows<A, B, Out>(operands.threads, operands.loop, operands.a, operands.b, operands.output,
                           [&](const A* a, int64_t a_stride, const B* b, int64_t b_stride, Out* out, int64_t count) {
                             if (a_stride == 1 && b_stride == 1) {
                               for (int64_t i = 0; i < count; ++i)
                                 out[i] = Store<Out>(function(Number(a[i]), Number(b[i])));
                             } else if (a_stride == 1) {
                               const auto right = Number(b[0]);
                               for (int64_t i = 0; i < count; ++i) out[i] = Store<Out>(function(Number(a[i]), right));
                             } else {
                               for (int64_t i = 0; i < count; ++i) {
                                 out[i] = Store<Out>(function(Number(a[i * a_stride]), Number(b[i * b_stride])));
                               }
                             }
                           });
  return absl::OkStatus();
}

template <typename N>
N FloatRemainder(N x, N y) {
  const N rest = std::fmod(x, y);
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
// floor(x / y) by way of the remainder, as CPython's float_divmod: exact where the quotient rounds up.
template <typename N>
N FloatFloorDiv(N x, N y) {
  if (y == 0) return x / y;
  const N quotient = (x - FloatRemainder(x, y)) / y;
  if (quotient == 0) return std::copysign(N{0}, x / y);
  const N whole = std::floor(quotient);
  return quotient - whole > N{0.5} ? whole + 1 : whole;
}
// y is not 0. The quotient of the lowest integer and -1 does not fit and wraps around.
template <typename N>
N IntegerRemainder(N x, N y) {
  if (y == -1) return 0;
  const N rest = x % y;
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
template <typename N>
N IntegerFloorDiv(N x, N y) {
  using Unsigned = std::make_unsigned_t<N>;
  if (y == -1) return static_cast<N>(Unsigned{0} - static_cast<Unsigned>(x));
  return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
}

template <typename A, typename B>
absl::Status Compare(BinaryOp op, const Operands& operands) {
  switch (op) {
    case BinaryOp::kEqual:
      return Map<A, B, uint8_t>(operands, [](auto x, auto y) { return x == y; });
    case BinaryOp::kNotEqual:
      return Map<A, B, uint8_t>(operands, [](auto x, auto y) { return x != y; });
    case BinaryOp::kLess:
      return Map<A, B, uint8_t>(operands, [](auto x, auto y) { return x < y; });
    case BinaryOp::kLessEqual:
      return Map<A, B, uint8_t>(operands, [](auto x, auto y) { return x <= y; });
    case BinaryOp::kGreater:
      return Map<A, B, uint8_t>(operands, [](auto x, auto y) { return x > y; });
    default:
      return Map<A, B, uint8_t>(operands, [](auto x, auto y) { return x >= y; });
  }
}

// kPow, kFloorDiv and kRemainder.
template <typename A, typename B>
absl::Status SlowFloats(BinaryOp op, const Operands& operands) {
  switch (op) {
    case BinaryOp::kPow:
      return Map<A, B, A>(operands, [](auto x, auto y) { return std::pow(x, y); });
    case BinaryOp::kFloorDiv:
      return Map<A, B, A>(operands, [](auto x, auto y) { return FloatFloorDiv(x, y); });
    default:
      return Map<A, B, A>(operands, [](auto x, auto y) { return FloatRemainder(x, y); });
  }
}

absl::Status Doubles(BinaryOp op, const Operands& operands) {
  switch (op) {
    case BinaryOp::kAdd:
      return Map<double, double, double>(operands, [](double x, double y) { return x + y; });
    case BinaryOp::kSub:
      return Map<double, double, double>(operands, [](double x, double y) { return x - y; });
    case BinaryOp::kMul:
      return Map<double, double, double>(operands, [](double x, double y) { return x * y; });
    case BinaryOp::kDiv:
      return Map<double, double, double>(operands, [](double x, double y) { return x / y; });
    case BinaryOp::kMaximum:
      return Map<double, double, double>(operands, [](double x, double y) { return x > y || std::isnan(x) ? x : y; });
    case BinaryOp::kMinimum:
      return Map<double, double, double>(operands, [](double x, double y) { return x < y || std::isnan(x) ? x : y; });
    default:
      return SlowFloats<double, double>(op, operands);
  }
}

// Sums and products are computed unsigned, so that an overflow wraps around.
template <typename N>
absl::Status Integers(BinaryOp op, const Operands& operands, DType dtype) {
  using Unsigned = std::make_unsigned_t<N>;
  const auto wrapping = [&](const auto& function) {
    return Map<N, N, N>(operands, [&](N x, N y) {
      return static_cast<N>(function(static_cast<Unsigned>(x), static_cast<Unsigned>(y)));
    });
  };
  switch (op) {
    case BinaryOp::kAdd:
      return wrapping([](Unsigned x, Unsigned y) { return x + y; });
    case BinaryOp::kSub:
      return wrapping([](Unsigned x, Unsigned y) { return x - y; });
    case BinaryOp::kMul:
      return wrapping([](Unsigned x, Unsigned y) { return x * y; });
    case BinaryOp::kMaximum:
      return Map<N, N, N>(operands, [](N x, N y) { return x > y ? x : y; });
    case BinaryOp::kMinimum:
      return Map<N, N, N>(operands, [](N x, N y) { return x < y ? x : y; });
    case BinaryOp::kFloorDiv:
      return Map<N, N, N>(operands, [](N x, N y) { return IntegerFloorDiv(x, y); });
    case BinaryOp::kRemainder:
      return Map<N, N, N>(operands, [](N x, N y) { return IntegerRemainder(x, y); });
    default:
      return Unimplemented("div and pow", dtype);
  }
}

template <typename N>
absl::Status CheckDivisors(const ConstTensorView& b) {
  const N* divisors = static_cast<const N*>(b.data);
  for (int64_t i = 0; i < ElementCount(b.shape); ++i) {
    if (divisors[i] == 0) return absl::InvalidArgumentError(absl::StrCat("division by 0 at position ", i));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BinaryPlain(int threads, BinaryOp op, const StridedLoop<2>& loop, const ConstTensorView& a,
                         const ConstTensorView& b, const TensorView& output) {
  const Operands operands{threads, loop, a.data, b.data, output.data};
  if (IsLogical(op)) {
    if (a.dtype != DType::kBool) return Unimplemented("a logical function", a.dtype);
    if (op == BinaryOp::kAnd) return Map<uint8_t, uint8_t, uint8_t>(operands, [](auto x, auto y) { return x & y; });
    return Map<uint8_t, uint8_t, uint8_t>(operands, [](auto x, auto y) { return x | y; });
  }
  const bool compares = WritesBool(op);
  const bool divides = op == BinaryOp::kFloorDiv || op == BinaryOp::kRemainder;
  switch (a.dtype) {
    case DType::kF32:
      return compares ? Compare<float, float>(op, operands) : SlowFloats<float, float>(op, operands);
    case DType::kBF16:
      if (b.dtype == DType::kF32) {
        return compares ? Compare<uint16_t, float>(op, operands) : SlowFloats<uint16_t, float>(op, operands);
      }
      return compares ? Compare<uint16_t, uint16_t>(op, operands) : SlowFloats<uint16_t, uint16_t>(op, operands);
    case DType::kF64:
      return compares ? Compare<double, double>(op, operands) : Doubles(op, operands);
    case DType::kI64:
      if (divides) TP_RETURN_IF_ERROR(CheckDivisors<int64_t>(b));
      return compares ? Compare<int64_t, int64_t>(op, operands) : Integers<int64_t>(op, operands, a.dtype);
    case DType::kI32:
      if (divides) TP_RETURN_IF_ERROR(CheckDivisors<int32_t>(b));
      return compares ? Compare<int32_t, int32_t>(op, operands) : Integers<int32_t>(op, operands, a.dtype);
    case DType::kBool:
      return compares ? Compare<uint8_t, uint8_t>(op, operands) : Unimplemented("binary", a.dtype);
    default:
      return Unimplemented("binary", a.dtype);
  }
}

}  // namespace tp::worker::kernels
