// linear and embedding: products with a weight.
#include "common/sharding/families.h"

namespace tp {

void LinearStrategies(const RuleContext& context, AxisStrategyList* list) {
  const int last = RankOf(context.inputs[0]) - 1;
  const Placement& input = context.current[0];
  const Placement& weight = context.current[1];
  const bool has_bias = context.inputs[2] != nullptr;
  if (weight.Cuts(0)) {
    // Each rank makes its own columns of the output; the bias is cut like the weight's rows.
    AxisStrategy columns = AllReplicate(context);
    columns.inputs[1] = weight;
    if (has_bias) columns.inputs[2] = weight;
    columns.outputs[0] = OnDim(weight, last);
    list->push_back(columns);
  }
  if (weight == Placement::Shard(1)) {
    // Each rank makes a term of the whole output.
    AxisStrategy rows = AllReplicate(context);
    rows.inputs[0] = Placement::Shard(last);
    rows.inputs[1] = weight;
    rows.outputs[0] = Placement::Partial();
    rows.bias_after = has_bias;
    list->push_back(rows);
  }
  if (input.IsSharding() && input.dim != last) {
    AxisStrategy batch = AllReplicate(context);
    batch.inputs[0] = input;
    batch.outputs[0] = input;
    list->push_back(batch);
  }
}

void EmbeddingStrategies(const RuleContext& context, AxisStrategyList* list) {
  const Placement& ids = context.current[0];
  const Placement& weight = context.current[1];
  if (weight.Cuts(1)) {
    AxisStrategy columns = AllReplicate(context);
    columns.inputs[1] = weight;
    columns.outputs[0] = OnDim(weight, RankOf(context.outputs[0]) - 1);
    list->push_back(columns);
  }
  if (weight == Placement::Shard(0)) {
    // The masked lookup: ids of other ranks' rows give zeros. (Neighbours under GS hold the same rows: not a sum.)
    AxisStrategy vocabulary = AllReplicate(context);
    vocabulary.inputs[1] = weight;
    vocabulary.outputs[0] = Placement::Partial();
    list->push_back(vocabulary);
  }
  if (ids.IsSharding()) {
    AxisStrategy batch = AllReplicate(context);
    batch.inputs[0] = ids;
    batch.outputs[0] = ids;
    list->push_back(batch);
  }
}

}  // namespace tp
