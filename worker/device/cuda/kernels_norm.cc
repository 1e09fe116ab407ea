#include <cmath>

#include "worker/device/cuda/checks.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

// A weight or bias, of any of the three dtypes; nullptr: none.
struct FloatRow {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  TP_HD float operator[](int64_t i) const {
    if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
    if (dtype == DType::kBF16) return Widen(static_cast<const BF16*>(data)[i]);
    return Widen(static_cast<const F16*>(data)[i]);
  }
};
FloatRow RowOf(const ConstTensorView* view) { return view == nullptr ? FloatRow{} : FloatRow{view->data, view->dtype}; }

// A block a row: weight * cast(x / sqrt(mean(x^2) + eps)); the cast to x's dtype comes before the weight.
template <class T>
struct RmsNormRow {
  const T* input;
  FloatRow weight;
  T* output;
  int64_t count;
  float eps;
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t row) const {
    const T* x = input + row * count;
    T* out = output + row * count;
    const float squares = block.template Reduce<float>(
        count, 0.0f,
        [&](int64_t i) {
          const float v = Widen(x[i]);
          return v * v;
        },
        Sum());
    const float factor = 1.0f / sqrtf(squares / static_cast<float>(count) + eps);
    block.Each(count, [&](int64_t i) {
      const float normed = Widen(Narrow<T>(Widen(x[i]) * factor));
      out[i] = Narrow<T>(normed * weight[i]);
    });
  }
};

// About the mean: its own sum corrects what the mean's rounding left.
struct Deviation {
  float sum, squares;
};
struct SumDeviations {
  TP_HD Deviation operator()(Deviation a, Deviation b) const { return {a.sum + b.sum, a.squares + b.squares}; }
};

// A block a row: (x - mean) / sqrt(variance + eps) * weight + bias, rounded once; the variance in a second pass, about
// the mean. weight and bias may be none.
template <class T>
struct LayerNormRow {
  const T* input;
  FloatRow weight;
  FloatRow bias;
  T* output;
  int64_t count;
  float eps;
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t row) const {
    const T* x = input + row * count;
    T* out = output + row * count;
    const float size = static_cast<float>(count);
    const float near_mean = block.template Reduce<float>(
                                count, 0.0f, [&](int64_t i) { return Widen(x[i]); }, Sum()) /
                            size;
    const Deviation deviation = block.template Reduce<Deviation>(
        count, Deviation{0, 0},
        [&](int64_t i) {
          const float d = Widen(x[i]) - near_mean;
          return Deviation{d, d * d};
        },
        SumDeviations());
    const float rest = deviation.sum / size;
    const float mean = near_mean + rest;
    const float variance = Larger()(deviation.squares / size - rest * rest, 0.0f);
    const float factor = 1.0f / sqrtf(variance + eps);
    block.Each(count, [&](int64_t i) {
      float v = (Widen(x[i]) - mean) * factor;
      if (weight.data != nullptr) v = v * weight[i];
      if (bias.data != nullptr) v = v + bias[i];
      out[i] = Narrow<T>(v);
    });
  }
};

// Row r of a softmax over a dim of `count` elements, `inner` apart. A NaN makes the whole row NaN, as does a row of
// -infinity.
template <class T>
struct SoftmaxRow {
  const T* input;
  T* output;
  int64_t count, inner;
  bool log;
  TP_HD int64_t First(int64_t row) const { return row / inner * count * inner + row % inner; }
  TP_HD T Result(float x, float max, float sum, float log_sum) const {
    return Narrow<T>(log ? x - max - log_sum : expf(x - max) / sum);
  }
  // By a block.
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t row) const {
    const T* x = input + First(row);
    T* out = output + First(row);
    const float max = block.template Reduce<float>(
        count, -INFINITY, [&](int64_t i) { return Widen(x[i * inner]); }, Larger());
    const float sum = block.template Reduce<float>(
        count, 0.0f, [&](int64_t i) { return expf(Widen(x[i * inner]) - max); }, Sum());
    const float log_sum = logf(sum);
    block.Each(count, [&](int64_t i) { out[i * inner] = Result(Widen(x[i * inner]), max, sum, log_sum); });
  }
  // By one thread.
  TP_HD void operator()(int64_t row) const {
    const T* x = input + First(row);
    T* out = output + First(row);
    float max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; ++i) max = Larger()(max, Widen(x[i * inner]));
    for (int64_t i = 0; i < count; ++i) sum += expf(Widen(x[i * inner]) - max);
    const float log_sum = logf(sum);
    for (int64_t i = 0; i < count; ++i) out[i * inner] = Result(Widen(x[i * inner]), max, sum, log_sum);
  }
};

// Rows shorter than this, or many rows side by side, are a thread's each.
constexpr int64_t kShortRow = 32, kManyRows = 1 << 13;

absl::Status CheckRow(const ConstTensorView* row, int64_t count) {
  if (row == nullptr) return absl::OkStatus();
  if (!IsKernelFloat(row->dtype)) return Unimplemented("layer_norm's weight", row->dtype);
  if (ElementCount(row->shape) == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("layer_norm: weight or bias ", ShapeText(row->shape), " for rows of ", count));
}

}  // namespace

absl::Status RmsNorm(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView& weight, double eps,
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
  return VisitFloats("rms_norm", input.dtype, [&](auto t) {
    using T = decltype(t);
    return ForBlocks("rms_norm", stream, RowCount(input.shape),
                     RmsNormRow<T>{As<T>(input), RowOf(&weight), As<T>(output), count, static_cast<float>(eps)});
  });
}

absl::Status LayerNorm(cudaStream_t stream, const ConstTensorView& input, const ConstTensorView* weight,
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
  TP_RETURN_IF_ERROR(CheckRow(weight, count));
  TP_RETURN_IF_ERROR(CheckRow(bias, count));
  if (count == 0) return absl::OkStatus();
  return VisitFloats("layer_norm", input.dtype, [&](auto t) {
    using T = decltype(t);
    return ForBlocks(
        "layer_norm", stream, rows,
        LayerNormRow<T>{As<T>(input), RowOf(weight), RowOf(bias), As<T>(output), count, static_cast<float>(eps)});
  });
}

absl::Status Softmax(cudaStream_t stream, const ConstTensorView& input, int dim, bool log, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckSame("softmax", input, output));
  if (!IsKernelFloat(input.dtype)) return Unimplemented("softmax", input.dtype);
  TP_ASSIGN_OR_RETURN(const int at, NormalizeDim(dim, static_cast<int>(input.shape.size())));
  const int64_t count = input.shape[static_cast<size_t>(at)];
  if (ElementCount(input.shape) == 0) return absl::OkStatus();
  const int64_t inner = ElementCount(absl::MakeConstSpan(input.shape).subspan(static_cast<size_t>(at) + 1));
  const int64_t rows = ElementCount(input.shape) / count;
  return VisitFloats("softmax", input.dtype, [&](auto t) {
    using T = decltype(t);
    const SoftmaxRow<T> body{As<T>(input), As<T>(output), count, inner, log};
    if (count <= kShortRow || (inner > 1 && rows >= kManyRows)) return ForEach("softmax", stream, rows, body);
    return ForBlocks("softmax", stream, rows, body);
  });
}

}  // namespace tp::worker::cuda
