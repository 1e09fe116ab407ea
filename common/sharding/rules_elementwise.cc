// Functions of each element alone: activations, cast, and add, sub, mul with broadcasting.
#include "common/sharding/families.h"

namespace tp {

void UnaryStrategies(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  if (!input.IsSharding()) return;  // a term of a sum has no activation: reduce first
  AxisStrategy cut = AllReplicate(context);
  cut.inputs[0] = input;
  cut.outputs[0] = input;
  list->push_back(cut);
}

void CastStrategies(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  const bool floating = IsFloating(context.inputs[0]->dtype) && IsFloating(context.outputs[0]->dtype);
  if (input.IsSharding() || (floating && IsSumLike(input))) {
    AxisStrategy kept = AllReplicate(context);
    kept.inputs[0] = input;
    kept.outputs[0] = input;
    list->push_back(kept);
  }
}

void BinaryStrategies(const RuleContext& context, bool keeps_partial, AxisStrategyList* list) {
  const TensorType& output = *context.outputs[0];
  const int output_rank = RankOf(&output);
  if (keeps_partial && IsSumLike(context.current[0]) && context.current[0] == context.current[1] &&
      IsFloating(output.dtype)) {
    AxisStrategy sums = AllReplicate(context);
    sums.inputs = context.current;
    sums.outputs[0] = context.current[0];
    list->push_back(sums);
  }
  for (int from = 0; from < 2; ++from) {
    const Placement& placement = context.current[from];
    if (!placement.IsSharding()) continue;
    const int dim = placement.dim + output_rank - RankOf(context.inputs[from]);
    if (context.inputs[from]->shape[placement.dim] != output.shape[dim]) continue;  // a 1 that is broadcast
    AxisStrategy cut = AllReplicate(context);
    cut.outputs[0] = OnDim(placement, dim);
    for (int i = 0; i < 2; ++i) {
      const int own = dim - (output_rank - RankOf(context.inputs[i]));
      if (own >= 0 && context.inputs[i]->shape[own] == output.shape[dim]) cut.inputs[i] = OnDim(placement, own);
    }
    list->push_back(cut);
    if (context.current[0].IsSharding() && cut.inputs == context.current) break;
  }
}

}  // namespace tp
