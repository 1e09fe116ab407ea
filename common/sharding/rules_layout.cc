// reshape and transpose: the same elements in another shape. A cut is kept only where each rank keeps exactly its
// elements.
#include <algorithm>
#include <optional>

#include "common/sharding/families.h"

namespace tp {
namespace {

// True where cutting dim n = a * b into k chunks cuts between whole b's, as cutting a into k chunks does:
// ceil(n / k) == ceil(a / k) * b. Chunk r of n then starts at min(n, ceil(a/k)*b*r) = b * min(a, ceil(a/k)*r).
bool ChunksAgree(const Dim& n, const Dim& a, int64_t k) {
  if (a.IsConstant() && a.constant() % k == 0) return true;
  if (!a.IsConstant() || !n.IsConstant()) return k == 1;
  const int64_t b = a.constant() == 0 ? 0 : n.constant() / a.constant();
  return (n.constant() + k - 1) / k == (a.constant() + k - 1) / k * b;
}

Dim PrefixOf(const SymShape& shape, int count) { return ProductOf(absl::MakeConstSpan(shape).subspan(0, count)); }

// Length of the run from `start` whose product is `wanted`; 0 where there is none.
int RunOf(const SymShape& shape, int start, const Dim& wanted) {
  Dim product(1);
  for (int i = start; i < static_cast<int>(shape.size()); ++i) {
    product = product * shape[i];
    if (product == wanted) return i - start + 1;
  }
  return 0;
}

// The placement of the output that keeps every element on its rank; nullopt where there is none.
std::optional<Placement> Mapped(const SymShape& from, const SymShape& to, const Placement& placement, int axis_size) {
  for (const SymShape* shape : {&from, &to}) {
    if (std::find(shape->begin(), shape->end(), Dim(0)) != shape->end()) return std::nullopt;  // products say nothing
  }
  const int dim = placement.dim;
  const Dim& n = from[dim];
  const Dim before = PrefixOf(from, dim);
  for (int out = 0; out < static_cast<int>(to.size()); ++out) {
    if (PrefixOf(to, out) != before) continue;
    const Dim& m = to[out];
    if (m == n) return OnDim(placement, out);
    if (m == Dim(1)) continue;
    const bool group = placement.kind == PlacementKind::kGroupShard;
    if (!group && placement.kind != PlacementKind::kShard) return std::nullopt;
    const int64_t chunks = group ? placement.groups : axis_size;
    const bool splits = RunOf(to, out, n) > 0 && ChunksAgree(n, m, chunks);
    const bool merges = RunOf(from, dim, m) > 0 && ChunksAgree(m, n, chunks);
    if (splits || merges) return OnDim(placement, out);
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void ReshapeStrategies(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  AxisStrategy kept = AllReplicate(context);
  kept.inputs[0] = input;
  if (input.IsPartial()) {
    kept.outputs[0] = input;
    list->push_back(kept);
  } else if (input.IsSharding()) {
    std::optional<Placement> output =
        Mapped(context.inputs[0]->shape, context.outputs[0]->shape, input, context.axis_size);
    if (!output.has_value()) return;
    kept.outputs[0] = *output;
    list->push_back(kept);
  }
}

void TransposeStrategies(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  if (input.IsReplicate()) return;
  const int dim0 = DimAttribute(context, "dim0");
  const int dim1 = DimAttribute(context, "dim1");
  AxisStrategy kept = AllReplicate(context);
  kept.inputs[0] = input;
  kept.outputs[0] = input;
  if (input.Cuts(dim0)) {
    kept.outputs[0].dim = dim1;
  } else if (input.Cuts(dim1)) {
    kept.outputs[0].dim = dim0;
  }
  list->push_back(kept);
}

}  // namespace tp
