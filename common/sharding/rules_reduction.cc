// argmax: the dim that it goes over must be whole on a rank, since indices are global.
#include "common/sharding/families.h"

namespace tp {

void ArgmaxStrategies(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  const int dim = DimAttribute(context, "dim");
  if (!input.IsSharding() || input.dim == dim) return;
  AxisStrategy rows = AllReplicate(context);
  rows.inputs[0] = input;
  rows.outputs[0] = OnDim(input, input.dim > dim ? input.dim - 1 : input.dim);
  list->push_back(rows);
}

}  // namespace tp
