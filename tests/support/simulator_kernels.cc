#include "tests/support/simulator_kernels.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::testing {

Shape PositionOf(const Shape& shape, int64_t index) {
  Shape position(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = index % shape[d];
    index /= shape[d];
  }
  return position;
}

int64_t IndexOf(const Shape& shape, const Shape& position) {
  int64_t index = 0;
  for (size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + position[d];
  return index;
}

int64_t BroadcastIndex(const Shape& output, const Shape& shape, int64_t index) {
  Shape position = PositionOf(output, index);
  position.erase(position.begin(), position.begin() + static_cast<int64_t>(output.size() - shape.size()));
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) position[d] = 0;
  }
  return IndexOf(shape, position);
}

int64_t SimDim(const KernelCall& call, const char* name) {
  const int64_t dim = AttributeOr<int64_t>(*call.attributes, name, -1);
  return dim < 0 ? dim + static_cast<int64_t>(call.inputs[0]->shape.size()) : dim;
}

double SimNumber(const KernelCall& call, const char* name) {
  const Attribute& attribute = call.attributes->at(name);
  if (const auto* integer = std::get_if<int64_t>(&attribute)) return static_cast<double>(*integer);
  return std::get<double>(attribute);
}

absl::StatusOr<std::vector<SimTensor>> RunKernel(const KernelCall& call) {
  SimTensors outputs;
  for (const Shape& shape : call.output_shapes) {
    outputs.push_back({shape, std::vector<double>(static_cast<size_t>(ElementCount(shape)), 0.0)});
  }
  TP_ASSIGN_OR_RETURN(const bool indexed, IndexKernels(call, outputs));
  if (!indexed && !ProductKernels(call, outputs) && !ElementwiseKernels(call, outputs) &&
      !ShapeKernels(call, outputs) && !ReduceKernels(call, outputs)) {
    return absl::UnimplementedError(absl::StrCat("the simulator has no '", call.function, "'"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].shape == call.output_shapes[i] &&
        static_cast<int64_t>(outputs[i].values.size()) == ElementCount(call.output_shapes[i])) {
      continue;
    }
    return absl::InternalError(absl::StrCat(call.function, " makes ", ShapeText(outputs[i].shape), " with ",
                                            outputs[i].values.size(), " elements, its spec says ",
                                            ShapeText(call.output_shapes[i])));
  }
  return outputs;
}

}  // namespace tp::testing
