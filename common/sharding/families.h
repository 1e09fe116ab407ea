// The families of rules behind AxisStrategies, one file each, and what they share. Internal to common/sharding.
// Example: permute has links {{2, 0, 1}} for dims = [1, 2, 0]: a cut of input dim 0 becomes one of output dim 2.
#pragma once

#include <vector>

#include "common/sharding/rules.h"

namespace tp {

using AxisStrategyList = std::vector<AxisStrategy>;

// For each input and each dim of it the output dim that has the same indices, kNoLink where there is none: that dim is
// then whole on every rank. All outputs of a function share them. Linked dims have one size, so any kind of cut of one
// is the same cut of the others, nested cuts of several axes included.
inline constexpr int kNoLink = -1;
using DimLinks = std::vector<std::vector<int>>;

// Everything replicated: the last resort of every rule.
AxisStrategy AllReplicate(const RuleContext& context);
// `placement` moved to another dim of another value: S(0) -> S(2), GS(0,4) -> GS(2,4).
Placement OnDim(Placement placement, int dim);
int RankOf(const TensorType* type);  // 0 for an omitted one
// The attribute `name` as a dim of the first input; validated before.
int DimAttribute(const RuleContext& context, const char* name);
bool IsSumLike(const Placement& placement);  // P(sum) or P(avg)
// Of a cut that gives each element to one rank only (S, SS, IS): itself; GS, whose neighbours hold copies: S.
Placement WithoutCopies(const Placement& placement);

// No links, one entry for each dim of each input.
DimLinks NoLinks(const RuleContext& context);
// Numpy's broadcasting: dims are linked from the last one on where the sizes agree.
DimLinks BroadcastLinks(const RuleContext& context);
// For each cut of a linked dim that an input has: the strategy that keeps it. An input that has no dim linked to the
// same output dim is whole.
void AppendLinked(const RuleContext& context, const DimLinks& links, AxisStrategyList* list);
// Data movement only: terms of the first input (of all inputs, where `all`) are terms of the outputs.
void AppendPartial(const RuleContext& context, bool all, AxisStrategyList* list);

// Each appends what it has, without the last resort; false where the function is not of the family.
bool LinearFamily(const RuleContext& context, AxisStrategyList* list);
bool AttentionFamily(const RuleContext& context, AxisStrategyList* list);
bool NormFamily(const RuleContext& context, AxisStrategyList* list);
bool ElementwiseFamily(const RuleContext& context, AxisStrategyList* list);
bool ShapeFamily(const RuleContext& context, AxisStrategyList* list);
bool IndexFamily(const RuleContext& context, AxisStrategyList* list);
bool ReduceFamily(const RuleContext& context, AxisStrategyList* list);

}  // namespace tp
