#include "common/program/redistribute_program.h"

namespace tp {

ForwardProgram RedistributeProgram(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                   const RedistributePlan& plan, const Placements& from) {
  ForwardProgram program;
  program.mesh = mesh;
  DTensorSpec spec;
  spec.dtype = dtype;
  for (const int64_t size : shape) spec.shape.push_back(Dim(size));
  spec.placements = from;
  program.values.push_back({"source", spec});
  program.operands.push_back({OperandKind::kTensor, "source", 0});
  for (const RedistributeStep& step : plan.steps) {
    const int input = static_cast<int>(program.values.size()) - 1;
    spec.placements = step.to;
    program.values.push_back({"result", spec});
    Instruction instruction;
    instruction.function = "redistribute";
    instruction.inputs = {input};
    instruction.outputs = {input + 1};
    instruction.step = step;
    instruction.reason = PlacementsText(mesh, step.from) + " -> " + PlacementsText(mesh, step.to);
    program.instructions.push_back(std::move(instruction));
  }
  program.outputs.push_back({"result", static_cast<int>(program.values.size()) - 1});
  return program;
}

}  // namespace tp
