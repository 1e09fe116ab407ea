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

int64_t Scratch(const char* mesh_text, const Shape& shape, const char* from, const char* to, const Coordinate& at,
                int64_t round_bytes = kRoundBytes) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return StepScratchBytes(mesh, DType::kF32, shape, OnlyStep(mesh, shape, from, to), at, round_bytes);
}
int64_t Rounds(const char* mesh_text, const Shape& shape, const char* from, const char* to, const Coordinate& at,
               int64_t round_bytes = kRoundBytes) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return StepRounds(mesh, DType::kF32, shape, OnlyStep(mesh, shape, from, to), at, round_bytes);
}
bool InPlace(const char* mesh_text, const Shape& shape, const char* from, const char* to, const Coordinate& at) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return StepIsInPlace(mesh, shape, OnlyStep(mesh, shape, from, to), at);
}

TEST(ScratchTest, LocalStepsAndAllReduceNeedNone) {
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=R", "tp=S(0)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=R", "tp=P(sum)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=R", "tp=P(max)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {8, 8}, "tp=S(0)", "tp=P(sum)", {1}), 0);
  EXPECT_EQ(Scratch("tp=4", {64, 8}, "tp=P(sum)", "tp=R", {2}), 0);
}

TEST(ScratchTest, BlocksThatAreRunsOfTheWholeAreNotPacked) {
  EXPECT_TRUE(InPlace("tp=4", {5, 10}, "tp=S(0)", "tp=R", {3}));
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(0)", "tp=R", {3}), 0);
  EXPECT_TRUE(InPlace("tp=4", {16, 16}, "tp=GS(0,2)", "tp=R", {3}));
  EXPECT_TRUE(InPlace("tp=4", {1, 10}, "tp=S(1)", "tp=R", {0}));
  EXPECT_FALSE(InPlace("tp=4", {5, 10}, "tp=S(1)", "tp=R", {0}));
  EXPECT_FALSE(
      StepIsInPlace(*Mesh::Parse("tp=2"), {8},
                    {RedistributeOp::kAllGather, {0}, {Placement::StridedShard(0, 2)}, {Placement::Replicate()}}, {0}));
  EXPECT_TRUE(InPlace("tp=2", {0, 8}, "tp=S(1)", "tp=R", {0}));
  EXPECT_TRUE(InPlace("dp=2,tp=2", {8, 4}, "dp=S(1),tp=S(0)", "dp=S(1)", {1, 0}));
  EXPECT_TRUE(InPlace("tp=4", {5, 10}, "tp=P(sum)", "tp=S(0)", {0}));
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=P(sum)", "tp=S(0)", {0}), 0);
  EXPECT_FALSE(InPlace("tp=4", {5, 10}, "tp=P(sum)", "tp=S(1)", {0}));
}

TEST(ScratchTest, AllGatherReceivesAllBlocks) {
  // Columns 3 3 3 1 of 5 rows: 60, 60, 60 and 20 bytes.
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(1)", "tp=R", {0}), 256);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(1)", "tp=R", {3}), 256);
  // 200 bytes in rounds of 100: 8, 8, 8 and 3 elements.
  EXPECT_EQ(Rounds("tp=4", {5, 10}, "tp=S(1)", "tp=R", {3}, 100), 2);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=S(1)", "tp=R", {3}, 100), 128);
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

TEST(ScratchTest, TheBusiestRankSetsTheRoundsOfAll) {
  // Rank (0,1) of the case above moves 1024 bytes, rank (0,0) 512: with 300 a round both take 4, of 16 elements a peer.
  for (const Coordinate& at : {Coordinate{0, 0}, Coordinate{0, 1}, Coordinate{1, 0}, Coordinate{1, 1}}) {
    EXPECT_EQ(Rounds("dp=2,tp=2", {16, 16}, "dp=S(0),tp=S(0)", "tp=S(0)", at, 300), 4);
  }
  EXPECT_EQ(Scratch("dp=2,tp=2", {16, 16}, "dp=S(0),tp=S(0)", "tp=S(0)", {0, 1}, 300), 128 + 128);
  EXPECT_EQ(Scratch("dp=2,tp=2", {16, 16}, "dp=S(0),tp=S(0)", "tp=S(0)", {0, 0}, 300), 64 + 64);
}

TEST(ScratchTest, ALargeTensorNeedsARound) {
  // 3 GiB S(0) -> S(1) on 2: 768 MiB each way, 24 rounds of 64 MiB.
  const Shape shape{16384, 49152};
  EXPECT_EQ(Rounds("tp=2", shape, "tp=S(0)", "tp=S(1)", {1}), 24);
  EXPECT_EQ(Scratch("tp=2", shape, "tp=S(0)", "tp=S(1)", {1}), int64_t{64} << 20);
  EXPECT_EQ(Scratch("tp=2", shape, "tp=S(1)", "tp=R", {1}), int64_t{64} << 20);
  EXPECT_EQ(Scratch("tp=2", shape, "tp=P(sum)", "tp=S(1)", {1}), int64_t{64} << 20);
  EXPECT_EQ(Scratch("tp=2", shape, "tp=P(sum)", "tp=R", {1}), 0);
}

TEST(ScratchTest, ReduceScatterPacksTheResultPieces) {
  // Columns 3 3 3 1 of 5 rows: 60 + 60 + 60 + 20 bytes.
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=P(sum)", "tp=S(1)", {0}), 256);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=P(sum)", "tp=S(1)", {3}), 256);
  EXPECT_EQ(Scratch("tp=4", {5, 10}, "tp=P(sum)", "tp=S(1)", {3}, 50), 64);  // 4 rounds: 4, 4, 4 and 2 elements
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
