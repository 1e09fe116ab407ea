// reshape: the same elements in another shape; a cut is kept only where each rank keeps exactly its elements. The
// others move dims about, or elements along one dim, which must be whole.
#include <algorithm>
#include <optional>
#include <utility>

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

void Reshape(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  AppendPartial(context, false, list);
  if (!input.IsSharding()) return;
  const SymShape& from = context.inputs[0]->shape;
  const SymShape& to = context.outputs[0]->shape;
  std::optional<Placement> output = Mapped(from, to, input, context.axis_size);
  if (!output.has_value()) return;
  AxisStrategy kept = AllReplicate(context);
  kept.inputs[0] = input;
  kept.outputs[0] = *output;
  kept.alone = from[input.dim] != to[output->dim];  // nested cuts do not follow the chunk rule of the reshaped dim
  list->push_back(kept);
}

DimLinks SameDims(const RuleContext& context, int except) {
  DimLinks links = NoLinks(context);
  for (std::vector<int>& own : links) {
    for (int dim = 0; dim < static_cast<int>(own.size()); ++dim) {
      if (dim != except) own[dim] = dim;
    }
  }
  return links;
}

DimLinks TransposeLinks(const RuleContext& context) {
  DimLinks links = SameDims(context, kNoLink);
  std::swap(links[0][DimAttribute(context, "dim0")], links[0][DimAttribute(context, "dim1")]);
  return links;
}

DimLinks PermuteLinks(const RuleContext& context) {
  DimLinks links = NoLinks(context);
  const auto dims = AttributeOr<std::vector<int64_t>>(*context.attributes, "dims", {});
  const int rank = RankOf(context.inputs[0]);
  for (size_t out = 0; out < dims.size(); ++out) {
    links[0][dims[out] < 0 ? dims[out] + rank : dims[out]] = static_cast<int>(out);
  }
  return links;
}

// IS(d,p) of dim d that is split into the parts p: each rank holds its S(d) piece of every part.
void AppendInterleavedSplit(const RuleContext& context, int dim, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  if (input.kind != PlacementKind::kInterleavedShard || input.dim != dim) return;
  if (input.parts.size() != context.outputs.size()) return;
  int64_t sum = 0;
  for (int64_t part : input.parts) sum += part;
  const Dim& whole = context.inputs[0]->shape[dim];
  for (size_t i = 0; i < input.parts.size(); ++i) {
    if (context.outputs[i]->shape[dim] * Dim(sum) != whole * Dim(input.parts[i])) return;
  }
  AxisStrategy parts = AllReplicate(context);
  parts.inputs[0] = input;
  for (Placement& output : parts.outputs) output = Placement::Shard(dim);
  parts.alone = true;
  list->push_back(parts);
}

DimLinks SelectLinks(const RuleContext& context, int dim) {
  DimLinks links = NoLinks(context);
  for (int own = 0; own < RankOf(context.inputs[0]); ++own) {
    if (own != dim) links[0][own] = own < dim ? own : own - 1;
  }
  return links;
}

}  // namespace

bool ShapeFamily(const RuleContext& context, AxisStrategyList* list) {
  const std::string& name = context.function;
  if (name == "reshape") {
    Reshape(context, list);
    return true;
  }
  if (name == "cat") {
    AppendPartial(context, true, list);
    AppendLinked(context, SameDims(context, DimAttribute(context, "dim")), list);
    return true;
  }
  DimLinks links;
  if (name == "transpose") {
    links = TransposeLinks(context);
  } else if (name == "permute") {
    links = PermuteLinks(context);
  } else if (name == "expand") {
    links = BroadcastLinks(context);
  } else if (name == "split") {
    links = SameDims(context, DimAttribute(context, "dim"));
    AppendInterleavedSplit(context, DimAttribute(context, "dim"), list);
  } else if (name == "slice") {
    const int dim = DimAttribute(context, "dim");
    const bool all = context.inputs[0]->shape[dim] == context.outputs[0]->shape[dim];
    links = SameDims(context, all ? kNoLink : dim);
  } else if (name == "select") {
    links = SelectLinks(context, DimAttribute(context, "dim"));
  } else {
    return false;
  }
  AppendPartial(context, false, list);
  AppendLinked(context, links, list);
  return true;
}

}  // namespace tp
