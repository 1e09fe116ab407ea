// Reductions over dims, extremes with their indices.
#include <numeric>

#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

// Attribute "dims"; none: all.
std::vector<int> ReducedDims(const Context& context, size_t rank) {
  std::vector<int> dims;
  for (const int64_t dim : AttributeOr<std::vector<int64_t>>(context.instruction.attributes, "dims", {})) {
    dims.push_back(static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim));
  }
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  return dims;
}

template <Reduction op>
absl::Status Reduce(const Context& context, Values in, Values out) {
  return context.device.Reduce(context.stream, op, in[0].view, ReducedDims(context, in[0].view.shape.size()), 1,
                               out[0].view);
}

// The local sum divided by the global count: the terms of all ranks add up to the mean.
absl::Status Mean(const Context& context, Values in, Values out) {
  const std::vector<int> dims = ReducedDims(context, in[0].view.shape.size());
  double count = 1;
  for (const int dim : dims) count *= static_cast<double>((*in[0].global)[static_cast<size_t>(dim)]);
  return context.device.Reduce(context.stream, Reduction::kSum, in[0].view, dims, count, out[0].view);
}

absl::Status ArgMax(const Context& context, Values in, Values out) {
  return context.device.ArgExtreme(context.stream, Extreme::kMax, in[0].view,
                                   DimOf(context, "dim", -1, in[0].view.shape.size()), nullptr, out[0].view);
}
template <Extreme which>
absl::Status WithIndex(const Context& context, Values in, Values out) {
  return context.device.ArgExtreme(context.stream, which, in[0].view,
                                   DimOf(context, "dim", -1, in[0].view.shape.size()), &out[0].view, out[1].view);
}

absl::Status TopK(const Context& context, Values in, Values out) {
  const int dim = DimOf(context, "dim", -1, in[0].view.shape.size());
  return context.device.TopK(context.stream, in[0].view, Integer(context, "k", 1), dim, out[0].view, out[1].view);
}

}  // namespace

absl::Span<const NamedOperation> ReduceOperations() {
  static constexpr NamedOperation kOperations[] = {{"sum", Reduce<Reduction::kSum>},
                                                   {"mean", Mean},
                                                   {"max", Reduce<Reduction::kMax>},
                                                   {"min", Reduce<Reduction::kMin>},
                                                   {"argmax", ArgMax},
                                                   {"max_with_index", WithIndex<Extreme::kMax>},
                                                   {"min_with_index", WithIndex<Extreme::kMin>},
                                                   {"topk", TopK}};
  return kOperations;
}

}  // namespace tp::worker::operations
