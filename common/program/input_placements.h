// Where a request's full tensor is delivered: slice by slice into the layout that the plan writes for its first
// consumer (input_layouts, in_src), else into the one that this wants (in_dst), else R; on batch axes cut on dim 0.
// Example: x of a model whose first module has PrepareModuleInput(input_layouts=(Shard(dim=1),), ...) arrives S(1).
// Pure. Source: SEMANTICS 5.
#pragma once

#include "common/layout/placement.h"
#include "common/program/match.h"

namespace tp {

// `flat_value`: one of model.inputs. Layouts that do not fit the tensor are left out: they are refused where the module
// is entered.
Placements InputPlacements(const FlatModel& model, const ResolvedPlan& plan, int flat_value);

}  // namespace tp
