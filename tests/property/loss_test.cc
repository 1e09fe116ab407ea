// Cross entropy on logits that are cut over their classes: the numbers of SEMANTICS 4, no gather of logits, targets
// checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/operator_cases.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Values = std::vector<double>;

const SimTensor kLogits{{4, 4}, {1, 2, 3, 4, 4, 3, 2, 1, 1, 4, 2, 3, 3, 1, 4, 2}};
constexpr double kEach = 0.4401897;

struct Loss {
  absl::Status status;
  Values values;
  std::vector<std::string> ops;
  std::vector<InputCheck> checks;
};

Loss LossOf(const std::string& reduction, const Values& targets, const std::vector<MeshAxis>& axes,
            const Placements& logits) {
  CompositeConfig config;
  config.nodes = {CallFunction("loss", "cross_entropy", {"logits", "targets"}, {{"reduction", reduction}})};
  config.outputs = {{"loss", "loss"}};
  Placements whole(axes.size());
  const Submission submission =
      ForcedSubmission(config, {{"logits", DType::kF32, {4, 4}}, {"targets", DType::kI64, {4}}}, axes, {logits, whole});
  Loss loss;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  if (!compiled.ok()) {
    loss.status = compiled.status();
    return loss;
  }
  absl::StatusOr<SimulationResult> result =
      Simulate(compiled->program, {}, {{"logits", kLogits}, {"targets", {{4}, targets}}});
  loss.status = result.status();
  if (result.ok()) loss.values = result->outputs.at("loss").values;
  const auto records = CollectivesOf(compiled->program, {});
  for (const CollectiveRecord& record : *records) loss.ops.push_back(record.op);
  loss.checks = compiled->program.input_checks;
  return loss;
}

TEST(CrossEntropyTest, WorkedNumbersOnEveryCut) {
  const Values targets{3, 0, 1, 2}, one_ignored{3, -100, 1, 2}, none(4, -100);
  for (int degree : {1, 2, 3, 4}) {
    for (const Placement& cut : {Placement::Replicate(), Placement::Shard(0), Placement::Shard(1)}) {
      auto run = [&](const char* reduction, const Values& wanted) {
        Loss loss = LossOf(reduction, wanted, Tp(degree), {cut});
        EXPECT_TRUE(loss.status.ok()) << loss.status;
        // max, sum and the picked logit, [4, 1] each: no gather.
        if (degree > 1 && cut == Placement::Shard(1)) {
          EXPECT_THAT(loss.ops, AllOf(SizeIs(3), Each("all_reduce")));
        }
        loss.values.resize(4, -1);
        return loss.values;
      };
      EXPECT_NEAR(run("mean", targets)[0], kEach, 1e-7);
      EXPECT_NEAR(run("sum", targets)[0], 1.7607588, 2e-7);
      EXPECT_THAT(run("none", targets), Each(::testing::DoubleNear(kEach, 1e-7)));
      EXPECT_NEAR(run("mean", one_ignored)[0], kEach, 1e-7);
      EXPECT_NEAR(run("sum", one_ignored)[0], 3 * kEach, 2e-7);
      EXPECT_EQ(run("none", one_ignored)[1], 0);
      EXPECT_TRUE(std::isnan(run("mean", none)[0]));
      EXPECT_EQ(run("sum", none)[0], 0);
    }
  }
}

TEST(CrossEntropyTest, TargetsOfARequestAreCheckedBeforeDispatch) {
  const Loss loss = LossOf("mean", {3, 0, 1, 2}, Tp(2), {Placement::Shard(1)});
  EXPECT_EQ(loss.checks, (std::vector<InputCheck>{{"targets", 4, -100}}));
  EXPECT_THAT(LossOf("mean", {3, 4, 1, 2}, Tp(2), {Placement::Shard(1)}).status.message(), HasSubstr("outside [0, 4)"));
}

TEST(CrossEntropyTest, ClassesOnTwoAxesAreRefused) {
  const std::vector<MeshAxis> axes{{"dp", 2}, {"tp", 2}};
  const Loss both = LossOf("mean", {3, 0, 1, 2}, axes, {Placement::Shard(1), Placement::Shard(1)});
  EXPECT_EQ(both.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(both.status.message(), HasSubstr("cross_entropy needs logits cut on the class dim by at most one axis"));
  const Loss one = LossOf("mean", {3, 0, 1, 2}, axes, {Placement::Shard(0), Placement::Shard(1)});
  EXPECT_TRUE(one.status.ok()) << one.status;
  EXPECT_NEAR(one.values[0], kEach, 1e-7);
  for (const std::string& op : one.ops) EXPECT_EQ(op, "all_reduce");
}

}  // namespace
}  // namespace tp::testing
