// sum, mean, max, min over dims: a cut of a reduced dim gives one term a rank. argmax, topk, max_with_index and
// min_with_index: the dim that they go over must be whole, since indices are global.
#include "common/base/check.h"
#include "common/sharding/families.h"

namespace tp {
namespace {

std::vector<bool> ReducedDims(const RuleContext& context) {
  const int rank = RankOf(context.inputs[0]);
  const auto dims = AttributeOr<std::vector<int64_t>>(*context.attributes, "dims", {});
  std::vector<bool> reduced(rank, dims.empty());
  for (int64_t dim : dims) {
    absl::StatusOr<int> normal = NormalizeDim(dim, rank);
    TP_CHECK(normal.ok());
    reduced[*normal] = true;
  }
  return reduced;
}

}  // namespace

bool ReduceFamily(const RuleContext& context, AxisStrategyList* list) {
  const std::string& name = context.function;
  const bool sums = name == "sum" || name == "mean";  // the kernel of mean divides by the global count
  const bool extremes = name == "max" || name == "min";
  const bool indices = name == "argmax" || name == "topk" || name == "max_with_index" || name == "min_with_index";
  if (!sums && !extremes && !indices) return false;
  const int rank = RankOf(context.inputs[0]);
  std::vector<bool> reduced(rank, false);
  if (indices) {
    reduced[DimAttribute(context, "dim")] = true;
  } else {
    reduced = ReducedDims(context);
  }
  const bool keeps_dims = name == "topk" || AttributeOr<bool>(*context.attributes, "keepdim", false);
  DimLinks links = NoLinks(context);
  int out = 0;
  for (int dim = 0; dim < rank; ++dim) {
    if (!reduced[dim]) links[0][dim] = out;
    if (!reduced[dim] || keeps_dims) ++out;
  }
  const Placement& input = context.current[0];
  if (!indices && input.IsSharding() && reduced[input.dim]) {
    // A rank without elements has the identity as its term; NaN wins in the extremes of terms as in those of elements.
    AxisStrategy terms = AllReplicate(context);
    terms.inputs[0] = WithoutCopies(input);
    terms.outputs[0] = Placement::Partial(sums ? ReduceOp::kSum : name == "max" ? ReduceOp::kMax : ReduceOp::kMin);
    list->push_back(terms);
  }
  AppendLinked(context, links, list);
  return true;
}

}  // namespace tp
