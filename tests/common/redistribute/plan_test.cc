#include "common/redistribute/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

// "all_gather(tp) slice(dp)".
std::string StepsText(const Mesh& mesh, const RedistributePlan& plan) {
  return absl::StrJoin(plan.steps, " ", [&mesh](std::string* out, const RedistributeStep& step) {
    absl::StrAppend(out, std::string(RedistributeOpName(step.op)), "(", StepAxesText(mesh, step), ")");
  });
}

struct Case {
  const char* mesh;
  Shape shape;
  const char* from;
  const char* to;
  const char* steps;
  int64_t bytes;
  DType dtype = DType::kF32;
};

class PlanTest : public ::testing::TestWithParam<Case> {};

TEST_P(PlanTest, StepsAndBytes) {
  const Case& c = GetParam();
  SCOPED_TRACE(absl::StrCat(c.mesh, " ", ShapeText(c.shape), " ", c.from, " -> ", c.to));
  const Mesh mesh = *Mesh::Parse(c.mesh);
  const Placements from = *ParsePlacements(mesh, c.from);
  const Placements to = *ParsePlacements(mesh, c.to);
  const absl::StatusOr<RedistributePlan> plan = PlanRedistribute(mesh, c.dtype, c.shape, from, to);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(StepsText(mesh, *plan), c.steps);
  EXPECT_EQ(PlanBytes(mesh, c.dtype, c.shape, *plan), c.bytes);
  if (!plan->steps.empty()) {
    EXPECT_EQ(plan->steps.front().from, from);
    EXPECT_EQ(plan->steps.back().to, to);
  }
}

// The table of one axis; 8x8 floats are 256 bytes.
INSTANTIATE_TEST_SUITE_P(
    OneAxis, PlanTest,
    ::testing::Values(Case{"tp=4", {8, 8}, "tp=S(0)", "tp=S(0)", "", 0},
                      Case{"tp=4", {8, 8}, "tp=R", "tp=S(0)", "slice(tp)", 0},
                      Case{"tp=4", {8, 8}, "tp=S(0)", "tp=R", "all_gather(tp)", 192},
                      Case{"tp=4", {8, 8}, "tp=S(0)", "tp=S(1)", "all_to_all(tp)", 48},
                      Case{"tp=4", {8, 8}, "tp=P(sum)", "tp=R", "all_reduce(tp)", 384},
                      Case{"tp=4", {8, 8}, "tp=P(sum)", "tp=S(1)", "reduce_scatter(tp)", 192},
                      Case{"tp=4", {8, 8}, "tp=R", "tp=P(sum)", "divide(tp)", 0},
                      Case{"tp=4", {8, 8}, "tp=R", "tp=P(avg)", "none(tp)", 0},
                      Case{"tp=4", {8, 8}, "tp=R", "tp=P(min)", "none(tp)", 0},
                      Case{"tp=4", {8, 8}, "tp=R", "tp=P(max)", "none(tp)", 0},
                      Case{"tp=4", {8, 8}, "tp=S(1)", "tp=P(sum)", "fill(tp)", 0},
                      Case{"tp=4", {8, 8}, "tp=P(sum)", "tp=P(max)", "all_reduce(tp) none(tp)", 384},
                      Case{"tp=4", {8, 8}, "tp=P(avg)", "tp=P(sum)", "all_reduce(tp) divide(tp)", 384}));

// Five rows of 40 bytes: rank 3 holds none of them.
INSTANTIATE_TEST_SUITE_P(UnevenAndEmpty, PlanTest,
                         ::testing::Values(Case{"tp=4", {5, 10}, "tp=R", "tp=S(0)", "slice(tp)", 0},
                                           Case{"tp=4", {5, 10}, "tp=S(0)", "tp=R", "all_gather(tp)", 200},
                                           // Columns 3 3 3 1; rank 2 has 1 row and lacks 4 rows of 3 columns.
                                           Case{"tp=4", {5, 10}, "tp=S(0)", "tp=S(1)", "all_to_all(tp)", 48},
                                           Case{"tp=2", {5, 3}, "tp=S(0)", "tp=S(1)", "all_to_all(tp)", 16},
                                           Case{"tp=4", {5}, "tp=P(max)", "tp=R", "all_reduce(tp)", 30},
                                           Case{"tp=4", {5}, "tp=P(min)", "tp=S(0)", "reduce_scatter(tp)", 24},
                                           Case{"tp=4", {0, 4}, "tp=S(1)", "tp=R", "all_gather(tp)", 0},
                                           Case{"tp=4", {1}, "tp=S(0)", "tp=R", "all_gather(tp)", 4},
                                           Case{"tp=3", {}, "tp=P(sum)", "tp=R", "all_reduce(tp)", 5},
                                           Case{"tp=3", {1}, "tp=R", "tp=P(sum)", "divide(tp)", 0, DType::kI64}));

INSTANTIATE_TEST_SUITE_P(
    TwoAxes, PlanTest,
    ::testing::Values(
        // At most 3n/4 in three steps; the permute saves a quarter.
        Case{"dp=2,tp=2", {8, 8}, "dp=S(0),tp=S(0)", "dp=R,tp=S(0)", "permute(dp,tp)", 128},
        Case{"dp=2,tp=2", {8, 8}, "dp=S(0)", "tp=S(0)", "permute(dp,tp)", 128},
        Case{"dp=2,tp=2", {8, 8}, "dp=P(sum),tp=S(0)", "dp=S(0),tp=S(0)", "reduce_scatter(dp) permute(dp,tp)", 128},
        Case{"dp=2,tp=2", {8, 8, 4}, "dp=S(1),tp=S(1)", "dp=S(1),tp=S(2)", "all_to_all(tp)", 128},
        Case{"dp=2,tp=2", {8, 8}, "dp=P(sum),tp=P(sum)", "", "all_reduce(dp,tp)", 384},
        Case{"dp=2,tp=2", {8, 8}, "dp=P(max),tp=P(max)", "", "all_reduce(dp,tp)", 384},
        Case{"dp=2,tp=2", {8, 8}, "dp=P(sum),tp=P(avg)", "", "all_reduce(dp) all_reduce(tp)", 512},
        Case{"dp=2,tp=2", {8, 8}, "dp=P(sum),tp=P(sum)", "dp=P(sum)", "all_reduce(tp)", 256},
        Case{"dp=2,tp=2", {8, 8}, "", "dp=P(sum),tp=P(sum)", "divide(dp,tp)", 0},
        Case{"dp=2,tp=2", {8, 8}, "", "dp=S(0),tp=S(0)", "slice(dp,tp)", 0},
        Case{"dp=2,tp=2", {8, 8}, "dp=S(0),tp=S(0)", "", "all_gather(dp,tp)", 192},
        Case{"dp=2,tp=2", {8, 8}, "dp=P(sum)", "dp=S(1)", "reduce_scatter(dp)", 128},
        Case{"dp=2,tp=2", {8, 8}, "dp=S(0),tp=S(1)", "dp=S(0)", "all_gather(tp)", 64},
        // 5 rows of 12 bytes as 2 1 1 1: a rank of one row lacks four.
        Case{"dp=2,tp=2", {5, 3}, "dp=S(0),tp=S(0)", "", "all_gather(dp,tp)", 48},
        Case{"dp=2,tp=2", {5, 3}, "", "dp=S(0),tp=S(0)", "slice(dp,tp)", 0}));

// 128 rows of 1 KiB; chunks of 32 rows, each on two neighbours.
INSTANTIATE_TEST_SUITE_P(
    Groups, PlanTest,
    ::testing::Values(
        Case{"tp=8", {128, 256}, "tp=R", "tp=GS(0,4)", "slice(tp)", 0},
        Case{"tp=8", {128, 256}, "tp=GS(0,4)", "tp=R", "all_gather(tp)", 96 * 1024},
        Case{
            "tp=8", {128, 256}, "tp=P(sum)", "tp=GS(0,4)", "reduce_scatter(tp) permute(tp)", 7 * 16 * 1024 + 16 * 1024},
        Case{"tp=8", {128, 256}, "tp=GS(0,4)", "tp=GS(0,2)", "permute(tp)", 32 * 1024},
        Case{"tp=4", {8}, "tp=S(0)", "tp=GS(0,4)", "none(tp)", 0},
        Case{"tp=4", {8}, "tp=R", "tp=GS(0,1)", "none(tp)", 0},
        Case{"tp=4", {8}, "tp=GS(0,2)", "tp=P(max)", "all_gather(tp) none(tp)", 16}));

INSTANTIATE_TEST_SUITE_P(
    StridedKinds, PlanTest,
    ::testing::Values(Case{"tp=2", {12}, "tp=R", "tp=IS(0,[8,2,2])", "slice(tp)", 0},
                      Case{"tp=2", {12}, "tp=R", "tp=SS(0,3)", "slice(tp)", 0},
                      Case{"tp=2", {12}, "tp=IS(0,2)", "tp=SS(0,2)", "none(tp)", 0},
                      Case{"tp=2", {12}, "tp=IS(0,[4,1,1])", "tp=IS(0,[8,2,2])", "none(tp)", 0},
                      Case{"tp=2", {12}, "tp=IS(0,2)", "tp=IS(0,2)", "", 0},
                      // 12 rows of 4 bytes: a half is 24 bytes. Pieces {0-2,6-8} against [0,6).
                      Case{"tp=2", {12}, "tp=SS(0,2)", "tp=R", "all_gather(tp)", 24},
                      Case{"tp=2", {12}, "tp=S(0)", "tp=SS(0,2)", "permute(tp)", 12},
                      Case{"tp=2", {12}, "tp=IS(0,2)", "tp=S(0)", "permute(tp)", 12},
                      // {0,2,3,4} of 8 against {0,1,4,5}.
                      Case{"tp=2", {8}, "tp=IS(0,[1,3])", "tp=SS(0,2)", "permute(tp)", 8},
                      Case{"tp=2", {12}, "tp=P(sum)", "tp=IS(0,[4,1,1])", "reduce_scatter(tp)", 24},
                      Case{"tp=2", {12}, "tp=SS(0,3)", "tp=P(sum)", "fill(tp)", 0},
                      Case{"tp=2", {12}, "tp=SS(0,3)", "tp=P(max)", "all_gather(tp) none(tp)", 24},
                      Case{"tp=2", {12, 12}, "tp=IS(0,2)", "tp=IS(1,2)", "permute(tp)", 144},
                      // The outer cut goes, the inner one stays and moves under it.
                      Case{"dp=2,tp=2", {8}, "dp=S(0),tp=SS(0,2)", "dp=R,tp=SS(0,2)", "permute(dp,tp)", 12},
                      // The name of the target is taken by the last step.
                      Case{"tp=2", {12}, "tp=P(sum)", "tp=IS(0,2)", "reduce_scatter(tp)", 24},
                      Case{"dp=2,tp=2", {12, 4}, "dp=S(1),tp=IS(0,2)", "dp=R,tp=IS(0,2)", "all_gather(dp)", 48}));

INSTANTIATE_TEST_SUITE_P(AxesOfOneRank, PlanTest,
                         ::testing::Values(Case{"dp=1,tp=2", {8}, "dp=S(0),tp=S(0)", "", "all_gather(tp)", 16},
                                           Case{"dp=1,tp=2", {8}, "dp=S(0)", "dp=P(max)", "none(dp)", 0},
                                           Case{"dp=1,tp=2", {8}, "dp=P(product),tp=S(0)", "tp=S(0)", "none(dp)", 0},
                                           Case{"tp=1", {8}, "tp=P(sum)", "tp=S(0)", "none(tp)", 0}));

absl::Status Refusal(const char* mesh_text, const char* from, const char* to, const Shape& shape = {8, 8},
                     DType dtype = DType::kF32) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return PlanRedistribute(mesh, dtype, shape, *ParsePlacements(mesh, from), *ParsePlacements(mesh, to)).status();
}

TEST(PlanRefusalTest, TargetsThatAreNotDefined) {
  const absl::Status product = Refusal("tp=2", "tp=R", "tp=P(product)");
  EXPECT_EQ(product.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(product.message()).find("R -> P(product) on mesh axis tp"), std::string::npos);
  EXPECT_EQ(Refusal("tp=2", "tp=P(sum)", "tp=P(product)").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("tp=2", "tp=S(0)", "tp=P(product)").code(), absl::StatusCode::kInvalidArgument);
  for (const char* to : {"tp=P(avg)", "tp=P(min)", "tp=P(max)"}) {
    EXPECT_EQ(Refusal("tp=2", "tp=S(0)", to).code(), absl::StatusCode::kInvalidArgument) << to;
  }
  EXPECT_TRUE(Refusal("tp=2", "tp=P(product)", "tp=P(product)").ok());
  EXPECT_TRUE(Refusal("tp=2", "tp=P(product)", "tp=R").ok());
}

TEST(PlanRefusalTest, LayoutsThatDoNotFit) {
  EXPECT_EQ(Refusal("tp=2", "tp=S(2)", "tp=R").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("tp=2", "tp=S(-1)", "tp=R").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("tp=2", "tp=R", "tp=IS(0,3)").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("tp=2", "tp=R", "tp=P(avg)", {8}, DType::kI64).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("tp=2", "tp=R", "tp=S(0)", {-1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal("tp=2", "tp=R", "tp=S(0)", {int64_t{1} << 61}).code(), absl::StatusCode::kInvalidArgument);
  const Mesh mesh = *Mesh::Parse("tp=2");
  EXPECT_EQ(PlanRedistribute(mesh, DType::kF32, {4}, {}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlanLimitTest, PairsThatCostFewerBytesThanTheirRows) {
  // Three axes: terms of two ops become R by one all_reduce each, whatever the sizes.
  const Mesh mesh = *Mesh::Parse("a=2,b=2,c=2");
  const RedistributePlan plan = *PlanRedistribute(
      mesh, DType::kF32, {1}, *ParsePlacements(mesh, "a=P(sum),b=P(avg),c=P(sum)"), *ParsePlacements(mesh, ""));
  EXPECT_EQ(StepsText(mesh, plan), "all_reduce(a,c) all_reduce(b)");
}

TEST(PlannerTest, RemembersWithoutChangingPlans) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  RedistributePlanner planner(mesh, DType::kF32, {8, 8});
  const char* layouts[] = {"", "dp=S(0),tp=S(0)", "dp=P(sum),tp=S(0)", "tp=SS(1,2)", "dp=S(1),tp=P(avg)"};
  for (int round = 0; round < 2; ++round) {
    for (const char* from : layouts) {
      for (const char* to : layouts) {
        const Placements a = *ParsePlacements(mesh, from), b = *ParsePlacements(mesh, to);
        const absl::StatusOr<RedistributePlan> alone = PlanRedistribute(mesh, DType::kF32, {8, 8}, a, b);
        const absl::StatusOr<RedistributePlan> shared = planner.Plan(a, b);
        ASSERT_EQ(alone.status(), shared.status());
        if (alone.ok()) EXPECT_EQ(alone->steps, shared->steps) << from << " -> " << to;
      }
    }
  }
}

TEST(PlanLimitTest, UpperLimitsHoldForEveryEvenSize) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  struct Limit {
    const char* from;
    const char* to;
    int64_t quarters;  // of the global tensor
  };
  for (const Limit& limit : {Limit{"dp=S(0),tp=S(0)", "tp=S(0)", 3}, Limit{"dp=S(0)", "tp=S(0)", 2},
                             Limit{"dp=P(sum),tp=S(0)", "dp=S(0),tp=S(0)", 4}}) {
    for (const Shape& shape : {Shape{4}, Shape{4, 1}, Shape{8, 8}, Shape{16, 4, 2}}) {
      const absl::StatusOr<RedistributePlan> plan = PlanRedistribute(
          mesh, DType::kF32, shape, *ParsePlacements(mesh, limit.from), *ParsePlacements(mesh, limit.to));
      ASSERT_TRUE(plan.ok());
      EXPECT_LE(PlanBytes(mesh, DType::kF32, shape, *plan), limit.quarters * ElementCount(shape));
      EXPECT_LE(plan->steps.size(), 3u);
    }
  }
}

TEST(PlanSizeTest, BigMeshesAndHugeTensorsArePlanned) {
  const Mesh mesh = *Mesh::Parse("dp=4,tp=64");
  const Shape shape = {int64_t{1} << 30, int64_t{1} << 28};
  const absl::StatusOr<RedistributePlan> plan =
      PlanRedistribute(mesh, DType::kF32, shape, *ParsePlacements(mesh, "dp=P(sum),tp=P(sum)"),
                       *ParsePlacements(mesh, "dp=S(0),tp=S(1)"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(PlanBytes(mesh, DType::kF32, shape, *plan), 0);
}

}  // namespace
}  // namespace tp
