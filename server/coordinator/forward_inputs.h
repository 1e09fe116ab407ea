// What a request gives a program: checks before dispatch, and each rank's block. Pure. Example:
//   TP_ASSIGN_OR_RETURN(Bindings bindings, CheckForwardInputs(submission.model, program, inputs));
//   TP_ASSIGN_OR_RETURN(std::string block, CutBlock(inputs["x"], placements, mesh, coordinate));
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "common/program/program.h"
#include "common/tensor/host_tensor.h"

namespace tp::server {

// INVALID_ARGUMENT for inputs that are missing or unknown (with the nearest), of another dtype, of other dims, whose
// bytes do not fit, or with values outside the program's limits ("input 'ids' position [0, 3]: id 300 outside [0,
// 257)").
absl::StatusOr<Bindings> CheckForwardInputs(const ModelDef& model, const ForwardProgram& program,
                                            const std::map<std::string, HostTensor>& inputs);

// The bytes of the block that `coordinate` holds, row-major. UNIMPLEMENTED for Partial.
absl::StatusOr<std::string> CutBlock(const HostTensor& tensor, const Placements& placements, const Mesh& mesh,
                                     absl::Span<const int> coordinate);

}  // namespace tp::server
