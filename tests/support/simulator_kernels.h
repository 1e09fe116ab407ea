// Reference kernels of the simulator, on one rank's shards, in float64, one file a family. They share no code with the
// workers. Example: RunKernel({.function = "neg", .inputs = {&x}, .attributes = &none, .output_shapes = {x.shape},
// ...}).
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/attribute.h"
#include "tests/support/simulator.h"

namespace tp::testing {

// `inputs` has nullptr for omitted ones; positions and rows come as tensors among them. Shapes are those of the shards.
struct KernelCall {
  std::string function;
  std::vector<const SimTensor*> inputs;
  const Attributes* attributes = nullptr;
  std::vector<Shape> output_shapes;
  DType dtype = DType::kF32;   // of the first output
  std::vector<int64_t> owned;  // embedding: global indices of the weight's local rows; pick: of the input's along `dim`
  int64_t total = 0;           // embedding, pick: the global size of that dim
  int64_t reduced_count = 1;   // mean: elements of the global input for each of the output
};
absl::StatusOr<std::vector<SimTensor>> RunKernel(const KernelCall& call);

// The families; false where the function is not of it. `outputs` are zeros of the output shapes.
using SimTensors = std::vector<SimTensor>;
bool ProductKernels(const KernelCall& call, SimTensors& outputs);
bool ElementwiseKernels(const KernelCall& call, SimTensors& outputs);
bool ShapeKernels(const KernelCall& call, SimTensors& outputs);
bool ReduceKernels(const KernelCall& call, SimTensors& outputs);
// embedding, pick, index_select, gather: an index out of range is INVALID_ARGUMENT.
absl::StatusOr<bool> IndexKernels(const KernelCall& call, SimTensors& outputs);

// --- What they share.
// The position of flat element `index`, and back.
Shape PositionOf(const Shape& shape, int64_t index);
int64_t IndexOf(const Shape& shape, const Shape& position);
// Index into an operand of shape `shape` for element `index` of the broadcast `output`.
int64_t BroadcastIndex(const Shape& output, const Shape& shape, int64_t index);
// An integer attribute that is a dim of the first input.
int64_t SimDim(const KernelCall& call, const char* name = "dim");
// An integer or a number.
double SimNumber(const KernelCall& call, const char* name);
// Calls visit(first element, stride, run) for each run along `dim`.
template <typename Visit>
void ForEachRun(const Shape& shape, int64_t dim, Visit visit) {
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < dim; ++i) outer *= shape[i];
  for (size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) visit(o * shape[dim] * inner + i, inner, o * inner + i);
  }
}

}  // namespace tp::testing
