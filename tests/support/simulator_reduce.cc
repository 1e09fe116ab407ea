// Reductions, and what finds the largest elements.
#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/support/simulator_kernels.h"

namespace tp::testing {
namespace {

// The largest or least value of the dtype: what a maximum or minimum of nothing is.
double Identity(DType dtype, bool max) {
  if (dtype == DType::kBool) return max ? 0.0 : 1.0;
  if (IsFloating(dtype)) return max ? -INFINITY : INFINITY;
  if (dtype == DType::kI32) {
    return max ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  }
  return static_cast<double>(max ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max());
}

void Reduce(const KernelCall& call, SimTensor& output) {
  const SimTensor& x = *call.inputs[0];
  const auto dims = AttributeOr<std::vector<int64_t>>(*call.attributes, "dims", {});
  const bool keepdim = AttributeOr<bool>(*call.attributes, "keepdim", false);
  std::vector<bool> reduced(x.shape.size(), dims.empty());
  for (int64_t dim : dims) reduced[dim < 0 ? dim + static_cast<int64_t>(x.shape.size()) : dim] = true;
  const bool extreme = call.function == "max" || call.function == "min";
  const bool max = call.function == "max";
  if (extreme) std::fill(output.values.begin(), output.values.end(), Identity(call.dtype, max));
  for (size_t i = 0; i < x.values.size(); ++i) {
    const Shape at = PositionOf(x.shape, static_cast<int64_t>(i));
    Shape to;
    for (size_t d = 0; d < at.size(); ++d) {
      if (!reduced[d]) to.push_back(at[d]);
      if (reduced[d] && keepdim) to.push_back(0);
    }
    double& value = output.values[IndexOf(output.shape, to)];
    const double element = x.values[i];
    if (!extreme) {
      value += element;
    } else if (std::isnan(element) || (max ? element > value : element < value)) {
      value = element;
    }
  }
  if (call.function != "mean") return;
  for (double& value : output.values) value /= static_cast<double>(call.reduced_count);
}

// True where a goes before b, descending; NaN is the largest.
bool Before(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

// values (empty pointer: not wanted) and indices of the first `count` along the dim.
void Ranked(const KernelCall& call, int64_t count, bool largest, SimTensor* values, SimTensor& indices) {
  const SimTensor& x = *call.inputs[0];
  const int64_t dim = SimDim(call), size = x.shape[dim];
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  ForEachRun(x.shape, dim, [&](int64_t first, int64_t stride, int64_t run) {
    std::vector<int64_t> order(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double left = x.values[first + a * stride], right = x.values[first + b * stride];
      return largest ? Before(left, right) : Before(right, left);
    });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t to = run / inner * inner * count + i * inner + run % inner;
      if (values != nullptr) values->values[to] = x.values[first + order[i] * stride];
      indices.values[to] = static_cast<double>(order[i]);
    }
  });
}

}  // namespace

bool ReduceKernels(const KernelCall& call, SimTensors& outputs) {
  const std::string& name = call.function;
  if (name == "sum" || name == "mean" || name == "max" || name == "min") {
    Reduce(call, outputs[0]);
  } else if (name == "argmax") {
    Ranked(call, 1, true, nullptr, outputs[0]);
  } else if (name == "topk") {
    Ranked(call, std::get<int64_t>(call.attributes->at("k")), true, &outputs[0], outputs[1]);
  } else if (name == "max_with_index" || name == "min_with_index") {
    Ranked(call, 1, name == "max_with_index", &outputs[0], outputs[1]);
  } else {
    return false;
  }
  return true;
}

}  // namespace tp::testing
