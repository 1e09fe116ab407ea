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
  // Mesh axes over which generation spreads its sequences: each of their coordinates has its own (Foundation 12). The
  // step program holds nothing cut over them and no collective on them.
  std::vector<int> replica_axes = {};
  std::string fingerprint;  // of both programs
};

struct CompileOptions {
  // The program answers what every module answers too, after the model's outputs, named "layers.0.fc:output" (of
  // several outputs by number or key; ":call2" at the end for the second call of a module); those that no output of the
  // model depends on, states and what lies inside a local_map are left out. There is no step program.
  bool module_outputs = false;
};

// Resolves the plan against the model (patterns, styles, states, grouped heads) and compiles. INVALID_ARGUMENT with
// every problem found and its field path ("plan.entries[2] 'layers.*.wl': matches no module; nearest: ...");
// UNIMPLEMENTED for what is refused by name (SEMANTICS, head).
absl::StatusOr<CompiledModel> CompileForward(const Submission& submission, const CompileOptions& options = {});

}  // namespace tp
