#include "common/program/module_outputs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/program/builder.h"
#include "common/program/trim.h"

namespace tp {

absl::StatusOr<ForwardProgram> WithModuleOutputs(ForwardProgram program, const std::vector<ModuleOutput>& outputs) {
  std::vector<bool> wanted = LiveValues(program);
  for (const Operand& operand : program.operands) {
    if (operand.kind == OperandKind::kParameter || operand.kind == OperandKind::kBuffer) wanted[operand.value] = false;
  }
  ProgramBuilder builder(&program);
  for (const ModuleOutput& output : outputs) {
    if (!wanted[output.value]) continue;
    const std::string module_path = output.name.substr(0, output.name.find(':'));
    int value = output.value;
    Placements whole = builder.PlacementsOf(value);
    for (Placement& placement : whole) {
      if (placement.IsPartial()) placement = Placement::Replicate();
    }
    TP_ASSIGN_OR_RETURN(value, builder.Move(value, whole, module_path, absl::StrCat("output '", output.name, "'")));
    if (output.bias >= 0) {
      TP_ASSIGN_OR_RETURN(value, builder.AddBias(value, output.bias, output.bias_dim, module_path));
    }
    program.outputs.push_back({output.name, value});
  }
  return program;
}

}  // namespace tp
