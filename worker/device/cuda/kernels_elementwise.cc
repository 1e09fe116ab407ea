#include <cmath>
#include <type_traits>

#include "common/base/status.h"
#include "worker/device/cuda/convert.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/shapes.h"

namespace tp::worker::cuda {
namespace {

// Elements of 4 bytes at a time where both sides allow it: more would unroll the functions too often to compile fast.
template <class T>
struct alignas(sizeof(T) < 4 ? 4 : sizeof(T)) Pack {
  static constexpr int kSize = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;
  T at[kSize];
};

// out[i] = function(in[i]) in the type that T computes in, for pack i of `count` elements.
template <class T, class Function>
struct MapPacks {
  const T* in;
  T* out;
  int64_t count;
  bool aligned;
  Function function;
  TP_HD void operator()(int64_t i) const {
    constexpr int kSize = Pack<T>::kSize;
    if (aligned && (i + 1) * kSize <= count) {
      Pack<T> pack = reinterpret_cast<const Pack<T>*>(in)[i];
      for (int j = 0; j < kSize; ++j) pack.at[j] = Narrow<T>(function(Widen(pack.at[j])));
      reinterpret_cast<Pack<T>*>(out)[i] = pack;
    } else {
      for (int64_t j = i * kSize; j < (i + 1) * kSize && j < count; ++j) out[j] = Narrow<T>(function(Widen(in[j])));
    }
  }
};

template <class T, class Function>
absl::Status Map(const char* kernel, cudaStream_t stream, const ConstTensorView& input, const TensorView& output,
                 const Function& function) {
  const int64_t count = ElementCount(input.shape);
  const auto aligned = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % sizeof(Pack<T>) == 0; };
  return ForEach(
      kernel, stream, (count + Pack<T>::kSize - 1) / Pack<T>::kSize,
      MapPacks<T, Function>{As<T>(input), As<T>(output), count, aligned(input.data) && aligned(output.data), function});
}

// Which function is chosen at run time, alike for all threads: one kernel a dtype.
struct Function {
  UnaryOp op;
  TP_HD float operator()(float x) const {
    switch (op) {
      case UnaryOp::kSilu:
        return x / (1.0f + expf(-x));
      case UnaryOp::kRelu:  // NaN stays NaN
        return x < 0 ? 0.0f : x;
      case UnaryOp::kGelu:
        return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
      case UnaryOp::kGeluTanh:
        return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + x * x * (x * 0.044715f))));
      case UnaryOp::kNegate:
        return -x;
      case UnaryOp::kAbs:
        return fabsf(x);
      case UnaryOp::kExp:
        return expf(x);
      case UnaryOp::kLog:
        return logf(x);
      case UnaryOp::kSqrt:
        return sqrtf(x);
      case UnaryOp::kRsqrt:
        return 1.0f / sqrtf(x);
      case UnaryOp::kTanh:
        return tanhf(x);
      default:
        return 1.0f / (1.0f + expf(-x));
    }
  }
};
// Apart: of large numbers they need much more of the registers.
struct SinOrCos {
  UnaryOp op;
  TP_HD float operator()(float x) const { return op == UnaryOp::kSin ? sinf(x) : cosf(x); }
};
// The negative of the lowest integer wraps around to itself.
template <class N>
struct OfIntegers {
  UnaryOp op;
  TP_HD N operator()(N x) const {
    using Unsigned = std::make_unsigned_t<N>;
    const N negative = static_cast<N>(Unsigned{0} - static_cast<Unsigned>(x));
    const N below = op == UnaryOp::kRelu ? 0 : negative;  // of an x below 0
    return x < 0 || op == UnaryOp::kNegate ? below : x;
  }
};
struct Not {
  TP_HD uint8_t operator()(uint8_t x) const { return x == 0 ? 1 : 0; }
};
template <class N>
struct Multiply {
  N factor;
  TP_HD N operator()(N x) const { return x * factor; }
};

template <class N>
absl::Status UnaryIntegers(cudaStream_t stream, UnaryOp op, const ConstTensorView& input, const TensorView& output) {
  if (op != UnaryOp::kNegate && op != UnaryOp::kAbs && op != UnaryOp::kRelu) return Unimplemented("unary", input.dtype);
  return Map<N>("unary", stream, input, output, OfIntegers<N>{op});
}

// Every pair of dtypes: `from` is chosen at run time.
template <class To>
struct CastEach {
  DType from;
  const void* in;
  To* out;
  TP_HD void operator()(int64_t i) const {
    switch (from) {
      case DType::kF32:
        return FromFloat(static_cast<const float*>(in)[i], i);
      case DType::kBF16:
        return FromFloat(static_cast<const BF16*>(in)[i], i);
      case DType::kF16:
        return FromFloat(static_cast<const F16*>(in)[i], i);
      case DType::kF64:
        return FromFloat(static_cast<const double*>(in)[i], i);
      case DType::kI64:
        return FromInteger(static_cast<const int64_t*>(in)[i], i);
      case DType::kI32:
        return FromInteger(static_cast<const int32_t*>(in)[i], i);
      case DType::kU8:
        return FromInteger(static_cast<const uint8_t*>(in)[i], i);
      case DType::kBool:
        return FromInteger(static_cast<const Flag*>(in)[i], i);
    }
  }
  template <class T>
  TP_HD void FromFloat(T value, int64_t i) const {
    out[i] = Convert<To>(static_cast<double>(Widen(value)));
  }
  template <class T>
  TP_HD void FromInteger(T value, int64_t i) const {
    out[i] = Convert<To>(static_cast<int64_t>(Widen(value)));
  }
};
// The pairs that models are full of.
template <class From, class To>
struct CastFloats {
  const From* in;
  To* out;
  TP_HD void operator()(int64_t i) const { out[i] = Narrow<To>(Widen(in[i])); }
};

}  // namespace

absl::Status Unary(cudaStream_t stream, UnaryOp op, const ConstTensorView& input, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("unary", input, output));
  if ((op == UnaryOp::kNot) != (input.dtype == DType::kBool)) return Unimplemented("unary", input.dtype);
  switch (input.dtype) {
    case DType::kI64:
      return UnaryIntegers<int64_t>(stream, op, input, output);
    case DType::kI32:
      return UnaryIntegers<int32_t>(stream, op, input, output);
    case DType::kBool:
      return Map<Flag>("unary", stream, input, output, Not());
    case DType::kF64:
      if (op == UnaryOp::kNegate) return Map<double>("unary", stream, input, output, Multiply<double>{-1});
      break;
    default:
      break;
  }
  return VisitFloats("unary", input.dtype, [&](auto type) {
    using T = decltype(type);
    if (op == UnaryOp::kSin || op == UnaryOp::kCos) return Map<T>("unary", stream, input, output, SinOrCos{op});
    return Map<T>("unary", stream, input, output, Function{op});
  });
}

absl::Status Scale(cudaStream_t stream, const ConstTensorView& input, double factor, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("scale", input, output));
  if (input.dtype == DType::kF64) return Map<double>("scale", stream, input, output, Multiply<double>{factor});
  return VisitFloats("scale", input.dtype, [&](auto type) {
    return Map<decltype(type)>("scale", stream, input, output, Multiply<float>{static_cast<float>(factor)});
  });
}

absl::Status Cast(cudaStream_t stream, const ConstTensorView& input, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("cast", input, output, /*dtypes=*/false));
  const int64_t count = ElementCount(input.shape);
  if (count == 0) return absl::OkStatus();
  if (input.dtype == output.dtype) {
    if (input.data == output.data) return absl::OkStatus();
    return CudaStatus(cudaMemcpyAsync(output.data, input.data, static_cast<size_t>(count * ItemSize(input.dtype)),
                                      cudaMemcpyDeviceToDevice, stream),
                      "cast");
  }
  const auto floats = [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    return ForEach("cast", stream, count, CastFloats<From, To>{As<From>(input), As<To>(output)});
  };
  const auto pair = [&](DType from, DType to) { return input.dtype == from && output.dtype == to; };
  if (pair(DType::kF32, DType::kBF16)) return floats(float{}, BF16{});
  if (pair(DType::kBF16, DType::kF32)) return floats(BF16{}, float{});
  if (pair(DType::kF32, DType::kF16)) return floats(float{}, F16{});
  if (pair(DType::kF16, DType::kF32)) return floats(F16{}, float{});
  return VisitElements(output.dtype, [&](auto to) {
    using To = decltype(to);
    return ForEach("cast", stream, count, CastEach<To>{input.dtype, input.data, As<To>(output)});
  });
}

}  // namespace tp::worker::cuda
