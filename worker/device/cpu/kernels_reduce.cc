#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/shapes.h"
#include "worker/device/strided.h"

namespace tp::worker::kernels {
namespace {

// An operation on accumulators: its identity and how two combine.
struct Sum {
  template <typename Acc>
  static Acc Identity() {
    return 0;
  }
  template <typename Acc>
  static Acc Combine(Acc a, Acc b) {
    return a + b;
  }
};
struct Product {
  template <typename Acc>
  static Acc Identity() {
    return 1;
  }
  template <typename Acc>
  static Acc Combine(Acc a, Acc b) {
    return a * b;
  }
};
struct Max {
  template <typename Acc>
  static Acc Identity() {
    if constexpr (std::is_floating_point_v<Acc>) return -std::numeric_limits<Acc>::infinity();
    return std::numeric_limits<Acc>::lowest();
  }
  template <typename Acc>
  static Acc Combine(Acc a, Acc b) {
    return a > b || a != a ? a : b;  // NaN stays
  }
};
struct Min {
  template <typename Acc>
  static Acc Identity() {
    if constexpr (std::is_floating_point_v<Acc>) return std::numeric_limits<Acc>::infinity();
    return std::numeric_limits<Acc>::max();
  }
  template <typename Acc>
  static Acc Combine(Acc a, Acc b) {
    return a < b || a != a ? a : b;
  }
};

// One element as an accumulator of it. uint16_t is BF16, uint8_t BOOL.
template <typename Acc, typename T>
Acc Load(T value) {
  return static_cast<Acc>(value);
}
template <typename Acc>
Acc Load(uint16_t bits) {
  return static_cast<Acc>(FloatFromBF16(bits));
}

void Store(float value, float* to) { *to = value; }
void Store(double value, float* to) { *to = static_cast<float>(value); }
template <typename Acc>
void Store(Acc value, uint16_t* to) {
  *to = BF16FromFloat(static_cast<float>(value));
}
template <typename Acc, typename T>
void Store(Acc value, T* to) {
  *to = static_cast<T>(value);
}

// A walk over the input in memory order with an accumulator for each output that it meets. `loop` gives the outputs'
// offsets: joined dims are kept (stride over 0) or reduced (stride 0) in turn. The work is split over the first dim
// where that is a kept one. Example, [2, 3, 4] over dim 1: sizes {2, 3, 4}, strides {4, 0, 1}.
template <typename Op, typename Acc, typename T, typename Out>
absl::Status Run(int threads, const StridedLoop<1>& loop, const void* input, double divisor, int64_t outputs,
                 void* output) {
  const T* from = static_cast<const T*>(input);
  Out* to = static_cast<Out*>(output);
  const auto part = [&](const StridedLoop<1>& own, const T* first, Out* target, int64_t count) {
    std::vector<Acc> totals(static_cast<size_t>(count), Op::template Identity<Acc>());
    const int64_t inner = own.inner();
    const bool reduces = own.inner_stride(0) == 0;
    own.ForRows(0, own.outer(), [&](int64_t r, const std::array<int64_t, 1>& offsets) {
      const T* row = first + r * inner;
      Acc* total = totals.data() + offsets[0];
      if (!reduces) {
        for (int64_t i = 0; i < inner; ++i) total[i] = Op::Combine(total[i], Load<Acc>(row[i]));
        return;
      }
      Acc partial[4] = {*total, Op::template Identity<Acc>(), Op::template Identity<Acc>(),
                        Op::template Identity<Acc>()};
      int64_t i = 0;
      for (; i + 4 <= inner; i += 4) {
        for (int64_t j = 0; j < 4; ++j) partial[j] = Op::Combine(partial[j], Load<Acc>(row[i + j]));
      }
      for (; i < inner; ++i) partial[0] = Op::Combine(partial[0], Load<Acc>(row[i]));
      *total = Op::Combine(Op::Combine(partial[0], partial[1]), Op::Combine(partial[2], partial[3]));
    });
    for (int64_t i = 0; i < count; ++i) {
      Acc total = totals[static_cast<size_t>(i)];
      if constexpr (std::is_floating_point_v<Acc>) {
        if (std::is_same_v<Op, Sum> && divisor != 1) total = static_cast<Acc>(total / divisor);
      }
      Store(total, target + i);
    }
  };
  const int64_t stride = loop.strides[0][0];
  if (stride == 0) {
    part(loop, from, to, outputs);
    return absl::OkStatus();
  }
  const int64_t each = ElementCount(loop.sizes) / loop.sizes[0];
  ParallelFor(threads, loop.sizes[0], std::max<int64_t>(1, (int64_t{1} << 14) / each), [&](int64_t begin, int64_t end) {
    StridedLoop<1> own = loop;
    own.sizes[0] = end - begin;
    part(own, from + begin * each, to + begin * stride, (end - begin) * stride);
  });
  return absl::OkStatus();
}

struct Work {
  int threads;
  StridedLoop<1> loop;
  double divisor;
  int64_t outputs;
};

template <typename T, typename Out>
absl::Status Floats(Reduction op, const Work& r, const void* input, void* output) {
  switch (op) {
    case Reduction::kSum:
      return Run<Sum, double, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
    case Reduction::kProduct:
      return Run<Product, double, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
    case Reduction::kMax:
      return Run<Max, float, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
    default:
      return Run<Min, float, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
  }
}
// Sums and products are computed unsigned, so that an overflow wraps around.
template <typename T, typename Out>
absl::Status Integers(Reduction op, const Work& r, const void* input, void* output) {
  switch (op) {
    case Reduction::kSum:
      return Run<Sum, uint64_t, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
    case Reduction::kProduct:
      return Run<Product, uint64_t, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
    case Reduction::kMax:
      return Run<Max, T, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
    default:
      return Run<Min, T, T, Out>(r.threads, r.loop, input, r.divisor, r.outputs, output);
  }
}
absl::Status Booleans(Reduction op, const Work& r, const void* input, void* output) {
  if (op == Reduction::kMax) return Run<Max, uint8_t, uint8_t, uint8_t>(r.threads, r.loop, input, 1, r.outputs, output);
  // The identity of a minimum is true.
  return Run<Product, uint8_t, uint8_t, uint8_t>(r.threads, r.loop, input, 1, r.outputs, output);
}

}  // namespace

absl::Status Reduce(int threads, Reduction op, const ConstTensorView& input, absl::Span<const int> dims, double divisor,
                    const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const Shape strides, ReduceStrides(input.shape, dims, output.shape));
  const int64_t outputs = ElementCount(output.shape);
  if (outputs == 0) return absl::OkStatus();
  Work r{threads, {}, divisor, outputs};
  if (ElementCount(input.shape) == 0) {  // no rows: every output is the identity
    r.loop.sizes = {0, 1};
    r.loop.strides[0] = {0, 0};
  } else {
    r.loop = StridedLoop<1>::Create(input.shape, {strides});
  }
  const auto pair = [&](DType from, DType to) { return input.dtype == from && output.dtype == to; };
  if (pair(DType::kF32, DType::kF32)) return Floats<float, float>(op, r, input.data, output.data);
  if (pair(DType::kBF16, DType::kBF16)) return Floats<uint16_t, uint16_t>(op, r, input.data, output.data);
  if (pair(DType::kBF16, DType::kF32)) return Floats<uint16_t, float>(op, r, input.data, output.data);
  if (pair(DType::kI64, DType::kI64)) return Integers<int64_t, int64_t>(op, r, input.data, output.data);
  if (pair(DType::kI32, DType::kI32)) return Integers<int32_t, int32_t>(op, r, input.data, output.data);
  if (pair(DType::kI32, DType::kI64)) return Integers<int32_t, int64_t>(op, r, input.data, output.data);
  if (pair(DType::kBool, DType::kI64) && op == Reduction::kSum) {
    return Integers<uint8_t, int64_t>(op, r, input.data, output.data);
  }
  if (pair(DType::kBool, DType::kBool) && (op == Reduction::kMax || op == Reduction::kMin)) {
    return Booleans(op, r, input.data, output.data);
  }
  return Unimplemented("reduce", input.dtype);
}

}  // namespace tp::worker::kernels
