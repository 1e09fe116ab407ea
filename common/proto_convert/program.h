// tp.v1.Program <-> ForwardProgram. What arrives is validated as a whole (ValidateProgram), so that a worker can run it
// without further checks. Example: TP_ASSIGN_OR_RETURN(ForwardProgram program, ProgramFromProto(load.program(),
// "program")); Pure. All errors are INVALID_ARGUMENT with the field's path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/program/program.h"
#include "common/proto_convert/layout.h"
#include "tp/v1/program.pb.h"

namespace tp {

absl::StatusOr<ForwardProgram> ProgramFromProto(const v1::Program& program, const std::string& field);
void ProgramToProto(const ForwardProgram& program, v1::Program* proto);

}  // namespace tp
