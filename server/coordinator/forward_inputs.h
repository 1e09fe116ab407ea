// What a request gives a program: checks before dispatch, and each rank's block. Pure. Example:
//   TP_ASSIGN_OR_RETURN(Bindings bindings, CheckForwardInputs(submission.model, program, {{"x", {.dtype = ...}}}));
//   TP_ASSIGN_OR_RETURN(std::string block, CutBlock(inputs["x"], placements, mesh, coordinate));
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "common/program/program.h"
#include "common/tensor/host_tensor.h"
#include "server/coordinator/forward_shards.h"

namespace tp::server {

// What a request gives for an input; without `full` and `shards` its values are not here.
struct GivenInput {
  DType dtype = DType::kF32;
  Shape shape = {};  // global
  const HostTensor* full = nullptr;
  const PlacedShards* shards = nullptr;
};
using GivenInputs = std::map<std::string, GivenInput>;

// INVALID_ARGUMENT for inputs that are missing or unknown (with the nearest), of another dtype, of other dims, whose
// bytes do not fit, or with values outside the program's limits: "input 'ids' position [0, 3]: id 300 outside [0,
// 257)", the first one in row-major order, however the input is cut. Values that are not here, and terms of a P, are
// checked where the program uses them.
absl::StatusOr<Bindings> CheckForwardInputs(const ModelDef& model, const ForwardProgram& program,
                                            const GivenInputs& inputs);

// The bytes of the block that `coordinate` holds, row-major. UNIMPLEMENTED for Partial.
absl::StatusOr<std::string> CutBlock(const HostTensor& tensor, const Placements& placements, const Mesh& mesh,
                                     absl::Span<const int> coordinate);

}  // namespace tp::server
