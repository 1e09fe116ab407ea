#include "worker/runtime/mesh_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instruction StepAlong(std::vector<int> axes) {
  Instruction instruction;
  instruction.step = RedistributeStep{RedistributeOp::kNone, std::move(axes), {}, {}};
  return instruction;
}

TEST(GroupsOf, OnePartitionForEachSetOfAxesThatStepsActOn) {
  ForwardProgram program;
  program.mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_THAT(GroupsOf(program), IsEmpty());
  program.instructions = {StepAlong({1}), Instruction(), StepAlong({0}),
                          StepAlong({1}), StepAlong({}), StepAlong({0, 1})};
  using Group = std::vector<int>;
  using Partition = std::vector<Group>;
  EXPECT_THAT(GroupsOf(program),
              ElementsAre(Partition{{0, 2}, {1, 3}}, Partition{{0, 1, 2, 3}}, Partition{{0, 1}, {2, 3}}));
}

}  // namespace
}  // namespace tp::worker
