// CompileForward: model + plan + mesh -> program. Pure; the same arguments give the same fingerprint everywhere.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flatten.h"
#include "common/model/model.h"
#include "common/program/program.h"

namespace tp {

// A state with its place.
struct PlacedState {
  FlatState state;
  Placements placements;
  std::optional<WeightSource> source;  // absent: its initializer
};
// What the plan does to one module; `describe` and `explain` show it.
struct PlacedModule {
  std::string path;
  std::string type_name;
  std::string style;                 // text forms, joined by "; "; "" where no entry matches
  std::vector<std::string> inputs;   // specs as the forward sees them, as "F32[batch, time, 256] tp=R"
  std::vector<std::string> outputs;  // specs as they leave the module
};
struct CompiledModel {
  Mesh mesh;
  ForwardProgram program;                      // all outputs, for forward
  std::optional<ForwardProgram> step_program;  // for generation: the logits of the rows operand only, replicated
  std::vector<PlacedState> states;
  std::vector<PlacedModule> modules;
  std::vector<std::string> warnings;
  int64_t max_positions = 0;  // of generation; 0 without
  std::string fingerprint;    // of both programs
};

// Resolves the plan against the model (patterns, styles, states, grouped heads) and compiles. INVALID_ARGUMENT with
// every problem found and its field path ("plan.entries[2] 'layers.*.wl': matches no module; nearest: ...");
// UNIMPLEMENTED for what is refused by name (SEMANTICS, head).
absl::StatusOr<CompiledModel> CompileForward(const Submission& submission);

}  // namespace tp
