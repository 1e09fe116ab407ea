#include <algorithm>
#include <cmath>
#include <cstring>

#include "worker/device/cuda/checks.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

constexpr int64_t kMostFrequencies = 512;  // head_dim 1024; they travel as an argument of the kernel

struct Frequencies {
  float at[kMostFrequencies];
};

// Some heads of one token: [a, b] -> [a cos - b sin, b cos + a sin], a and b halves of `half` elements. Angles are F32
// products (as Hugging Face), cosine and sine in F64.
template <class T>
struct RotateToken {
  const T* input;
  const int64_t* positions;
  T* output;
  int32_t heads, half, pieces;  // pieces: blocks that share the heads of a token
  Frequencies frequencies;
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t index) const {
    float* cosines = block.template Shared<float>(half);
    float* sines = block.template Shared<float>(half);
    const int64_t token = index / pieces;
    const int32_t piece = static_cast<int32_t>(index % pieces);
    const float position = static_cast<float>(positions[token]);
    block.Each(half, [&](int64_t i) {
      const double angle = static_cast<double>(position * frequencies.at[i]);
      cosines[i] = static_cast<float>(cos(angle));
      sines[i] = static_cast<float>(sin(angle));
    });
    const int32_t per_piece = (heads + pieces - 1) / pieces;
    const int32_t begin = piece * per_piece;
    const int32_t end = Smaller()(heads, begin + per_piece);
    const T* x = input + token * heads * 2 * half;
    T* out = output + token * heads * 2 * half;
    block.Each(static_cast<int64_t>(end - begin) * half, [&](int64_t at) {
      const int32_t i = static_cast<int32_t>(at) % half;
      const int64_t first = static_cast<int64_t>(begin + static_cast<int32_t>(at) / half) * 2 * half + i;
      const float a = Widen(x[first]), b = Widen(x[first + half]);
      out[first] = Narrow<T>(a * cosines[i] - b * sines[i]);
      out[first + half] = Narrow<T>(b * cosines[i] + a * sines[i]);
    });
  }
};

}  // namespace

absl::Status Rotary(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView& positions, double theta,
                    const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("rotary", input, output));
  if (!IsKernelFloat(input.dtype)) return Unimplemented("rotary", input.dtype);
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
  if (half > kMostFrequencies) {
    return absl::UnimplementedError(
        absl::StrCat("rotary of head_dim ", 2 * half, " over ", 2 * kMostFrequencies, " on the CUDA device"));
  }
  Frequencies frequencies;
  std::memset(&frequencies, 0, sizeof(frequencies));
  for (int64_t i = 0; i < half; ++i) {
    frequencies.at[i] = static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(half)));
  }
  // A step of few tokens spreads each over several blocks.
  const int64_t pieces = std::clamp<int64_t>(128 / tokens, 1, (heads + 3) / 4);
  return VisitFloats("rotary", input.dtype, [&](auto t) {
    using T = decltype(t);
    return ForBlocks("rotary", stream, tokens * pieces,
                     RotateToken<T>{static_cast<const T*>(input.data), static_cast<const int64_t*>(positions.data),
                                    static_cast<T*>(output.data), static_cast<int32_t>(heads),
                                    static_cast<int32_t>(half), static_cast<int32_t>(pieces), frequencies},
                     2 * ((half * 4 + 15) / 16 * 16));
  });
}

}  // namespace tp::worker::cuda
