#include <cmath>
#include <type_traits>

#include "common/base/status.h"
#include "worker/device/broadcast.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/faults.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/strided_index.h"

namespace tp::worker::cuda {
namespace {

TP_HD float Fmod(float x, float y) { return fmodf(x, y); }
TP_HD double Fmod(double x, double y) { return fmod(x, y); }
TP_HD float Pow(float x, float y) { return powf(x, y); }
TP_HD double Pow(double x, double y) { return pow(x, y); }
TP_HD float Floor(float x) { return floorf(x); }
TP_HD double Floor(double x) { return floor(x); }
TP_HD float WithSign(float x, float sign) { return copysignf(x, sign); }
TP_HD double WithSign(double x, double sign) { return copysign(x, sign); }

template <class N>
TP_HD N FloatRemainder(N x, N y) {
  const N rest = Fmod(x, y);
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
// floor(x / y) by way of the remainder: exact where the quotient rounds up.
template <class N>
TP_HD N FloatFloorDiv(N x, N y) {
  if (y == 0) return x / y;
  const N quotient = (x - FloatRemainder(x, y)) / y;
  if (quotient == 0) return WithSign(N{0}, x / y);
  const N whole = Floor(quotient);
  return quotient - whole > N{0.5} ? whole + 1 : whole;
}
// A y of 0 was noted as a fault. The quotient of the lowest integer and -1 does not fit and wraps around.
template <class N>
TP_HD N IntegerRemainder(N x, N y) {
  if (y == 0 || y == -1) return 0;
  const N rest = x % y;
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
template <class N>
TP_HD N IntegerFloorDiv(N x, N y) {
  using Unsigned = std::make_unsigned_t<N>;
  if (y == 0) return 0;
  if (y == -1) return static_cast<N>(Unsigned{0} - static_cast<Unsigned>(x));
  return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
}

// Groups of functions; which of them is chosen at run time, alike for all threads, so that there are few kernels.
struct FloatArithmetic {
  BinaryOp op;
  template <class N>
  TP_HD N operator()(N x, N y) const {
    switch (op) {
      case BinaryOp::kAdd:
        return x + y;
      case BinaryOp::kSub:
        return x - y;
      case BinaryOp::kMul:
        return x * y;
      case BinaryOp::kDiv:
        return x / y;
      case BinaryOp::kMaximum:
        return x > y || x != x ? x : y;
      default:
        return x < y || x != x ? x : y;
    }
  }
};
struct SlowFloats {
  BinaryOp op;
  template <class N>
  TP_HD N operator()(N x, N y) const {
    if (op == BinaryOp::kPow) return Pow(x, y);
    return op == BinaryOp::kFloorDiv ? FloatFloorDiv(x, y) : FloatRemainder(x, y);
  }
};
// Sums and products are computed unsigned, so that an overflow wraps around.
struct IntegerArithmetic {
  BinaryOp op;
  template <class N>
  TP_HD N operator()(N x, N y) const {
    using Unsigned = std::make_unsigned_t<N>;
    const Unsigned a = static_cast<Unsigned>(x), b = static_cast<Unsigned>(y);
    switch (op) {
      case BinaryOp::kAdd:
        return static_cast<N>(a + b);
      case BinaryOp::kSub:
        return static_cast<N>(a - b);
      case BinaryOp::kMul:
        return static_cast<N>(a * b);
      case BinaryOp::kMaximum:
        return x > y ? x : y;
      case BinaryOp::kMinimum:
        return x < y ? x : y;
      case BinaryOp::kFloorDiv:
        return IntegerFloorDiv(x, y);
      default:
        return IntegerRemainder(x, y);
    }
  }
};
struct Comparison {
  BinaryOp op;
  template <class N>
  TP_HD bool operator()(N x, N y) const {
    switch (op) {
      case BinaryOp::kEqual:
        return x == y;
      case BinaryOp::kNotEqual:
        return x != y;
      case BinaryOp::kLess:
        return x < y;
      case BinaryOp::kLessEqual:
        return x <= y;
      case BinaryOp::kGreater:
        return x > y;
      case BinaryOp::kGreaterEqual:
        return x >= y;
      case BinaryOp::kAnd:
        return x != 0 && y != 0;
      default:
        return x != 0 || y != 0;
    }
  }
};

// The right operand: elements, or one number.
template <class T>
struct Right {
  const T* elements;
  WideType<T> number;
};

template <class T, class Out, class Function>
struct Combine {
  StridedIndex<2> index;
  const T* a;
  Right<T> b;
  Out* out;
  Function function;
  TP_HD void operator()(int64_t i) const {
    int64_t at[2];
    index.Locate(i, at);
    const WideType<T> y = b.elements == nullptr ? b.number : Widen(b.elements[at[1]]);
    out[i] = Narrow<Out>(function(Widen(a[at[0]]), y));
  }
};

// Neighbouring elements of a and neighbours or one number of b, 16 bytes at a time.
template <class T, class Function>
struct CombinePacks {
  static constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  struct alignas(16) Pack {
    T at[kPack];
  };
  const T* a;
  Right<T> b;
  T* out;
  Function function;
  TP_HD void operator()(int64_t i) const {
    const Pack x = reinterpret_cast<const Pack*>(a)[i];
    Pack to;
    if (b.elements == nullptr) {
      for (int j = 0; j < kPack; ++j) to.at[j] = Narrow<T>(function(Widen(x.at[j]), b.number));
    } else {
      const Pack y = reinterpret_cast<const Pack*>(b.elements)[i];
      for (int j = 0; j < kPack; ++j) to.at[j] = Narrow<T>(function(Widen(x.at[j]), Widen(y.at[j])));
    }
    reinterpret_cast<Pack*>(out)[i] = to;
  }
};

template <class T>
struct Operands {
  cudaStream_t stream;
  StridedIndex<2> index;
  int64_t count;
  const T* a;
  Right<T> b;
  void* output;
};

template <class T, class Function>
absl::Status Compare(const Operands<T>& o, const Function& function) {
  return ForEach("binary", o.stream, o.count,
                 Combine<T, Flag, Function>{o.index, o.a, o.b, static_cast<Flag*>(o.output), function});
}
template <class T, class Function>
absl::Status Arithmetic(const Operands<T>& o, const Function& function) {
  return ForEach("binary", o.stream, o.count,
                 Combine<T, T, Function>{o.index, o.a, o.b, static_cast<T*>(o.output), function});
}
bool Aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }
template <class T>
absl::Status Floats(BinaryOp op, const Operands<T>& o) {
  if (WritesBool(op)) return Compare(o, Comparison{op});
  if (op == BinaryOp::kPow || op == BinaryOp::kFloorDiv || op == BinaryOp::kRemainder) {
    return Arithmetic(o, SlowFloats{op});
  }
  using Packs = CombinePacks<T, FloatArithmetic>;
  const bool packs = o.index.rank == 1 && o.index.strides[0][0] == 1 && o.count % Packs::kPack == 0 && Aligned(o.a) &&
                     Aligned(o.output) &&
                     (o.b.elements == nullptr || (o.index.strides[1][0] == 1 && Aligned(o.b.elements)));
  if (!packs) return Arithmetic(o, FloatArithmetic{op});
  return ForEach("binary", o.stream, o.count / Packs::kPack,
                 Packs{o.a, o.b, static_cast<T*>(o.output), FloatArithmetic{op}});
}

struct IsZero {
  template <class N>
  TP_HD bool operator()(N value) const {
    return value == 0;
  }
};

// `b` is the right operand, or its shape is [] and `number` is it.
template <class T>
absl::Status Run(cudaStream_t stream, KernelFault* fault, BinaryOp op, const ConstTensorView& a,
                 const ConstTensorView& b, WideType<T> number, const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const StridedLoop<2> loop, BinaryLoop(op, a, b, output));
  const int64_t count = ElementCount(output.shape);
  if (count == 0) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(const StridedIndex<2> index, StridedIndex<2>::Create("binary", loop));
  const Operands<T> operands{stream, index, count, As<T>(a), {As<T>(b), number}, output.data};
  if constexpr (std::is_same_v<T, Flag>) {
    if (!WritesBool(op)) return Unimplemented("binary", a.dtype);
    return Compare(operands, Comparison{op});
  } else {
    if (IsLogical(op)) return Unimplemented("a logical function", a.dtype);
    if constexpr (std::is_integral_v<T>) {
      if (WritesBool(op)) return Compare(operands, Comparison{op});
      if (op == BinaryOp::kDiv || op == BinaryOp::kPow) return Unimplemented("div and pow", a.dtype);
      if (op == BinaryOp::kFloorDiv || op == BinaryOp::kRemainder) {
        if (b.data == nullptr && number == 0) return absl::InvalidArgumentError("division by 0 at position 0");
        if (b.data != nullptr) {
          TP_RETURN_IF_ERROR(CheckElements("division", stream, fault, KernelFault::kDivisionByZero, As<T>(b),
                                           ElementCount(b.shape), 0, IsZero()));
        }
      }
      return Arithmetic(operands, IntegerArithmetic{op});
    } else {
      return Floats(op, operands);
    }
  }
}

// visit(T{}) for what has binary functions.
template <class Visit>
absl::Status VisitOperands(DType dtype, const Visit& visit) {
  if (dtype == DType::kF64) return visit(double{});
  if (dtype == DType::kI64) return visit(int64_t{});
  if (dtype == DType::kI32) return visit(int32_t{});
  if (dtype == DType::kBool) return visit(Flag{});
  return VisitFloats("binary", dtype, visit);
}

}  // namespace

absl::Status Binary(cudaStream_t stream, KernelFault* fault, BinaryOp op, const ConstTensorView& a,
                    const ConstTensorView& b, const TensorView& output) {
  if (a.dtype != b.dtype) return absl::InvalidArgumentError("binary: operands must have one dtype");
  return VisitOperands(a.dtype, [&](auto type) { return Run<decltype(type)>(stream, fault, op, a, b, {}, output); });
}

absl::Status BinaryScalar(cudaStream_t stream, KernelFault* fault, BinaryOp op, const ConstTensorView& a, double b,
                          const TensorView& output) {
  return VisitOperands(a.dtype, [&](auto type) -> absl::Status {
    using T = decltype(type);
    // Floats take the number as they compute with it.
    const DType dtype = std::is_same_v<WideType<T>, float> ? DType::kF32 : a.dtype;
    TP_ASSIGN_OR_RETURN(const Element element, EncodeElement("binary", dtype, b));
    WideType<T> number;
    std::memcpy(&number, element.bytes, sizeof(number));
    return Run<T>(stream, fault, op, a, ConstTensorView(a.dtype, nullptr, {}), number, output);
  });
}

// --- Choices by a condition: elements are only moved.
namespace {

template <class T>
struct Choose {
  StridedIndex<3> index;
  const Flag* condition;
  const T* a;  // nullptr: `number`
  const T* b;
  T number;
  T* out;
  TP_HD void operator()(int64_t i) const {
    int64_t at[3];
    index.Locate(i, at);
    if (condition[at[0]].bits != 0) {
      out[i] = a == nullptr ? number : a[at[1]];
    } else {
      out[i] = b[at[2]];
    }
  }
};

// a without data is the one number in `element`.
absl::Status ChooseElements(cudaStream_t stream, const ConstTensorView& condition, const ConstTensorView& a,
                            const ConstTensorView& b, const Element& element, const TensorView& output) {
  if (condition.dtype != DType::kBool) return Unimplemented("a condition", condition.dtype);
  TP_ASSIGN_OR_RETURN(const StridedLoop<3> loop, WhereLoop(condition, a, b, output));
  const int64_t count = ElementCount(output.shape);
  if (count == 0) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(const StridedIndex<3> index, StridedIndex<3>::Create("where", loop));
  const auto run = [&](auto type) {
    using T = decltype(type);
    T number;
    std::memcpy(&number, element.bytes, sizeof(number));
    return ForEach("where", stream, count,
                   Choose<T>{index, As<Flag>(condition), As<T>(a), As<T>(b), number, As<T>(output)});
  };
  switch (ItemSize(output.dtype)) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

}  // namespace

absl::Status Where(cudaStream_t stream, const ConstTensorView& condition, const ConstTensorView& a,
                   const ConstTensorView& b, const TensorView& output) {
  return ChooseElements(stream, condition, a, b, {}, output);
}

absl::Status MaskedFill(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView& mask, double value,
                        const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const Element element, EncodeElement("masked_fill", input.dtype, value));
  return ChooseElements(stream, mask, ConstTensorView(input.dtype, nullptr, {}), input, element, output);
}

}  // namespace tp::worker::cuda
