// The walk over a flattened model that gives every value its placements: inserts the steps that styles and sharding
// rules ask for. Internal to compile.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"
#include "common/program/match.h"
#include "common/program/program.h"

namespace tp {

// What a call of a module answers, after the changes of its entries.
struct ModuleOutput {
  std::string name;  // "layers.0.fc:output"; of the second call and later ones "layers.0.fc:output:call2"
  int value = -1;
  int bias = -1;      // not added yet: of a value that is still a sum over ranks; -1 = none
  int bias_dim = -1;  // the dim of the value that the bias lies along
};
struct WalkResult {
  ForwardProgram program;  // not trimmed
  std::vector<PlacedModule> modules;
  std::vector<std::string> warnings;
  std::vector<ModuleOutput> module_outputs;  // in the order in which modules end; the root's are left out
};

// Written layouts that differ from the real placement are added to `problems`; the result is usable where nothing was.
absl::StatusOr<WalkResult> WalkModel(const Submission& submission, const FlatModel& model, const ResolvedPlan& plan,
                                     Problems* problems);

}  // namespace tp
