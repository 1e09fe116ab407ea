#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/tensor/host_tensor.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu/kernels_elementwise.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "worker/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

// A function that has no vector form, element by element.
template <typename T, typename Function>
HWY_INLINE void MapLanes(const T* in, T* out, int64_t count, const Function& function) {
  MapRow(in, out, count, [&function](auto d, auto x) HWY_ATTR {
    HWY_ALIGN float lane[hn::MaxLanes(FloatTag())];
    hn::Store(x, d, lane);
    for (float& v : lane) v = function(v);
    return hn::Load(d, lane);
  });
}

template <typename T>
void UnaryRow(UnaryOp op, const T* in, T* out, int64_t count) {
  switch (op) {
    case UnaryOp::kSilu:
      return MapRow(in, out, count, [](auto d, auto x) HWY_ATTR {
        return hn::Div(x, hn::Add(hn::Set(d, 1.0f), Exponential(d, hn::Neg(x))));
      });
    case UnaryOp::kRelu:  // NaN stays NaN
      return MapRow(in, out, count,
                    [](auto d, auto x) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x); });
    case UnaryOp::kGeluTanh:
      return MapRow(in, out, count, [](auto d, auto x) HWY_ATTR {
        const auto cube = hn::Mul(hn::Mul(x, x), hn::Mul(x, hn::Set(d, 0.044715f)));
        const auto t = hn::Tanh(d, hn::Mul(hn::Set(d, 0.7978845608028654f), hn::Add(x, cube)));
        return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), t));
      });
    case UnaryOp::kNegate:
      return MapRow(in, out, count, [](auto, auto x) HWY_ATTR { return hn::Neg(x); });
    case UnaryOp::kGelu:
      return MapLanes(in, out, count, [](float v) { return 0.5f * v * (1.0f + std::erf(v * 0.7071067811865476f)); });
    case UnaryOp::kAbs:
      return MapRow(in, out, count, [](auto, auto x) HWY_ATTR { return hn::Abs(x); });
    case UnaryOp::kExp:
      return MapRow(in, out, count, [](auto d, auto x) HWY_ATTR { return Exponential(d, x); });
    case UnaryOp::kLog:
      return MapLanes(in, out, count, [](float v) { return std::log(v); });
    case UnaryOp::kSqrt:
      return MapRow(in, out, count, [](auto, auto x) HWY_ATTR { return hn::Sqrt(x); });
    case UnaryOp::kRsqrt:
      return MapRow(in, out, count, [](auto d, auto x) HWY_ATTR { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); });
    case UnaryOp::kSin:
      return MapLanes(in, out, count, [](float v) { return std::sin(v); });
    case UnaryOp::kCos:
      return MapLanes(in, out, count, [](float v) { return std::cos(v); });
    case UnaryOp::kTanh:
      return MapLanes(in, out, count, [](float v) { return std::tanh(v); });
    case UnaryOp::kSigmoid:
      return MapRow(in, out, count, [](auto d, auto x) HWY_ATTR {
        const auto one = hn::Set(d, 1.0f);
        return hn::Div(one, hn::Add(one, Exponential(d, hn::Neg(x))));
      });
    case UnaryOp::kNot:  // of BOOL only
      return;
  }
}
void UnaryF32(UnaryOp op, const float* in, float* out, int64_t count) { UnaryRow(op, in, out, count); }
void UnaryBF16(UnaryOp op, const uint16_t* in, uint16_t* out, int64_t count) { UnaryRow(op, in, out, count); }

template <typename T>
void ScaleRow(const T* in, float factor, T* out, int64_t count) {
  MapRow(in, out, count, [factor](auto d, auto x) HWY_ATTR { return hn::Mul(x, hn::Set(d, factor)); });
}
void ScaleF32(const float* in, float factor, float* out, int64_t count) { ScaleRow(in, factor, out, count); }
void ScaleBF16(const uint16_t* in, float factor, uint16_t* out, int64_t count) { ScaleRow(in, factor, out, count); }

void Widen(const uint16_t* in, float* out, int64_t count) {
  MapRow(in, out, count, [](auto, auto x) HWY_ATTR { return x; });
}
void Round(const float* in, uint16_t* out, int64_t count) {
  MapRow(in, out, count, [](auto, auto x) HWY_ATTR { return x; });
}
const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp::worker::kernels {
HWY_EXPORT(UnaryF32);
HWY_EXPORT(UnaryBF16);
HWY_EXPORT(ScaleF32);
HWY_EXPORT(ScaleBF16);
HWY_EXPORT(Widen);
HWY_EXPORT(Round);
HWY_EXPORT(Target);

namespace {

constexpr int64_t kGrain = 1 << 14;  // elements, about 10 us of work

// body(begin, end) over the elements of `view`.
template <typename Body>
absl::Status ForElements(int threads, const ConstTensorView& view, const Body& body) {
  ParallelFor(threads, ElementCount(view.shape), kGrain, body);
  return absl::OkStatus();
}

template <typename T>
const T* As(const ConstTensorView& view) {
  return static_cast<const T*>(view.data);
}
template <typename T>
T* As(const TensorView& view) {
  return static_cast<T*>(view.data);
}

// The negative of the lowest integer wraps around to itself.
template <typename N>
absl::Status UnaryIntegers(int threads, UnaryOp op, const ConstTensorView& input, const TensorView& output) {
  using Unsigned = std::make_unsigned_t<N>;
  if (op != UnaryOp::kNegate && op != UnaryOp::kAbs && op != UnaryOp::kRelu) {
    return Unimplemented("unary", input.dtype);
  }
  return ForElements(threads, input, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const N x = As<N>(input)[i];
      const N negative = static_cast<N>(Unsigned{0} - static_cast<Unsigned>(x));
      const N below = op == UnaryOp::kRelu ? 0 : negative;  // of an x below 0
      As<N>(output)[i] = x < 0 || op == UnaryOp::kNegate ? below : x;
    }
  });
}

}  // namespace

std::string TargetName() { return HWY_DYNAMIC_DISPATCH(Target)(); }

void WidenBF16(const uint16_t* from, float* to, int64_t count) { HWY_DYNAMIC_DISPATCH(Widen)(from, to, count); }
void RoundToBF16(const float* from, uint16_t* to, int64_t count) { HWY_DYNAMIC_DISPATCH(Round)(from, to, count); }

absl::Status Unimplemented(std::string_view kernel, DType dtype) {
  return absl::UnimplementedError(
      absl::StrCat(std::string(kernel), " of ", std::string(DTypeName(dtype)), " on the CPU device"));
}

absl::Status Unary(int threads, UnaryOp op, const ConstTensorView& input, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("unary", input, output));
  if ((op == UnaryOp::kNot) != (input.dtype == DType::kBool)) return Unimplemented("unary", input.dtype);
  switch (input.dtype) {
    case DType::kF32:
      return ForElements(threads, input, [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(UnaryF32)(op, As<float>(input) + begin, As<float>(output) + begin, end - begin);
      });
    case DType::kBF16:
      return ForElements(threads, input, [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(UnaryBF16)(op, As<uint16_t>(input) + begin, As<uint16_t>(output) + begin, end - begin);
      });
    case DType::kI64:
      return UnaryIntegers<int64_t>(threads, op, input, output);
    case DType::kI32:
      return UnaryIntegers<int32_t>(threads, op, input, output);
    case DType::kBool:
      return ForElements(threads, input, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) As<uint8_t>(output)[i] = As<uint8_t>(input)[i] == 0 ? 1 : 0;
      });
    case DType::kF64:
      if (op != UnaryOp::kNegate) break;
      return ForElements(threads, input, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) As<double>(output)[i] = -As<double>(input)[i];
      });
    default:
      break;
  }
  return Unimplemented("unary", input.dtype);
}

absl::Status Scale(int threads, const ConstTensorView& input, double factor, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("scale", input, output));
  const float narrow = static_cast<float>(factor);
  if (input.dtype == DType::kF32) {
    return ForElements(threads, input, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(ScaleF32)(As<float>(input) + begin, narrow, As<float>(output) + begin, end - begin);
    });
  }
  if (input.dtype == DType::kBF16) {
    return ForElements(threads, input, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(ScaleBF16)(As<uint16_t>(input) + begin, narrow, As<uint16_t>(output) + begin, end - begin);
    });
  }
  if (input.dtype == DType::kF64) {
    return ForElements(threads, input, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) As<double>(output)[i] = As<double>(input)[i] * factor;
    });
  }
  if (input.dtype == DType::kF16) {
    return ForElements(threads, input, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        As<uint16_t>(output)[i] = F16FromFloat(FloatFromF16(As<uint16_t>(input)[i]) * narrow);
      }
    });
  }
  return Unimplemented("scale", input.dtype);
}

absl::Status Cast(int threads, const ConstTensorView& input, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("cast", input, output, /*dtypes=*/false));
  const int64_t from_size = ItemSize(input.dtype);
  const int64_t to_size = ItemSize(output.dtype);
  return ForElements(threads, input, [&](int64_t begin, int64_t end) {
    const char* from = As<char>(input) + begin * from_size;
    char* to = As<char>(output) + begin * to_size;
    if (input.dtype == output.dtype) {
      std::memmove(to, from, static_cast<size_t>((end - begin) * from_size));
    } else if (input.dtype == DType::kBF16 && output.dtype == DType::kF32) {
      WidenBF16(As<uint16_t>(input) + begin, As<float>(output) + begin, end - begin);
    } else if (input.dtype == DType::kF32 && output.dtype == DType::kBF16) {
      RoundToBF16(As<float>(input) + begin, As<uint16_t>(output) + begin, end - begin);
    } else {
      const HostTensor piece{
          input.dtype, {end - begin}, std::string(from, static_cast<size_t>((end - begin) * from_size))};
      const HostTensor converted = ConvertTo(piece, output.dtype);
      std::memcpy(to, converted.bytes.data(), converted.bytes.size());
    }
  });
}

}  // namespace tp::worker::kernels
#endif  // HWY_ONCE
