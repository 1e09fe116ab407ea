#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu/kernels_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "worker/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

// A value as the dtype holds it.
HWY_INLINE FloatVec Rounded(FloatTag, FloatVec v, const float*) { return v; }
HWY_INLINE FloatVec Rounded(FloatTag d, FloatVec v, const uint16_t*) {
  HWY_ALIGN uint16_t lane[hn::MaxLanes(FloatTag())];
  StoreF32(v, d, lane);
  return LoadF32(d, static_cast<const uint16_t*>(lane));
}

// out = weight * cast(x / sqrt(mean(x^2) + eps)): the cast to x's dtype comes before the weight.
template <typename T, typename W>
void RmsNormRow(const T* x, const W* weight, float eps, T* out, int64_t count) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const FloatVec v = LoadF32(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  const size_t rest = static_cast<size_t>(count - i);
  if (rest > 0) {
    const FloatVec v = LoadPart(d, x + i, rest);
    sum = hn::MulAdd(v, v, sum);
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(count);
  const FloatVec factor = hn::Set(d, 1.0f / std::sqrt(mean + eps));
  for (i = 0; i + lanes <= count; i += lanes) {
    const FloatVec v = Rounded(d, hn::Mul(LoadF32(d, x + i), factor), x);
    StoreF32(hn::Mul(v, LoadF32(d, weight + i)), d, out + i);
  }
  if (rest > 0) {
    const FloatVec v = Rounded(d, hn::Mul(LoadPart(d, x + i, rest), factor), x);
    StorePart(hn::Mul(v, LoadPart(d, weight + i, rest)), d, out + i, rest);
  }
}

void RmsNormTyped(bool x_half, bool weight_half, const void* x, const void* weight, float eps, void* out,
                  int64_t count) {
  if (x_half && weight_half) {
    RmsNormRow(static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(weight), eps, static_cast<uint16_t*>(out),
               count);
  } else if (x_half) {
    RmsNormRow(static_cast<const uint16_t*>(x), static_cast<const float*>(weight), eps, static_cast<uint16_t*>(out),
               count);
  } else if (weight_half) {
    RmsNormRow(static_cast<const float*>(x), static_cast<const uint16_t*>(weight), eps, static_cast<float*>(out),
               count);
  } else {
    RmsNormRow(static_cast<const float*>(x), static_cast<const float*>(weight), eps, static_cast<float*>(out), count);
  }
}

// In place: e^(x - max) / sum. A NaN makes the whole row NaN, as does a row of -infinity.
void SoftmaxF32(float* x, int64_t count, bool log) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec most = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, hn::LoadU(d, x + i));
  float max = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) max = std::max(max, x[i]);
  const FloatVec shift = hn::Set(d, max);
  FloatVec sums = hn::Zero(d);
  for (i = 0; i + lanes <= count; i += lanes) {
    const FloatVec e = Exponential(d, hn::Sub(hn::LoadU(d, x + i), shift));
    sums = hn::Add(sums, e);
    if (!log) hn::StoreU(e, d, x + i);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  if (i < count) {
    const size_t rest = static_cast<size_t>(count - i);
    float e[hn::MaxLanes(FloatTag())];
    StorePart(Exponential(d, hn::Sub(LoadPart(d, static_cast<const float*>(x + i), rest), shift)), d, e, rest);
    for (size_t j = 0; j < rest; ++j) sum += e[j];
    if (!log) std::memcpy(x + i, e, rest * sizeof(float));
  }
  if (log) {
    const FloatVec logarithm = hn::Set(d, std::log(sum));
    MapRow(static_cast<const float*>(x), x, count,
           [shift, logarithm](auto, auto v) HWY_ATTR { return hn::Sub(hn::Sub(v, shift), logarithm); });
    return;
  }
  const FloatVec divisor = hn::Set(d, sum);
  MapRow(static_cast<const float*>(x), x, count, [divisor](auto, auto v) HWY_ATTR { return hn::Div(v, divisor); });
}

// out = (x - mean) / sqrt(variance + eps) * weight + bias, rounded once; the variance in a second pass, about the mean.
// weight and bias may be nullptr.
template <typename T>
void LayerNormRow(const T* x, const float* weight, const float* bias, float eps, T* out, int64_t count) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  const size_t rest = static_cast<size_t>(count - whole);
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < whole; i += lanes) sum = hn::Add(sum, LoadF32(d, x + i));
  if (rest > 0) sum = hn::Add(sum, LoadPart(d, x + whole, rest));
  const FloatVec mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(count));
  FloatVec squares = hn::Zero(d);
  for (int64_t i = 0; i < whole; i += lanes) {
    const FloatVec v = hn::Sub(LoadF32(d, x + i), mean);
    squares = hn::MulAdd(v, v, squares);
  }
  if (rest > 0) {  // the lanes past the end must not count
    float part[hn::MaxLanes(FloatTag())] = {};
    StorePart(hn::Sub(LoadPart(d, x + whole, rest), mean), d, part, rest);
    const FloatVec v = hn::LoadU(d, part);
    squares = hn::MulAdd(v, v, squares);
  }
  const float variance = hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(count);
  const FloatVec factor = hn::Set(d, 1.0f / std::sqrt(variance + eps));
  for (int64_t i = 0; i < whole; i += lanes) {
    FloatVec v = hn::Mul(hn::Sub(LoadF32(d, x + i), mean), factor);
    if (weight != nullptr) v = hn::Mul(v, hn::LoadU(d, weight + i));
    if (bias != nullptr) v = hn::Add(v, hn::LoadU(d, bias + i));
    StoreF32(v, d, out + i);
  }
  if (rest > 0) {
    FloatVec v = hn::Mul(hn::Sub(LoadPart(d, x + whole, rest), mean), factor);
    if (weight != nullptr) v = hn::Mul(v, LoadPart(d, weight + whole, rest));
    if (bias != nullptr) v = hn::Add(v, LoadPart(d, bias + whole, rest));
    StorePart(v, d, out + whole, rest);
  }
}
void LayerNormTyped(bool half, const void* x, const float* weight, const float* bias, float eps, void* out,
                    int64_t count) {
  if (half) {
    LayerNormRow(static_cast<const uint16_t*>(x), weight, bias, eps, static_cast<uint16_t*>(out), count);
  } else {
    LayerNormRow(static_cast<const float*>(x), weight, bias, eps, static_cast<float*>(out), count);
  }
}

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp::worker::kernels {
HWY_EXPORT(RmsNormTyped);
HWY_EXPORT(SoftmaxF32);
HWY_EXPORT(LayerNormTyped);

namespace {

constexpr int64_t kGrain = 1 << 13;  // elements

bool IsHalf(DType dtype) { return dtype == DType::kBF16; }
bool IsKernelFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

// A weight or bias of `count` elements as F32: itself, or widened in `copy`; nullptr for none.
absl::StatusOr<const float*> WideRow(const ConstTensorView* row, int64_t count, std::vector<float>* copy) {
  if (row == nullptr) return nullptr;
  if (!IsKernelFloat(row->dtype)) return Unimplemented("layer_norm's weight", row->dtype);
  if (ElementCount(row->shape) != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer_norm: weight or bias ", ShapeText(row->shape), " for rows of ", count));
  }
  if (row->dtype == DType::kF32) return static_cast<const float*>(row->data);
  copy->resize(static_cast<size_t>(count));
  WidenBF16(static_cast<const uint16_t*>(row->data), copy->data(), count);
  return static_cast<const float*>(copy->data());
}

}  // namespace

absl::Status LayerNorm(int threads, const ConstTensorView& input, const ConstTensorView* weight,
                       const ConstTensorView* bias, int dims, double eps, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("layer_norm", input, output));
  if (!IsKernelFloat(input.dtype)) return Unimplemented("layer_norm", input.dtype);
  const size_t rank = input.shape.size();
  if (dims < 0 || static_cast<size_t>(dims) > rank) {
    return absl::InvalidArgumentError(absl::StrCat("layer_norm over ", dims, " dims of ", ShapeText(input.shape)));
  }
  const auto shape = absl::MakeConstSpan(input.shape);
  const int64_t rows = ElementCount(shape.first(rank - static_cast<size_t>(dims)));
  const int64_t count = ElementCount(shape.last(static_cast<size_t>(dims)));
  std::vector<float> weight_copy, bias_copy;
  TP_ASSIGN_OR_RETURN(const float* weight_row, WideRow(weight, count, &weight_copy));
  TP_ASSIGN_OR_RETURN(const float* bias_row, WideRow(bias, count, &bias_copy));
  if (count == 0) return absl::OkStatus();
  const int64_t row_bytes = count * ItemSize(input.dtype);
  ParallelFor(threads, rows, std::max<int64_t>(1, kGrain / count), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(LayerNormTyped)
      (IsHalf(input.dtype), static_cast<const char*>(input.data) + r * row_bytes, weight_row, bias_row,
       static_cast<float>(eps), static_cast<char*>(output.data) + r * row_bytes, count);
    }
  });
  return absl::OkStatus();
}

absl::Status RmsNorm(int threads, const ConstTensorView& input, const ConstTensorView& weight, double eps,
                     const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("rms_norm", input, output));
  if (!IsKernelFloat(input.dtype)) return Unimplemented("rms_norm", input.dtype);
  if (!IsKernelFloat(weight.dtype)) return Unimplemented("rms_norm's weight", weight.dtype);
  const int64_t count = RowSize(input.shape);
  if (ElementCount(weight.shape) != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("rms_norm: weight ", ShapeText(weight.shape), " for input ", ShapeText(input.shape)));
  }
  if (count == 0) return absl::OkStatus();
  const int64_t row_bytes = count * ItemSize(input.dtype);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(RmsNormTyped)
      (IsHalf(input.dtype), IsHalf(weight.dtype), static_cast<const char*>(input.data) + r * row_bytes, weight.data,
       static_cast<float>(eps), static_cast<char*>(output.data) + r * row_bytes, count);
    }
  };
  ParallelFor(threads, RowCount(input.shape), std::max<int64_t>(1, kGrain / count), body);
  return absl::OkStatus();
}

absl::Status Softmax(int threads, const ConstTensorView& input, int dim, bool log, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("softmax", input, output));
  if (!IsKernelFloat(input.dtype)) return Unimplemented("softmax", input.dtype);
  TP_ASSIGN_OR_RETURN(const int at, NormalizeDim(dim, static_cast<int>(input.shape.size())));
  const int64_t count = input.shape[static_cast<size_t>(at)];
  if (ElementCount(input.shape) == 0) return absl::OkStatus();
  const int64_t inner = ElementCount(absl::MakeConstSpan(input.shape).subspan(static_cast<size_t>(at) + 1));
  const int64_t rows = ElementCount(input.shape) / count;
  // Each row is gathered into a scratch of F32, and scattered again.
  const auto body = [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(count));
    std::vector<uint16_t> half(IsHalf(input.dtype) ? static_cast<size_t>(count) : 0);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t first = r / inner * count * inner + r % inner;
      if (IsHalf(input.dtype)) {
        const auto* from = static_cast<const uint16_t*>(input.data) + first;
        auto* to = static_cast<uint16_t*>(output.data) + first;
        for (int64_t i = 0; i < count; ++i) half[static_cast<size_t>(i)] = from[i * inner];
        WidenBF16(half.data(), row.data(), count);
        HWY_DYNAMIC_DISPATCH(SoftmaxF32)(row.data(), count, log);
        RoundToBF16(row.data(), half.data(), count);
        for (int64_t i = 0; i < count; ++i) to[i * inner] = half[static_cast<size_t>(i)];
      } else {
        const auto* from = static_cast<const float*>(input.data) + first;
        auto* to = static_cast<float*>(output.data) + first;
        for (int64_t i = 0; i < count; ++i) row[static_cast<size_t>(i)] = from[i * inner];
        HWY_DYNAMIC_DISPATCH(SoftmaxF32)(row.data(), count, log);
        for (int64_t i = 0; i < count; ++i) to[i * inner] = row[static_cast<size_t>(i)];
      }
    }
  };
  ParallelFor(threads, rows, std::max<int64_t>(1, kGrain / count), body);
  return absl::OkStatus();
}

}  // namespace tp::worker::kernels
#endif  // HWY_ONCE
