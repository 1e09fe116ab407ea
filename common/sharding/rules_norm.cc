// rms_norm, layer_norm, softmax, log_softmax: each row along some dims on its own; those dims must be whole on a rank.
#include "common/sharding/families.h"

namespace tp {

bool NormFamily(const RuleContext& context, AxisStrategyList* list) {
  const std::string& name = context.function;
  const bool softmax = name == "softmax" || name == "log_softmax";
  if (!softmax && name != "rms_norm" && name != "layer_norm") return false;
  const int rank = RankOf(context.inputs[0]);
  int first = rank - 1, end = rank;  // the dims that a row goes over
  if (name == "layer_norm") first = rank - static_cast<int>(AttributeOr<int64_t>(*context.attributes, "dims", 1));
  if (softmax) {
    first = DimAttribute(context, "dim");
    end = first + 1;
  }
  DimLinks links = NoLinks(context);
  for (int dim = 0; dim < rank; ++dim) {
    if (dim < first || dim >= end) links[0][dim] = dim;
  }
  AppendLinked(context, links, list);
  return true;
}

}  // namespace tp
