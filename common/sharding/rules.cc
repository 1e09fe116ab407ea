#include "common/sharding/rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/sharding/families.h"

namespace tp {

AxisStrategy AllReplicate(const RuleContext& context) {
  return {std::vector<Placement>(context.inputs.size()), std::vector<Placement>(context.outputs.size())};
}

Placement OnDim(Placement placement, int dim) {
  placement.dim = dim;
  return placement;
}

int RankOf(const TensorType* type) { return type == nullptr ? 0 : static_cast<int>(type->shape.size()); }

int DimAttribute(const RuleContext& context, const char* name) {
  absl::StatusOr<int> dim =
      NormalizeDim(AttributeOr<int64_t>(*context.attributes, name, -1), RankOf(context.inputs[0]));
  TP_CHECK(dim.ok());
  return *dim;
}

bool IsSumLike(const Placement& placement) {
  return placement.IsPartial() && (placement.op == ReduceOp::kSum || placement.op == ReduceOp::kAvg);
}

Placement WithoutCopies(const Placement& placement) {
  return placement.kind == PlacementKind::kGroupShard ? Placement::Shard(placement.dim) : placement;
}

DimLinks NoLinks(const RuleContext& context) {
  DimLinks links;
  for (const TensorType* input : context.inputs) links.emplace_back(RankOf(input), kNoLink);
  return links;
}

DimLinks BroadcastLinks(const RuleContext& context) {
  DimLinks links = NoLinks(context);
  const SymShape& output = context.outputs[0]->shape;
  for (size_t i = 0; i < links.size(); ++i) {
    const size_t shift = output.size() - links[i].size();
    for (size_t dim = 0; dim < links[i].size(); ++dim) {
      if (context.inputs[i]->shape[dim] == output[dim + shift]) links[i][dim] = static_cast<int>(dim + shift);
    }
  }
  return links;
}

void AppendLinked(const RuleContext& context, const DimLinks& links, AxisStrategyList* list) {
  for (size_t from = 0; from < links.size(); ++from) {
    const Placement& placement = context.current[from];
    if (!placement.IsSharding() || links[from][placement.dim] == kNoLink) continue;
    const int out = links[from][placement.dim];
    AxisStrategy kept = AllReplicate(context);
    for (Placement& output : kept.outputs) output = OnDim(placement, out);
    for (size_t i = 0; i < links.size(); ++i) {
      const auto own = std::find(links[i].begin(), links[i].end(), out);
      if (own != links[i].end()) kept.inputs[i] = OnDim(placement, static_cast<int>(own - links[i].begin()));
    }
    if (std::find(list->begin(), list->end(), kept) == list->end()) list->push_back(kept);
  }
}

void AppendPartial(const RuleContext& context, bool all, AxisStrategyList* list) {
  const Placement& terms = context.current[0];
  if (!terms.IsPartial()) return;
  AxisStrategy kept = AllReplicate(context);
  for (size_t i = 0; i < (all ? context.inputs.size() : 1); ++i) {
    if (context.current[i] != terms) return;
    kept.inputs[i] = terms;
  }
  for (Placement& output : kept.outputs) output = terms;
  list->push_back(kept);
}

absl::StatusOr<std::vector<AxisStrategy>> AxisStrategies(const RuleContext& context) {
  AxisStrategyList list;
  for (auto family :
       {LinearFamily, AttentionFamily, NormFamily, ElementwiseFamily, ShapeFamily, IndexFamily, ReduceFamily}) {
    if (!family(context, &list)) continue;
    list.push_back(AllReplicate(context));
    return list;
  }
  return absl::UnimplementedError(absl::StrCat("function '", context.function, "' has no sharding rule"));
}

}  // namespace tp
