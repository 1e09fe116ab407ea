// Attention under tensor parallelism: which degrees can cut its heads, and which Linears make keys and values that must
// be cut by whole heads over groups of neighbours. Example: 4 key-value heads on tp=8: k_proj.weight is GS(0,4). Pure.
// Source: SEMANTICS 4.
#pragma once

#include <string>

#include "common/program/match.h"

namespace tp {

// Fills plan->grouped (Linears with weight S(0), by a style or a sharding, that feed k or v of an attention with fewer
// heads than ranks), makes the S(0) of their states GS, and reports attentions whose heads the degree can't cut:
// "layers.0.attn: 8 query heads and 4 key-value heads can be cut over 1, 2, 4 or 8 ranks, not over 3".
void CheckHeads(const FlatModel& model, ResolvedPlan* plan, Problems* problems);

// A module's path for messages; the root's is "the root module".
std::string FieldOfModule(const FlatModule& module);

}  // namespace tp
