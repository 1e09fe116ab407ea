// A program that also answers what each module answers, for comparing two runs module by module. Example: outputs
// "logits", then "embed:output", "layers.0.attention.q_proj:output", ... in the order in which modules end; outputs of
// a composite have their names in its graph. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/program/program.h"
#include "common/program/walk.h"

namespace tp {

// `program` (not trimmed) with `outputs` after its own: those that an output of it depends on and that are no states,
// in the placements that they have; sums over ranks are reduced, and their bias added, at the end of the program. Not
// trimmed.
absl::StatusOr<ForwardProgram> WithModuleOutputs(ForwardProgram program, const std::vector<ModuleOutput>& outputs);

}  // namespace tp
