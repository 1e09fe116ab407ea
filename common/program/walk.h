// The walk over a flattened model that gives every value its placements: inserts the steps that styles and sharding
// rules ask for. Internal to compile.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"
#include "common/program/match.h"
#include "common/program/program.h"

namespace tp {

struct WalkResult {
  ForwardProgram program;  // not trimmed
  std::vector<PlacedModule> modules;
};

// Written layouts that differ from the real placement are added to `problems`; the result is usable where nothing was.
absl::StatusOr<WalkResult> WalkModel(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan,
                                     Problems* problems);

}  // namespace tp
