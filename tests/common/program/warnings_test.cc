#include "common/program/warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tp::testing::Colwise;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;

CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}

std::vector<std::string> Gathers(const Submission& submission, const Bindings& bindings) {
  absl::StatusOr<std::vector<std::string>> warnings = AvoidableGathers(submission, Compile(submission), bindings);
  EXPECT_TRUE(warnings.ok()) << warnings.status();
  return warnings.ok() ? *warnings : std::vector<std::string>();
}

std::vector<std::string> Uneven(const Submission& submission, const Bindings& bindings) {
  absl::StatusOr<std::vector<std::string>> warnings = UnevenShards(Compile(submission), bindings);
  EXPECT_TRUE(warnings.ok()) << warnings.status();
  return warnings.ok() ? *warnings : std::vector<std::string>();
}

const Bindings kTwo{{"batch", 2}};

TEST(AvoidableGathersTest, TheUsualPlansHaveNone) {
  EXPECT_THAT(Gathers(MlpSubmission(8, 12, 2), kTwo), IsEmpty());
  EXPECT_THAT(Gathers(DecoderSubmission({}, 2), {{"batch", 1}, {"time", 16}}), IsEmpty());
  EXPECT_THAT(Gathers(tp::testing::SequenceDecoderSubmission({}, 2), {{"batch", 1}, {"time", 16}}), IsEmpty());
}

TEST(AvoidableGathersTest, AnOutputThatCouldHaveStayedCut) {
  Submission submission = MlpSubmission(8, 12, 2);
  std::get<ColwiseParallel>(submission.plan.entries[0].style).output_layouts = Placement::Replicate();
  // One all_gather of [2, 12] (half of 96 bytes) besides the all_reduce of [2, 8] (64 bytes).
  EXPECT_THAT(Gathers(submission, kTwo),
              ElementsAre(AllOf(HasSubstr("w1: all_gather (output of w1: S(1) -> R) can be avoided"),
                                HasSubstr("plan.entries[0] 'w1' with output_layouts=S(-1)"),
                                HasSubstr("64 bytes in place of 112"))));
}

TEST(AvoidableGathersTest, TwoColumnsInARow) {
  Submission submission = MlpSubmission(4, 64, 2);
  submission.plan.entries[1] = Colwise("w2");
  EXPECT_THAT(Gathers(submission, kTwo), ElementsAre(AllOf(HasSubstr("w2: all_gather"), HasSubstr("input of w2"),
                                                           HasSubstr("RowwiseParallel in plan.entries[1] 'w2'"))));
}

std::vector<std::string> Unpaired(const Submission& submission, int64_t limit = 0) {
  absl::StatusOr<std::vector<std::string>> warnings =
      UnpairedStyles(submission, Compile(submission), {{"batch", 2}, {"time", 16}}, limit);
  EXPECT_TRUE(warnings.ok()) << warnings.status();
  return warnings.ok() ? *warnings : std::vector<std::string>();
}

TEST(UnpairedStylesTest, TheUsualPlansHaveNone) {
  EXPECT_THAT(Unpaired(MlpSubmission(8, 12, 2)), IsEmpty());
  EXPECT_THAT(Unpaired(DecoderSubmission({}, 2)), IsEmpty());
  EXPECT_THAT(Unpaired(tp::testing::SequenceDecoderSubmission({}, 2)), IsEmpty());
  EXPECT_THAT(Unpaired(MlpSubmission(8, 12, 1)), IsEmpty());
}

TEST(UnpairedStylesTest, ARowwiseWithoutAColwiseBeforeIt) {
  Submission submission = MlpSubmission(8, 12, 2);
  submission.plan.entries.erase(submission.plan.entries.begin());
  EXPECT_THAT(Unpaired(submission),
              ElementsAre(AllOf(HasSubstr("w2: RowwiseParallel takes an input cut by features, and its own is tp=R"),
                                HasSubstr("ColwiseParallel on 'w1' makes it so"))));
}

// All three layers by one pattern, told once.
TEST(UnpairedStylesTest, EqualLayersAreToldOnce) {
  Submission submission = DecoderSubmission({.layers = 3}, 2);
  std::erase_if(submission.plan.entries, [](const PlanEntry& entry) {
    return entry.pattern == "layers.*.mlp.w1" || entry.pattern == "layers.*.mlp.w3";
  });
  EXPECT_THAT(Unpaired(submission), ElementsAre(AllOf(HasSubstr("layers.0.mlp.w2: RowwiseParallel"),
                                                      HasSubstr("ColwiseParallel on 'layers.*.mlp.w1'"),
                                                      HasSubstr("ColwiseParallel on 'layers.*.mlp.w3'"))));
}

TEST(UnpairedStylesTest, AColwiseThatIsGatheredRightAway) {
  Submission submission = MlpSubmission(8, 12, 2);
  std::get<ColwiseParallel>(submission.plan.entries[0].style).output_layouts = Placement::Replicate();
  submission.plan.entries.pop_back();
  // The gather of [2, 12] brings 48 bytes, the sum of [2, 8] in its place 64.
  EXPECT_THAT(Unpaired(submission),
              ElementsAre(AllOf(HasSubstr("w1: what ColwiseParallel cut is gathered (output of w1: S(1) -> R)"),
                                HasSubstr("RowwiseParallel on 'w2' with output_layouts=S(-1) in plan.entries[0] 'w1'"),
                                HasSubstr("64 bytes in place of 48"))));
}

TEST(UnpairedStylesTest, AWholeWeightOfWhichAPartIsUsed) {
  Submission submission = MlpSubmission(8, 12, 2);
  submission.plan.entries.pop_back();
  EXPECT_THAT(Unpaired(submission), ElementsAre(AllOf(HasSubstr("w2: "), HasSubstr("RowwiseParallel on 'w2'"))));
}

// What would not fit is not named, and what fits whole need not be cut.
TEST(PlanWarningsTest, KeepToAMemoryLimit) {
  Submission submission = MlpSubmission(8, 12, 2);
  std::get<ColwiseParallel>(submission.plan.entries[0].style).output_layouts = Placement::Replicate();
  const CompiledModel compiled = Compile(submission);
  absl::StatusOr<std::vector<std::string>> free = PlanWarnings(submission, compiled, kTwo);
  ASSERT_TRUE(free.ok());
  EXPECT_THAT(*free, ElementsAre(HasSubstr("can be avoided")));
  absl::StatusOr<std::vector<std::string>> tight = PlanWarnings(submission, compiled, kTwo, /*memory_limit=*/100);
  ASSERT_TRUE(tight.ok());
  EXPECT_THAT(*tight, IsEmpty());
  Submission big = MlpSubmission(512, 1024, 4);  // w2 stays whole: 2 MiB of 2.5
  big.plan.entries.clear();
  big.plan.entries.push_back(tp::testing::Styled("w1", ColwiseParallel{}));
  std::get<ColwiseParallel>(big.plan.entries[0].style).output_layouts = Placement::Replicate();
  const CompiledModel whole = Compile(big);
  EXPECT_THAT(*PlanWarnings(big, whole, kTwo), ::testing::Contains(HasSubstr("bytes on every rank")));
  EXPECT_THAT(*PlanWarnings(big, whole, kTwo, /*memory_limit=*/100 << 20),
              Not(::testing::Contains(HasSubstr("bytes on every rank"))));
}

TEST(UnevenShardsTest, RanksThatHoldNothing) {
  // 9 hidden features over 8 ranks.
  EXPECT_THAT(Uneven(MlpSubmission(8, 9, 8), kTwo),
              ElementsAre("w1.weight: dim 0 of 9 over tp=8 gives 2 2 2 2 1 0 0 0: 3 ranks hold nothing; a size that 8 "
                          "divides, as 16, or tp=3 shares it out",
                          "w2.weight: dim 1 of 9 over tp=8 gives 2 2 2 2 1 0 0 0: 3 ranks hold nothing; a size that 8 "
                          "divides, as 16, or tp=3 shares it out"));
}

TEST(UnevenShardsTest, ABusiestRankOverItsShare) {
  // 5 over 3: 2 2 1, 20 % over; 4 over 3: 2 2 0.
  EXPECT_THAT(Uneven(MlpSubmission(8, 5, 3), kTwo), IsEmpty());
  EXPECT_THAT(Uneven(MlpSubmission(8, 4, 3), kTwo), ElementsAre(HasSubstr("gives 2 2 0: 1 rank holds nothing"),
                                                                HasSubstr("gives 2 2 0: 1 rank holds nothing")));
  // 13 over 5: 3 3 3 3 1, 15 %; 21 over 16: 2 x10, 1, 0 x5.
  EXPECT_THAT(Uneven(MlpSubmission(8, 13, 5), kTwo), IsEmpty());
  EXPECT_THAT(Uneven(MlpSubmission(8, 12, 4), kTwo), IsEmpty());
}

TEST(UnevenShardsTest, AFreeDimAtItsSize) {
  Submission submission = MlpSubmission(8, 12, 2);
  submission.plan.mesh = {{"dp", 4}, {"tp", 2}};
  submission.plan.batch_axes = {"dp"};
  EXPECT_THAT(Uneven(submission, {{"batch", 8}}), IsEmpty());
  EXPECT_THAT(Uneven(submission, {{"batch", 1}}),
              ElementsAre(HasSubstr("batch of 1 over dp=4 gives 1 0 0 0: 3 ranks hold nothing")));
}

TEST(UnevenShardsTest, EqualLayersAreToldOnce) {
  const std::vector<std::string> warnings =
      Uneven(DecoderSubmission({.layers = 3, .intermediate = 5}, 4), {{"batch", 1}, {"time", 16}});
  // 5 over 4: 2 2 1 0; w1 and w3 of three layers, then w2 of three.
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("layers.0.mlp.w1.weight (and 5 more): dim 0 of 5"),
                                    HasSubstr("layers.0.mlp.w2.weight (and 2 more): dim 1 of 5")));
}

TEST(ReplicatedWeightsTest, ABigOneIsNamed) {
  Submission submission = MlpSubmission(512, 1024, 4);  // 2 MiB each
  EXPECT_THAT(ReplicatedWeights(Compile(submission), {}), IsEmpty());
  submission.plan.entries.pop_back();
  EXPECT_THAT(ReplicatedWeights(Compile(submission), {}),
              ElementsAre(AllOf(HasSubstr("w2.weight: 2097152 bytes on every rank"),
                                HasSubstr("RowwiseParallel on 'w2' holds 1/4 of it (tp=4)"))));
  submission.plan.mesh = {{"dp", 4}, {"tp", 1}};
  submission.plan.batch_axes = {"dp"};
  EXPECT_THAT(ReplicatedWeights(Compile(submission), {"dp"}), IsEmpty());
  // 16 KiB is not big.
  Submission small = MlpSubmission(64, 64, 4);
  small.plan.entries.clear();
  EXPECT_THAT(ReplicatedWeights(Compile(small), {}), IsEmpty());
}

TEST(BatchGathersTest, AGatherOfTheBatchIsNamed) {
  Submission submission = MlpSubmission(8, 12, 2);
  submission.plan.mesh = {{"dp", 2}, {"tp", 2}};
  submission.plan.batch_axes = {"dp"};
  EXPECT_THAT(BatchGathers(Compile(submission), {"dp"}), IsEmpty());
  std::get<ColwiseParallel>(submission.plan.entries[0].style).output_layouts =
      Layout::Map({{"dp", Placement::Replicate()}, {"tp", Placement::Shard(-1)}});
  EXPECT_THAT(BatchGathers(Compile(submission), {"dp"}),
              ElementsAre(AllOf(HasSubstr("w1: the batch is gathered over axis 'dp'"), HasSubstr("dp: S(0)"))));
}

TEST(PlanWarningsTest, AreAllOfThem) {
  Submission submission = MlpSubmission(8, 9, 8);
  std::get<ColwiseParallel>(submission.plan.entries[0].style).output_layouts = Placement::Replicate();
  absl::StatusOr<std::vector<std::string>> warnings = PlanWarnings(submission, Compile(submission), kTwo);
  ASSERT_TRUE(warnings.ok()) << warnings.status();
  EXPECT_THAT(*warnings, ElementsAre(HasSubstr("can be avoided"), HasSubstr("w1.weight"), HasSubstr("w2.weight")));
  absl::StatusOr<std::vector<std::string>> none =
      PlanWarnings(MlpSubmission(8, 12, 2), Compile(MlpSubmission(8, 12, 2)), kTwo);
  ASSERT_TRUE(none.ok());
  EXPECT_THAT(*none, IsEmpty());
}

}  // namespace
}  // namespace tp
