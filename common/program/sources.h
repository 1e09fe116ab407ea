// Where each state's values come from: the submission's sources against the model's states. Pure; no file is opened.
#pragma once

#include <vector>

#include "common/model/flatten.h"
#include "common/model/model.h"
#include "common/program/compile.h"
#include "common/program/match.h"

namespace tp {

// States with placements (from `plan`) and sources. Tied states (kAlias) get one placement: that of the one that the
// plan names. Adds to `problems`: sources of unknown states, aliases of unknown states or other shapes, two placements
// for tied states, parameters with neither source nor initializer. Changes `plan->states` of tied states.
std::vector<PlacedState> PlaceStates(const Submission& submission, const FlatModel& model, ResolvedPlan* plan,
                                     Problems* problems);

// INVALID_ARGUMENT with every parameter that has neither source nor initializer: what init_states asks of a model.
absl::Status CheckInitializers(const Submission& submission, const FlatModel& model);

}  // namespace tp
