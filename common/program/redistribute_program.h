// A redistribute of a named tensor as a program: one tensor operand, the plan's steps, one tensor output. Example:
//   ForwardProgram program = RedistributeProgram(mesh, DType::kF32, {5, 10}, plan, {Placement::Shard(0)});
// Pure.
#pragma once

#include "common/program/program.h"

namespace tp {

// `from` and the plan's steps are normalised placements on `mesh`. A plan without steps gives a program whose output is
// its operand.
ForwardProgram RedistributeProgram(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                   const RedistributePlan& plan, const Placements& from);

}  // namespace tp
