#include "common/redistribute/plan.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

RedistributeStep OnlyStep(const Mesh& mesh, const Shape& shape, const char* from, const char* to) {
  const absl::StatusOr<RedistributePlan> plan =
      PlanRedistribute(mesh, DType::kF32, shape, *ParsePlacements(mesh, from), *ParsePlacements(mesh, to));
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->steps.size(), 1u);
  return plan->steps.at(0);
}

int64_t Scratch(const char* mesh_text, const Shape& shape, const char* from, const char* to, const Coordinate& at) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return StepScratchBytes(mesh, DType::kF32, shape, OnlyStep(mesh, shape, from, to), at);
}

TEST(ScratchTest, LocalStepsNeedNone) {
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=R", "tp=S(0)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=R", "tp=P(sum)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=R", "tp=P(max)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=S(0)", "tp=P(sum)", {1}), 0);
}

TEST(ScratchTest, AllGatherReceivesTheBlocksOfTheOthers) {
  // Rows of 40 bytes, 2 2 1 0 on the ranks: 80, 80, 40 and 0 bytes, each rounded up to 64.
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(0)", "tp=R", {0}), 128 + 64);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(0)", "tp=R", {2}), 128 + 128);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(0)", "tp=R", {3}), 128 + 128 + 64);
  // Two groups of neighbours: one block of the other group.
  EXPECT_EQ(Scratch("tp=4", {16, 16}, "tp=GS(0,2)", "tp=R", {3}), 512);
}

TEST(ScratchTest, ExchangesPackWhatTheySendBesideWhatTheyReceive) {
  // 5x3 over 2: rows 3 2, columns 2 1. Rank 0 sends 3x1 and receives 2x2.
  EXPECT_EQ(Scratch("tp=2", {5, 3}, "tp=S(0)", "tp=S(1)", {0}), 64 + 64);
  // 16x16 over 2: half of a half each way, 256 bytes.
  EXPECT_EQ(Scratch("tp=2", {16, 16}, "tp=S(0)", "tp=S(1)", {1}), 256 + 256);
}

TEST(ScratchTest, PermuteCountsOnlyPeersThatShareBytes) {
  // 16 rows of 64 bytes as quarters on 2x2. To halves by tp: rank (0,1) holds quarter 1, needs quarters 2 and 3, and
  // sends its quarter to (0,0) and (1,0).
  EXPECT_EQ(Scratch("dp=2,tp=2", {16, 16}, "dp=S(0),tp=S(0)", "tp=S(0)", {0, 1}), 2 * 256 + 2 * 256);
  // Rank (0,0) holds quarter 0, needs quarter 1, and sends its own to (1,0).
  EXPECT_EQ(Scratch("dp=2,tp=2", {16, 16}, "dp=S(0),tp=S(0)", "tp=S(0)", {0, 0}), 256 + 256);
}

TEST(ScratchTest, Reductions) {
  EXPECT_EQ(Scratch("tp=4", {5}, "tp=P(sum)", "tp=R", {0}), 2 * 64);
  EXPECT_EQ(Scratch("tp=4", {64, 8}, "tp=P(sum)", "tp=R", {2}), 2 * 2048);
  // Pieces of 2 2 1 0 rows of 40 bytes: 128 + 128 + 64 packed, and four terms of the own piece.
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=P(sum)", "tp=S(0)", {0}), 128 + 128 + 64 + 4 * 128);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=P(sum)", "tp=S(0)", {3}), 128 + 128 + 64);
}

TEST(SuppliesTest, EveryCopyIsAskedByOneRank) {
  const Mesh mesh = *Mesh::Parse("tp=4");
  const RedistributeStep step = OnlyStep(mesh, {8}, "tp=GS(0,2)", "tp=R");
  // Ranks 0 and 1 are neighbours, as are 2 and 3; the first asks the first.
  for (int sender = 0; sender < 4; ++sender) {
    for (int receiver = 0; receiver < 4; ++receiver) {
      EXPECT_EQ(SuppliesBlock(mesh, step, {sender}, {receiver}), sender % 2 == receiver % 2);
    }
  }
}

TEST(StepTextTest, AxesAreJoinedByCommas) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_EQ(StepAxesText(mesh, {RedistributeOp::kAllReduce, {0, 1}, {}, {}}), "dp,tp");
  EXPECT_EQ(StepAxesText(mesh, {RedistributeOp::kAllReduce, {1}, {}, {}}), "tp");
}

}  // namespace
}  // namespace tp
