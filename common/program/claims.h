// Which entry places which state, and where. Colwise and Rowwise place the states of their module, SequenceParallel
// (Replicate) those of its descendants too, a sharding those that it names. Pure. Internal to common/program. Example:
// ColwiseParallel on Linear fc puts fc.weight and fc.bias at S(0).
#pragma once

#include "common/base/problems.h"
#include "common/model/flatten.h"
#include "common/program/match.h"

namespace tp {

// Fills plan->state_entries and plan->states from plan->module_entries. INVALID_ARGUMENT naming both entries where two
// place one state; two shardings of different modules may, outer first, where their placements are equal
// (FAILED_PRECONDITION else). States that no entry places are R.
void ClaimStates(const FlatModel& model, ResolvedPlan* plan, Problems* problems);

}  // namespace tp
