#include "common/program/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/compile.h"
#include "common/program/rank_classes.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;

CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}

ProgramCost CostOfModel(const CompiledModel& model, const Bindings& bindings, const CostModel& costs = {}) {
  absl::StatusOr<ProgramCost> cost = CostOf(model.program, bindings, costs);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.ok() ? *cost : ProgramCost{};
}

double FlopsOf(const CompiledModel& model, const ProgramCost& cost, const std::string& function) {
  double flops = 0;
  for (size_t i = 0; i < model.program.instructions.size(); ++i) {
    if (model.program.instructions[i].function == function) flops += cost.instructions[i].flops;
  }
  return flops;
}

TEST(CostTest, LinearsAreTwoMnkOnTheBusiestRank) {
  const Bindings five{{"batch", 5}};
  const CompiledModel one = Compile(MlpSubmission(4, 7, 1)), two = Compile(MlpSubmission(4, 7, 2));
  // [5, 4] by [7, 4], then [5, 7] by [4, 7].
  EXPECT_EQ(FlopsOf(one, CostOfModel(one, five), "linear"), 2 * 5 * 7 * 4 + 2 * 5 * 4 * 7);
  // 7 over two ranks: 4 and 3.
  EXPECT_EQ(FlopsOf(two, CostOfModel(two, five), "linear"), 2 * 5 * 4 * 4 + 2 * 5 * 4 * 4);
  EXPECT_EQ(FlopsOf(two, CostOfModel(two, five), "relu"), 5 * 4);
  EXPECT_EQ(CostOfModel(two, {{"batch", 0}}).total.flops, 0);
}

TEST(CostTest, AttentionIsTwoProductsOfTheLocalHeads) {
  const CompiledModel model = Compile(DecoderSubmission({.layers = 3}, 4));
  const ProgramCost cost = CostOfModel(model, {{"batch", 2}, {"time", 9}});
  // 8 heads of 4 over four ranks; scores and the weighted sum: 2 * batch * heads * time * time * head_dim each.
  EXPECT_EQ(FlopsOf(model, cost, "attention"), 3 * 2 * (2 * 2 * 2 * 9 * 9 * 4));
}

TEST(CostTest, TimeIsTheLargerOfComputeAndMemory) {
  const CompiledModel model = Compile(MlpSubmission(4, 6, 1));
  const Bindings two{{"batch", 2}};
  const double infinite = 1e300;
  const ProgramCost compute = CostOfModel(model, two, {10, infinite, infinite, 0});
  EXPECT_DOUBLE_EQ(compute.total.seconds, compute.total.flops / 10);
  const ProgramCost memory = CostOfModel(model, two, {infinite, 8, infinite, 0});
  EXPECT_DOUBLE_EQ(memory.total.seconds, memory.total.memory_bytes / 8);
  // w1 reads [2, 4], [6, 4] and [6] and writes [2, 6], F32.
  EXPECT_EQ(memory.modules.at("w1").memory_bytes, 4 * (8 + 24 + 6 + 12));
  EXPECT_GE(CostOfModel(model, two, {10, 8, infinite, 0}).total.seconds, compute.total.seconds);
}

TEST(CostTest, AnEmbeddingReadsTheRowsThatItLooksUp) {
  const CompiledModel model = Compile(DecoderSubmission({.layers = 1}, 1));
  const ProgramCost cost = CostOfModel(model, {{"batch", 1}, {"time", 3}});
  EXPECT_EQ(cost.modules.at("embed").memory_bytes, 3 * 8 + 2 * 3 * 32 * 4);  // ids I64, rows read and written
}

TEST(CostTest, CollectivesTakeHopsAndBytes) {
  const CompiledModel model = Compile(MlpSubmission(4, 8, 4));
  const Bindings two{{"batch", 2}};
  const ProgramCost cost = CostOfModel(model, two, {1e300, 1e300, 16, 3});
  ASSERT_EQ(cost.collectives.size(), 1u);
  // All_reduce of [2, 4] F32 over 4: 2 * 3 hops, 2 * 3 / 4 * 32 bytes.
  EXPECT_EQ(cost.collectives[0].record.bytes, 48);
  EXPECT_DOUBLE_EQ(cost.collectives[0].seconds, 6 * 3 + 48.0 / 16);
  EXPECT_DOUBLE_EQ(cost.total.seconds, 6 * 3 + 48.0 / 16);
  EXPECT_EQ(cost.total.collective_bytes, 48);
  EXPECT_EQ(cost.collectives[0].group_size, 4);
  EXPECT_EQ(cost.collectives[0].groups, 1);
}

TEST(CostTest, CollectivesAreThoseOfCollectivesOf) {
  Submission submission = tp::testing::SequenceDecoderSubmission({.layers = 2}, 2);
  submission.plan.mesh = {{"dp", 3}, {"tp", 2}};
  submission.plan.batch_axes = {"dp"};
  const CompiledModel model = Compile(submission);
  const Bindings bindings{{"batch", 4}, {"time", 5}};
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(model.program, bindings);
  ASSERT_TRUE(records.ok()) << records.status();
  std::vector<CollectiveRecord> counted;
  for (const CollectiveCost& one : CostOfModel(model, bindings).collectives) {
    counted.push_back(one.record);
    EXPECT_EQ(one.group_size, 2);
    EXPECT_EQ(one.groups, 3);
  }
  EXPECT_EQ(counted, *records);
}

TEST(CostTest, AModuleCountsAllBelowIt) {
  const CompiledModel model = Compile(DecoderSubmission({.layers = 2}, 2));
  const ProgramCost cost = CostOfModel(model, {{"batch", 1}, {"time", 4}});
  EXPECT_DOUBLE_EQ(cost.modules.at("").flops, cost.total.flops);
  EXPECT_DOUBLE_EQ(cost.modules.at("").seconds, cost.total.seconds);
  EXPECT_DOUBLE_EQ(cost.modules.at("layers").flops,
                   cost.modules.at("layers.0").flops + cost.modules.at("layers.1").flops);
  EXPECT_DOUBLE_EQ(cost.modules.at("layers.0").flops, cost.modules.at("layers.1").flops);
  EXPECT_GT(cost.modules.at("layers.0").flops, cost.modules.at("layers.0.mlp").flops);
}

TEST(CostTest, UnboundSymbolsAndHugeSizesAreRefused) {
  const CompiledModel model = Compile(MlpSubmission(4, 6, 2));
  EXPECT_EQ(CostOf(model.program, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CostOf(model.program, {{"batch", int64_t{1} << 61}}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RankClassesTest, EqualBlocksAreOneClass) {
  // 13 hidden features over 4 ranks: 4 4 4 1.
  absl::StatusOr<std::vector<int>> classes = RankClasses(Compile(MlpSubmission(8, 13, 4)), {{"batch", 2}});
  ASSERT_TRUE(classes.ok()) << classes.status();
  EXPECT_THAT(*classes, ElementsAre(0, 0, 0, 3));
}

// What the classes save must change nothing: every rank by itself.
TEST(RankClassesTest, MemoryIsThatOfEachRank) {
  for (const auto& [dp, tp, batch] : std::vector<std::array<int, 3>>{{2, 3, 3}, {3, 4, 1}, {5, 2, 7}}) {
    Submission submission = MlpSubmission(6, 10, tp);
    submission.plan.mesh = {{"dp", dp}, {"tp", tp}};
    submission.plan.batch_axes = {"dp"};
    const CompiledModel model = Compile(submission);
    const Bindings bindings{{"batch", batch}};
    absl::StatusOr<std::vector<RankMemory>> memory = MemoryOf(model, bindings, false);
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_EQ(memory->size(), static_cast<size_t>(dp * tp));
    for (const RankMemory& rank : *memory) {
      const Coordinate coordinate = model.mesh.CoordinateOf(rank.rank);
      int64_t parameters = 0;
      for (const PlacedState& placed : model.states) {
        parameters += 4 * ElementCount(LocalShape(placed.state.shape, placed.placements, model.mesh, coordinate));
      }
      EXPECT_EQ(rank.parameter_bytes, parameters) << rank.rank;
      EXPECT_EQ(rank.activation_bytes, PlanMemory(model.program, bindings, coordinate)->total_bytes) << rank.rank;
    }
  }
}

TEST(RankClassesTest, AThousandRanksAreAFewClasses) {
  Submission submission = DecoderSubmission({.layers = 2}, 8);
  submission.plan.mesh = {{"dp", 128}, {"tp", 8}};
  submission.plan.batch_axes = {"dp"};
  const CompiledModel model = Compile(submission);
  absl::StatusOr<std::vector<int>> classes = RankClasses(model, {{"batch", 128}, {"time", 4}});
  ASSERT_TRUE(classes.ok()) << classes.status();
  ASSERT_EQ(classes->size(), 1024u);
  // 257 rows of the vocabulary over 8 ranks: 33 x7, 26.
  for (int rank = 0; rank < 1024; ++rank) EXPECT_EQ((*classes)[rank], rank % 8 == 7 ? 7 : 0) << rank;
}

}  // namespace
}  // namespace tp
