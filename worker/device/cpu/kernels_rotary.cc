#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/device/cpu/kernels_rotary.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "worker/device/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tp::worker::kernels::HWY_NAMESPACE {

// One head of one token: [a, b] -> [a cos - b sin, b cos + a sin], a and b halves of `half` elements.
template <typename T>
HWY_INLINE void RotateHead(const T* x, const float* cosines, const float* sines, int64_t half, T* out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const FloatVec a = LoadF32(d, x + i);
    const FloatVec b = LoadF32(d, x + half + i);
    const FloatVec c = hn::LoadU(d, cosines + i);
    const FloatVec s = hn::LoadU(d, sines + i);
    StoreF32(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, out + i);
    StoreF32(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, out + half + i);
  }
  if (i == half) return;
  const size_t rest = static_cast<size_t>(half - i);
  const FloatVec a = LoadPart(d, x + i, rest);
  const FloatVec b = LoadPart(d, x + half + i, rest);
  const FloatVec c = LoadPart(d, cosines + i, rest);
  const FloatVec s = LoadPart(d, sines + i, rest);
  StorePart(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, out + i, rest);
  StorePart(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, out + half + i, rest);
}

void RotateF32(const float* x, const float* cosines, const float* sines, int64_t heads, int64_t half, float* out) {
  for (int64_t h = 0; h < heads; ++h) RotateHead(x + h * 2 * half, cosines, sines, half, out + h * 2 * half);
}
void RotateBF16(const uint16_t* x, const float* cosines, const float* sines, int64_t heads, int64_t half,
                uint16_t* out) {
  for (int64_t h = 0; h < heads; ++h) RotateHead(x + h * 2 * half, cosines, sines, half, out + h * 2 * half);
}

}  // namespace tp::worker::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp::worker::kernels {
HWY_EXPORT(RotateF32);
HWY_EXPORT(RotateBF16);

namespace {

// Frequencies theta^(-2i/d) rounded to F32, angles as F32 products (as Hugging Face), cosine and sine in F64.
void FillTable(RotaryTable& table, absl::Span<const int64_t> positions, double theta, int64_t half) {
  const bool same = table.theta == theta && table.half == half &&
                    std::equal(positions.begin(), positions.end(), table.positions.begin(), table.positions.end());
  if (same) return;
  table.theta = theta;
  table.half = half;
  table.positions.assign(positions.begin(), positions.end());
  table.cosines.resize(positions.size() * static_cast<size_t>(half));
  table.sines.resize(table.cosines.size());
  std::vector<float> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    frequencies[static_cast<size_t>(i)] =
        static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(half)));
  }
  size_t at = 0;
  for (const int64_t position : positions) {
    for (const float frequency : frequencies) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequency);
      table.cosines[at] = static_cast<float>(std::cos(angle));
      table.sines[at++] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace

absl::Status Rotary(int threads, RotaryTable& table, const ConstTensorView& input, const ConstTensorView& positions,
                    double theta, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("rotary", input, output));
  if (input.dtype != DType::kF32 && input.dtype != DType::kBF16) return Unimplemented("rotary", input.dtype);
  if (positions.dtype != DType::kI64) return Unimplemented("rotary's positions", positions.dtype);
  if (input.shape.size() < 3 || input.shape.back() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: input ", ShapeText(input.shape), " is not [tokens, heads, even head_dim]"));
  }
  const int64_t half = input.shape.back() / 2;
  const int64_t heads = input.shape[input.shape.size() - 2];
  const int64_t tokens = ElementCount(absl::MakeConstSpan(input.shape).first(input.shape.size() - 2));
  if (ElementCount(positions.shape) != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary: positions ", ShapeText(positions.shape), " for ", tokens, " tokens"));
  }
  if (ElementCount(input.shape) == 0) return absl::OkStatus();
  FillTable(table, absl::MakeConstSpan(static_cast<const int64_t*>(positions.data), static_cast<size_t>(tokens)), theta,
            half);
  const int64_t size = heads * 2 * half;
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* cosines = table.cosines.data() + t * half;
      const float* sines = table.sines.data() + t * half;
      if (input.dtype == DType::kF32) {
        HWY_DYNAMIC_DISPATCH(RotateF32)
        (static_cast<const float*>(input.data) + t * size, cosines, sines, heads, half,
         static_cast<float*>(output.data) + t * size);
      } else {
        HWY_DYNAMIC_DISPATCH(RotateBF16)
        (static_cast<const uint16_t*>(input.data) + t * size, cosines, sines, heads, half,
         static_cast<uint16_t*>(output.data) + t * size);
      }
    }
  };
  ParallelFor(threads, tokens, std::max<int64_t>(1, (int64_t{1} << 14) / size), body);
  return absl::OkStatus();
}

}  // namespace tp::worker::kernels
#endif  // HWY_ONCE
