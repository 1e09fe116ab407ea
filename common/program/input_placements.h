// Where a request's full tensor is delivered: slice by slice into the layout that the plan writes for its first
// consumer (input_layouts, in_src), else into the one that this wants (in_dst), else R; on batch axes cut on dim 0.
// Example: x of a model whose first module has PrepareModuleInput(input_layouts=(Shard(dim=1),), ...) arrives S(1).
// Pure. Source: SEMANTICS 5.
#pragma once

#include "absl/status/status.h"
#include "common/layout/placement.h"
#include "common/program/match.h"

namespace tp {

// `flat_value`: one of model.inputs. Layouts that do not fit the tensor are left out: they are refused where the module
// is entered.
Placements InputPlacements(const FlatModel& model, const ResolvedPlan& plan, int flat_value);
// True where a module with a wrong entry takes the input: where it arrives is open then.
bool EntersUnsureModule(const FlatModel& model, const ResolvedPlan& plan, int flat_value);
// INVALID_ARGUMENT where the placements do not fit the sizes that are known.
absl::Status ValidateForSymShape(const SymShape& shape, const Placements& placements, const Mesh& mesh);

}  // namespace tp
