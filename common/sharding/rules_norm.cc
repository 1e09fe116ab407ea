// rms_norm and softmax: each row along one dim on its own; that dim must be whole on a rank.
#include "common/sharding/families.h"

namespace tp {

void RowwiseOnDimStrategies(const RuleContext& context, int reduced_dim, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  if (!input.IsSharding() || input.dim == reduced_dim) return;
  AxisStrategy rows = AllReplicate(context);
  rows.inputs[0] = input;
  rows.outputs[0] = input;
  list->push_back(rows);
}

}  // namespace tp
