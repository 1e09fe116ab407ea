// Runs a ForwardProgram on all ranks of its mesh inside one process, in float64, with plain loops: slow, simple, and
// sharing no code with the workers' kernels and executors. A redistribute is done by its meaning (the global value of
// the old layout, laid out anew), each other instruction on each rank's own shard. Example:
//   absl::StatusOr<std::map<std::string, SimTensor>> outputs = Simulate(program, states, {{"x", x}}, {});
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"
#include "common/program/program.h"
#include "common/tensor/shape.h"

namespace tp::testing {

// A dense row-major tensor of any dtype, held as float64.
struct SimTensor {
  Shape shape;
  std::vector<double> values;
};

struct SimulationResult {
  std::map<std::string, SimTensor> outputs;  // global
  int collectives = 0;                       // redistribute steps that move or change data
};

// `states` and `inputs` are global tensors by path and name; `rows` is what a step program takes. Each request is one
// sequence a row, positions 0, 1, .... INVALID_ARGUMENT for what does not fit the program.
absl::StatusOr<SimulationResult> Simulate(const ForwardProgram& program, const std::map<std::string, SimTensor>& states,
                                          const std::map<std::string, SimTensor>& inputs,
                                          const std::vector<int64_t>& rows = {});

// First values of all states of a compiled model, global.
std::map<std::string, SimTensor> InitialStates(const CompiledModel& model, uint64_t seed);

// The local block of a global tensor; under P the ranks hold terms that differ.
SimTensor LocalBlock(const SimTensor& global, const Placements& placements, const Mesh& mesh,
                     absl::Span<const int> coordinate);
// The global tensor of all ranks' blocks, terms reduced. INTERNAL where copies differ, or an element is nowhere.
absl::StatusOr<SimTensor> GlobalValue(const Shape& shape, const Placements& placements, const Mesh& mesh,
                                      const std::vector<SimTensor>& blocks);

}  // namespace tp::testing
