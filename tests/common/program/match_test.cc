#include "common/program/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/compile.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tp::testing::Colwise;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;
using tp::testing::Rowwise;

TEST(PatternTest, TokensMatchOneLevel) {
  EXPECT_TRUE(TokenMatches("*", "w1"));
  EXPECT_TRUE(TokenMatches("w?", "w1"));
  EXPECT_TRUE(TokenMatches("w[1-3]", "w2"));
  EXPECT_FALSE(TokenMatches("w[!12]", "w2"));
  EXPECT_TRUE(TokenMatches("*_proj", "q_proj"));
  EXPECT_FALSE(TokenMatches("w?", "w"));
  EXPECT_TRUE(TokenMatches("a*b*c", "axbbxc"));
  EXPECT_FALSE(TokenMatches("*a*a*a*a*a*a*a*b", std::string(200, 'a')));
  EXPECT_TRUE(PatternMatches("layers.*.w1", "layers.0.w1"));
  EXPECT_FALSE(PatternMatches("layers.*", "layers.0.w1"));
  EXPECT_FALSE(PatternMatches("*", "layers.0"));
  EXPECT_TRUE(PatternMatches("", ""));
  EXPECT_FALSE(PatternMatches("", "norm"));
  EXPECT_FALSE(PatternMatches("norm.norm", "norm"));
}

absl::Status StatusOf(const Submission& submission) { return CompileForward(submission).status(); }
std::string TextOf(const Submission& submission) {
  const absl::Status status = StatusOf(submission);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(PlanErrorsTest, TypoNamesTheNearest) {
  Submission submission = DecoderSubmission({}, 2);
  submission.plan.entries[5].pattern = "layers.*.mlp.wl";
  EXPECT_THAT(TextOf(submission),
              HasSubstr("plan.entries[5] 'layers.*.mlp.wl': matches no module; nearest: layers.*.mlp.w1"));
  submission.plan.allow_unmatched = true;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_EQ(compiled->warnings.size(), 1u);
  EXPECT_THAT(compiled->warnings[0], HasSubstr("layers.*.mlp.wl"));
}

TEST(PlanErrorsTest, TwoPatternsForOneStateNameBoth) {
  Submission submission = DecoderSubmission({}, 2);
  submission.plan.entries.push_back(Rowwise("layers.0.mlp.w1"));
  EXPECT_THAT(TextOf(submission), AllOf(HasSubstr("two patterns shard layers.0.mlp.w1"), HasSubstr("'layers.*.mlp.w1'"),
                                        HasSubstr("'layers.0.mlp.w1'"), Not(HasSubstr("layers.1"))));
}

TEST(PlanErrorsTest, OnlyTheAddressedModuleIsMeant) {
  Submission submission = DecoderSubmission({}, 2);
  submission.plan.entries.push_back(Colwise("norm.norm"));
  EXPECT_THAT(TextOf(submission), HasSubstr("'norm.norm': matches no module"));
  submission.plan.entries.back() = Colwise("layers.0.norm1");
  EXPECT_THAT(TextOf(submission), HasSubstr("layers.0.norm1: ColwiseParallel supports Linear and Embedding modules"));
}

TEST(PlanErrorsTest, AllProblemsComeAtOnceAndShort) {
  Submission submission = DecoderSubmission({.layers = 30}, 2);
  submission.plan.entries = {Rowwise("layers.*.norm1"), Colwise("nothing")};
  const std::string text = TextOf(submission);
  EXPECT_THAT(text, AllOf(HasSubstr("layers.0.norm1"), HasSubstr("layers.1.norm1"), HasSubstr("more")));
  EXPECT_LT(text.size(), 960u);
}

TEST(PlanErrorsTest, Axes) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.axis = "tq";
  EXPECT_THAT(TextOf(submission), HasSubstr("axes not in mesh"));
  submission = MlpSubmission(4, 6, 2);
  submission.plan.mesh = {{"a", 2}, {"b", 2}};
  EXPECT_THAT(TextOf(submission), HasSubstr("plan.axis"));
  submission = MlpSubmission(4, 6, 2);
  submission.plan.mesh = {{"model", 2}};  // the only axis
  EXPECT_TRUE(StatusOf(submission).ok());
  submission.plan.batch_axes = {"model"};
  EXPECT_THAT(TextOf(submission), HasSubstr("plan.batch_axes: 'model' is the axis that the styles act on"));
  submission.plan.mesh = {{"dp", 2}, {"tp", 2}};
  submission.plan.batch_axes = {"dp", "dp"};
  EXPECT_THAT(TextOf(submission), HasSubstr("plan.batch_axes: 'dp' stands twice"));
  submission.plan.batch_axes = {"pp"};
  EXPECT_THAT(TextOf(submission), HasSubstr("plan.batch_axes: axes not in mesh"));
}

struct HeadsCase {
  int64_t heads, kv_heads;
  int degree;
  std::string legal;
};
class HeadsTest : public ::testing::TestWithParam<HeadsCase> {};

TEST_P(HeadsTest, IllegalDegreesListTheLegalOnes) {
  const HeadsCase& test = GetParam();
  const tp::testing::DecoderSize size{
      .layers = 1, .hidden = test.heads * 2, .heads = test.heads, .kv_heads = test.kv_heads};
  EXPECT_THAT(TextOf(DecoderSubmission(size, test.degree)),
              HasSubstr("layers.0.attn: " + std::to_string(test.heads) + " query heads and " +
                        std::to_string(test.kv_heads) + " key-value heads can't be cut over " +
                        std::to_string(test.degree) + " ranks; legal degrees: " + test.legal));
}

INSTANTIATE_TEST_SUITE_P(Degrees, HeadsTest,
                         ::testing::Values(HeadsCase{8, 4, 3, "1, 2, 4, 8"}, HeadsCase{28, 4, 8, "1, 2, 4, 28"},
                                           HeadsCase{28, 28, 3, "1, 2, 4, 7, 14, 28"},
                                           HeadsCase{52, 52, 8, "1, 2, 4, 13, 26, 52"},
                                           HeadsCase{40, 8, 5, "1, 2, 4, 8, 40"}));

}  // namespace
}  // namespace tp
