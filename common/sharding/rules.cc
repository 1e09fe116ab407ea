#include "common/sharding/rules.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/sharding/families.h"

namespace tp {

AxisStrategy AllReplicate(const RuleContext& context) {
  return {std::vector<Placement>(context.inputs.size()), std::vector<Placement>(context.outputs.size()), false};
}

Placement OnDim(Placement placement, int dim) {
  placement.dim = dim;
  return placement;
}

int RankOf(const TensorType* type) { return static_cast<int>(type->shape.size()); }

int DimAttribute(const RuleContext& context, const char* name) {
  absl::StatusOr<int> dim =
      NormalizeDim(AttributeOr<int64_t>(*context.attributes, name, -1), RankOf(context.inputs[0]));
  TP_CHECK(dim.ok());
  return *dim;
}

bool IsSumLike(const Placement& placement) {
  return placement.IsPartial() && (placement.op == ReduceOp::kSum || placement.op == ReduceOp::kAvg);
}

absl::StatusOr<std::vector<AxisStrategy>> AxisStrategies(const RuleContext& context) {
  const std::string& name = context.function;
  AxisStrategyList list;
  if (name == "linear") {
    LinearStrategies(context, &list);
  } else if (name == "embedding") {
    EmbeddingStrategies(context, &list);
  } else if (name == "rms_norm") {
    RowwiseOnDimStrategies(context, RankOf(context.inputs[0]) - 1, &list);
  } else if (name == "softmax") {
    RowwiseOnDimStrategies(context, DimAttribute(context, "dim"), &list);
  } else if (name == "rotary") {
    RotaryStrategies(context, &list);
  } else if (name == "attention") {
    AttentionStrategies(context, &list);
  } else if (name == "silu" || name == "relu" || name == "gelu") {
    UnaryStrategies(context, &list);
  } else if (name == "cast") {
    CastStrategies(context, &list);
  } else if (name == "add" || name == "sub") {
    BinaryStrategies(context, true, &list);
  } else if (name == "mul") {
    BinaryStrategies(context, false, &list);
  } else if (name == "reshape") {
    ReshapeStrategies(context, &list);
  } else if (name == "transpose") {
    TransposeStrategies(context, &list);
  } else if (name == "argmax") {
    ArgmaxStrategies(context, &list);
  } else {
    return absl::UnimplementedError(absl::StrCat("function '", name, "' has no sharding rule"));
  }
  list.push_back(AllReplicate(context));
  return list;
}

}  // namespace tp
