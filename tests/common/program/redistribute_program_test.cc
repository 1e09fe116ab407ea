#include "common/program/redistribute_program.h"

#include <gmock/gmock.h>

#include "common/program/memory.h"

namespace tp {
namespace {

using ::testing::ElementsAre;

ForwardProgram ProgramOf(const Mesh& mesh, const char* from_text, const char* to_text) {
  const Placements from = *ParsePlacements(mesh, from_text);
  const RedistributePlan plan = *PlanRedistribute(mesh, DType::kF32, {4, 6}, from, *ParsePlacements(mesh, to_text));
  return RedistributeProgram(mesh, DType::kF32, {4, 6}, plan, from);
}

TEST(RedistributeProgramTest, HasOneInstructionAStepAndIsValid) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  const ForwardProgram program = ProgramOf(mesh, "dp=P(sum),tp=R", "dp=S(0),tp=S(1)");
  EXPECT_TRUE(WorksOnTensors(program));
  EXPECT_TRUE(ValidateProgram(program).ok()) << ValidateProgram(program);
  ASSERT_EQ(program.operands.size(), 1u);
  EXPECT_EQ(program.operands[0].kind, OperandKind::kTensor);
  EXPECT_EQ(program.instructions.size(), 2u);
  EXPECT_EQ(program.values[program.outputs[0].value].spec.placements, *ParsePlacements(mesh, "dp=S(0),tp=S(1)"));
  EXPECT_EQ(program.values[0].spec.placements, *ParsePlacements(mesh, "dp=P(sum),tp=R"));
}

TEST(RedistributeProgramTest, WithoutStepsTheOutputIsTheOperand) {
  const ForwardProgram program = ProgramOf(*Mesh::Parse("tp=2"), "tp=S(0)", "tp=S(0)");
  EXPECT_TRUE(program.instructions.empty());
  EXPECT_EQ(program.outputs[0].value, program.operands[0].value);
}

// 4x6 F32, (S0, S0) on (2,2): source 24 bytes a rank, result 48: both lie outside, what is between lies in the arena.
TEST(RedistributeProgramTest, TensorsLieOutsideOfTheArena) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  const ForwardProgram program = ProgramOf(mesh, "tp=S(0)", "tp=R");
  const MemoryPlan plan = *PlanMemory(program, {}, {0});
  EXPECT_THAT(plan.value_offset, ElementsAre(-1, -1));
  EXPECT_EQ(plan.total_bytes, (plan.scratch_bytes[0] + 63) / 64 * 64);
  const ForwardProgram chain = ProgramOf(*Mesh::Parse("dp=2,tp=2"), "dp=P(sum),tp=P(avg)", "");
  ASSERT_EQ(chain.instructions.size(), 2u);
  const MemoryPlan chained = *PlanMemory(chain, {}, {0, 0});
  EXPECT_EQ(chained.value_offset[0], -1);
  EXPECT_GE(chained.value_offset[1], 0);
  EXPECT_EQ(chained.value_offset[2], -1);
}

}  // namespace
}  // namespace tp
