// The families of rules behind AxisStrategies, one file each, and what they share. Internal to common/sharding.
#pragma once

#include <vector>

#include "common/sharding/rules.h"

namespace tp {

using AxisStrategyList = std::vector<AxisStrategy>;

// Everything replicated: the last resort of every rule.
AxisStrategy AllReplicate(const RuleContext& context);
// `placement` moved to another dim of another value: S(0) -> S(2), GS(0,4) -> GS(2,4).
Placement OnDim(Placement placement, int dim);
int RankOf(const TensorType* type);
// The attribute `name` as a dim of the first input; validated before.
int DimAttribute(const RuleContext& context, const char* name);
bool IsSumLike(const Placement& placement);  // P(sum) or P(avg)

// Each appends what it has, without the last resort.
void LinearStrategies(const RuleContext& context, AxisStrategyList* list);
void EmbeddingStrategies(const RuleContext& context, AxisStrategyList* list);
void RowwiseOnDimStrategies(const RuleContext& context, int reduced_dim, AxisStrategyList* list);  // rms_norm, softmax
void RotaryStrategies(const RuleContext& context, AxisStrategyList* list);
void AttentionStrategies(const RuleContext& context, AxisStrategyList* list);
void UnaryStrategies(const RuleContext& context, AxisStrategyList* list);
void CastStrategies(const RuleContext& context, AxisStrategyList* list);
void BinaryStrategies(const RuleContext& context, bool keeps_partial, AxisStrategyList* list);
void ReshapeStrategies(const RuleContext& context, AxisStrategyList* list);
void TransposeStrategies(const RuleContext& context, AxisStrategyList* list);
void ArgmaxStrategies(const RuleContext& context, AxisStrategyList* list);

}  // namespace tp
