#include <algorithm>
#include <limits>
#include <type_traits>

#include "common/base/status.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/strided_index.h"
#include "worker/device/shapes.h"

namespace tp::worker::cuda {
namespace {

// Two accumulators: int64_t for integers (sums and products are computed unsigned, so that an overflow wraps around),
// double for floats. Which function is chosen at run time, alike for all threads.
struct Combine {
  Reduction op;
  TP_HD int64_t operator()(int64_t a, int64_t b) const {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    if (op == Reduction::kSum) return static_cast<int64_t>(x + y);
    if (op == Reduction::kProduct) return static_cast<int64_t>(x * y);
    return op == Reduction::kMax ? (a > b ? a : b) : (a < b ? a : b);
  }
  TP_HD double operator()(double a, double b) const {  // NaN stays
    if (op == Reduction::kSum) return a + b;
    if (op == Reduction::kProduct) return a * b;
    return op == Reduction::kMax ? (a > b || a != a ? a : b) : (a < b || a != a ? a : b);
  }
};

// Element r of output o lies at kept(o) + reduced(r).
template <class T, class Out>
struct Reducer {
  using Acc = std::conditional_t<std::is_floating_point_v<WideType<T>>, double, int64_t>;
  StridedIndex<1> kept, reduced;
  int64_t count;  // of elements a result
  const T* in;
  Out* out;
  Combine combine;
  Acc identity;
  double divisor;

  TP_HD Acc At(const T* first, int64_t r) const {
    int64_t at;
    reduced.Locate(r, &at);
    return static_cast<Acc>(Widen(first[at]));
  }
  TP_HD const T* First(int64_t o) const {
    int64_t at;
    kept.Locate(o, &at);
    return in + at;
  }
  TP_HD void Store(int64_t o, Acc total) const {
    if constexpr (std::is_same_v<Acc, double>) {
      if (combine.op == Reduction::kSum && divisor != 1) total /= divisor;
      out[o] = Narrow<Out>(static_cast<float>(total));
    } else {
      out[o] = Narrow<Out>(total);
    }
  }
};

// Short reductions: a thread each.
template <class T, class Out>
struct ReduceByThread {
  Reducer<T, Out> r;
  TP_HD void operator()(int64_t o) const {
    const T* first = r.First(o);
    auto total = r.identity;
    for (int64_t i = 0; i < r.count; ++i) total = r.combine(total, r.At(first, i));
    r.Store(o, total);
  }
};
// Long ones: a block each. A thread takes kStride elements a step, so that as many reads are under way.
template <class T, class Out>
struct ReduceByBlock {
  Reducer<T, Out> r;
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t o) const {
    using Acc = typename Reducer<T, Out>::Acc;
    constexpr int64_t kStride = 8;
    const T* first = r.First(o);
    const int64_t steps = (r.count + kStride - 1) / kStride;
    const Acc total = block.template Reduce<Acc>(
        steps, r.identity,
        [&](int64_t i) {
          Acc part = r.At(first, i);
          for (int64_t j = 1; j < kStride; ++j) {
            if (i + j * steps < r.count) part = r.combine(part, r.At(first, i + j * steps));
          }
          return part;
        },
        r.combine);
    if (block.leader()) r.Store(o, total);
  }
};

struct Plan {
  cudaStream_t stream;
  Reduction op;
  const ConstTensorView& input;
  const TensorView& output;
  double divisor;
  StridedIndex<1> kept, reduced;
  int64_t outputs, count;
  bool neighbours;  // the reduced elements of a result lie side by side
};

template <class T>
auto Identity(Reduction op) {
  using N = WideType<T>;
  using Acc = typename Reducer<T, T>::Acc;
  if (op == Reduction::kSum) return Acc{0};
  if (op == Reduction::kProduct) return Acc{1};
  const bool max = op == Reduction::kMax;
  if constexpr (std::is_floating_point_v<N>) {
    return max ? -std::numeric_limits<Acc>::infinity() : std::numeric_limits<Acc>::infinity();
  } else if constexpr (std::is_same_v<T, Flag>) {
    return max ? Acc{0} : Acc{1};
  } else {
    return static_cast<Acc>(max ? std::numeric_limits<N>::lowest() : std::numeric_limits<N>::max());
  }
}

template <class T, class Out>
absl::Status Run(const Plan& plan) {
  const Reducer<T, Out> reducer{
      plan.kept,        plan.reduced,         plan.count,  As<T>(plan.input), As<Out>(plan.output),
      Combine{plan.op}, Identity<T>(plan.op), plan.divisor};
  // Where results are side by side and many, a thread each reads side by side too.
  const bool by_block = plan.count >= 32 && (plan.neighbours || plan.outputs < 4096);
  if (by_block) return ForBlocks("reduce", plan.stream, plan.outputs, ReduceByBlock<T, Out>{reducer});
  return ForEach("reduce", plan.stream, plan.outputs, ReduceByThread<T, Out>{reducer});
}

}  // namespace

absl::Status Reduce(cudaStream_t stream, Reduction op, const ConstTensorView& input, absl::Span<const int> dims,
                    double divisor, const TensorView& output) {
  TP_RETURN_IF_ERROR(ReduceStrides(input.shape, dims, output.shape).status());
  const int64_t outputs = ElementCount(output.shape);
  if (outputs == 0) return absl::OkStatus();
  const Shape strides = RowMajorStrides(input.shape);
  Shape sizes[2], own[2];  // of the dims that are kept, and of those that are reduced
  for (size_t d = 0; d < input.shape.size(); ++d) {
    const bool gone = std::find(dims.begin(), dims.end(), static_cast<int>(d)) != dims.end();
    sizes[gone].push_back(input.shape[d]);
    own[gone].push_back(strides[d]);
  }
  const auto kept = StridedLoop<1>::Create(sizes[0], {own[0]});
  const auto reduced = StridedLoop<1>::Create(sizes[1], {own[1]});
  TP_ASSIGN_OR_RETURN(const StridedIndex<1> kept_index, StridedIndex<1>::Create("reduce", kept));
  TP_ASSIGN_OR_RETURN(const StridedIndex<1> reduced_index, StridedIndex<1>::Create("reduce", reduced));
  const Plan plan{stream,
                  op,
                  input,
                  output,
                  divisor,
                  kept_index,
                  reduced_index,
                  outputs,
                  ElementCount(sizes[1]),
                  reduced.inner_stride(0) == 1};
  const auto pair = [&](DType from, DType to) { return input.dtype == from && output.dtype == to; };
  if (pair(DType::kF32, DType::kF32)) return Run<float, float>(plan);
  if (pair(DType::kBF16, DType::kBF16)) return Run<BF16, BF16>(plan);
  if (pair(DType::kBF16, DType::kF32)) return Run<BF16, float>(plan);
  if (pair(DType::kF16, DType::kF16)) return Run<F16, F16>(plan);
  if (pair(DType::kF16, DType::kF32)) return Run<F16, float>(plan);
  if (pair(DType::kI64, DType::kI64)) return Run<int64_t, int64_t>(plan);
  if (pair(DType::kI32, DType::kI32)) return Run<int32_t, int32_t>(plan);
  if (pair(DType::kI32, DType::kI64)) return Run<int32_t, int64_t>(plan);
  if (pair(DType::kBool, DType::kI64) && op == Reduction::kSum) return Run<Flag, int64_t>(plan);
  if (pair(DType::kBool, DType::kBool) && (op == Reduction::kMax || op == Reduction::kMin)) {
    return Run<Flag, Flag>(plan);
  }
  return Unimplemented("reduce", input.dtype);
}

}  // namespace tp::worker::cuda
