// Reference kernels of the simulator, on one rank's shards, in float64.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/model/attribute.h"
#include "tests/support/simulator.h"

namespace tp::testing {

// `inputs` has nullptr for omitted ones. `vocabulary_offset` is the global row of an embedding's first local row,
// `masked` whether ids outside its rows give zeros. `positions` and `rows` come as tensors among the inputs.
struct KernelCall {
  std::string function;
  std::vector<const SimTensor*> inputs;
  const Attributes* attributes = nullptr;
  Shape output_shape;
  std::vector<int64_t> owned_rows;  // embedding: global indices of the weight's local rows
};
absl::StatusOr<SimTensor> RunKernel(const KernelCall& call);

}  // namespace tp::testing
