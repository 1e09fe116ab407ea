// rotary and attention over [batch, time, heads, head_dim].
#include "common/sharding/families.h"

namespace tp {
namespace {

constexpr int kBatch = 0, kTime = 1, kHeads = 2;

bool IsBlockCut(const Placement& placement) {
  return placement.kind == PlacementKind::kShard || placement.kind == PlacementKind::kGroupShard;
}

void Rotary(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  if (!IsBlockCut(input) || input.dim > kHeads) return;
  AxisStrategy cut = AllReplicate(context);
  cut.inputs[0] = input;
  cut.outputs[0] = input;
  // A program gives the positions [batch, time] as second input: cut with the tokens, whole with the heads.
  if (cut.inputs.size() > 1 && (input.dim == kBatch || input.dim == kTime)) cut.inputs[1] = input;
  list->push_back(cut);
}

void Attention(const RuleContext& context, AxisStrategyList* list) {
  const bool cached = AttributeOr<bool>(*context.attributes, "cache", true);
  if ((context.batch_axis || !cached) && context.current[0] == Placement::Shard(kBatch)) {
    // Whole sequences on each coordinate. Elsewhere a batch that is cut is gathered: the cache is not cut with it.
    AxisStrategy sequences = AllReplicate(context);
    for (size_t i = 0; i < 3; ++i) sequences.inputs[i] = Placement::Shard(kBatch);
    sequences.outputs[0] = Placement::Shard(kBatch);
    list->push_back(sequences);
  }
  bool cuts_heads = false;
  for (const Placement& placement : context.current) cuts_heads |= placement.Cuts(kHeads);
  if (!cuts_heads) return;
  const int64_t query_heads = context.inputs[0]->shape[kHeads].constant();
  const int64_t key_heads = context.inputs[1]->shape[kHeads].constant();
  const int64_t degree = context.axis_size;
  if (query_heads % degree != 0) return;
  // Query head i reads key-value head i / (query_heads / key_heads): equal cuts keep them on one rank, and with fewer
  // key-value heads than ranks each group of neighbours holds one head.
  Placement keys;
  if (key_heads % degree == 0) {
    keys = Placement::Shard(kHeads);
  } else if (degree % key_heads == 0) {
    keys = Placement::GroupShard(kHeads, static_cast<int>(key_heads));
  } else {
    return;
  }
  AxisStrategy heads = AllReplicate(context);
  heads.inputs[0] = Placement::Shard(kHeads);
  heads.inputs[1] = keys;
  heads.inputs[2] = keys;
  heads.outputs[0] = Placement::Shard(kHeads);
  heads.alone = true;  // 4 and 2 heads cut twice in two: one key head for two ranks
  list->push_back(heads);
}

}  // namespace

bool AttentionFamily(const RuleContext& context, AxisStrategyList* list) {
  if (context.function == "rotary") {
    Rotary(context, list);
  } else if (context.function == "attention") {
    Attention(context, list);
  } else {
    return false;
  }
  return true;
}

}  // namespace tp
