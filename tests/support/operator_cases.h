// Calls of every function of common/model/function.h that reaches programs, on small tensors: even, uneven and empty
// sizes, scalars, broadcasting. The values are multiples of 1/8, so that sums of terms are exact. Example:
//   for (const OperatorCase& test : OperatorCases()) ... OperatorSubmission(test, Tp(2), {{Placement::Shard(0)}}) ...
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/model/model.h"
#include "tests/support/simulator.h"

namespace tp::testing {

struct OperatorInput {
  DType dtype = DType::kF32;
  SymShape shape;  // symbols where the program is to be compiled without the size
  SimTensor value;
};
struct OperatorCase {
  std::string name;  // "add: [4, 6] [6]"
  std::string function;
  std::vector<OperatorInput> inputs;
  Attributes attributes;
  int outputs = 1;
  bool exact = false;  // equal bit for bit at every degree
};

std::vector<OperatorCase> OperatorCases();

// A model of one graph, its inputs forced to `placements` (one list an input, one placement an axis; none: not forced).
Submission ForcedSubmission(CompositeConfig config, std::vector<ModelInput> inputs, const std::vector<MeshAxis>& mesh,
                            const std::vector<Placements>& placements);
// A model of one call, its inputs "x0", "x1", ... forced alike, its outputs "y0", "y1", ...
Submission OperatorSubmission(const OperatorCase& test, const std::vector<MeshAxis>& mesh,
                              const std::vector<Placements>& placements);
// The requests' tensors.
std::map<std::string, SimTensor> OperatorInputs(const OperatorCase& test);

// Every placement of the input on an axis of `size` ranks: R, S, SS, IS and GS of each dim, P of each op that its dtype
// has. Parts of IS divide the dim; dims that are symbols have none.
std::vector<Placement> AllPlacements(const OperatorInput& input, int size);

}  // namespace tp::testing
