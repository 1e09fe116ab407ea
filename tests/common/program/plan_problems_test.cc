// A plan is validated whole: all problems at once with their fields, short, and none that follows from another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/compile.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tp::testing::CallChild;
using tp::testing::Colwise;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;
using tp::testing::PreparedInput;
using tp::testing::PreparedOutput;
using tp::testing::Rowwise;
using tp::testing::Styled;
using tp::testing::Tp;

std::string TextOf(const Submission& submission) {
  const absl::Status status = CompileForward(submission).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_LT(status.message().size(), 1024u);
  return std::string(status.message());
}

const Layout kR = Placement::Replicate(), kNone;

// Names, layouts that do not fit and counts, of different entries.
TEST(PlanProblemsTest, LayoutsAreCheckedBesideWrongNames) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {Styled("w1", ShardingConfig{.state_shardings = {{"wieght", {}}},
                                                         .in_src_shardings = {},
                                                         .in_dst_shardings = {},
                                                         .out_src_shardings = {},
                                                         .out_dst_shardings = {}}),
                             PreparedOutput("w2", Placement::Shard(7), kR),
                             Styled("", PrepareModuleInput{.input_layouts = {kR, kR},
                                                           .desired_input_layouts = {kR, kR},
                                                           .input_kwarg_layouts = {},
                                                           .desired_input_kwarg_layouts = {}})};
  EXPECT_THAT(TextOf(submission),
              AllOf(HasSubstr("plan.entries[0] 'w1': w1: state_shardings: Linear has no state 'wieght'"),
                    HasSubstr("plan.entries[1] 'w2': w2: output_layouts[0]: "),
                    HasSubstr("plan.entries[2] '': the root module: module input count does not match input layouts")));
}

// What a module with a wrong entry hands on is open: no claim behind it is judged, but one before it is.
TEST(PlanProblemsTest, ConsequencesAreLeftOut) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {Styled("w1", PrepareModuleOutput{.output_layouts = {kR}, .desired_output_layouts = {}}),
                             PreparedInput("w2", Placement::Shard(1), kNone)};
  EXPECT_EQ(TextOf(submission), "plan.entries[0] 'w1': w1: output layouts must have equal length");
  submission.plan.entries = {PreparedOutput("w1", Placement::Shard(1), kR),
                             Styled("w2", PrepareModuleOutput{.output_layouts = {kR}, .desired_output_layouts = {}})};
  EXPECT_EQ(TextOf(submission),
            "plan.entries[1] 'w2': w2: output layouts must have equal length; "
            "w1: output_layouts[0] of 'w1' says S(1), the output is R");
  // Which module the pattern means is open too.
  submission.plan.entries = {Colwise("w3"), Rowwise("w2"), PreparedInput("w2", Placement::Shard(1), kNone)};
  EXPECT_EQ(TextOf(submission), "plan.entries[0] 'w3': matches no module; nearest: w1 or w2");
}

TEST(PlanProblemsTest, AnAxisThatIsMissingIsToldOnce) {
  Submission submission = DecoderSubmission({.layers = 30}, 2);
  const Layout sp = Layout::Map({{"sp", Placement::Shard(1)}});
  for (const char* pattern : {"layers.*.mlp.w1", "layers.*.mlp.w3"}) {
    submission.plan.entries.push_back(PreparedInput(pattern, sp, sp));
  }
  const std::string text = TextOf(submission);
  const size_t first = text.find("axes not in mesh: {sp}");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("axes not in mesh: {sp}", first + 1), std::string::npos) << text;
  EXPECT_THAT(text,
              HasSubstr("'layers.*.mlp.w1': layers.0.mlp.w1: input_layouts[0]: axes not in mesh: {sp} (also at "));
  EXPECT_THAT(text, HasSubstr(" and 117 more)"));  // 2 entries on 30 modules, 2 fields each
}

TEST(PlanProblemsTest, OneTextOnManyModulesIsToldOnce) {
  Submission submission = DecoderSubmission({.layers = 30}, 2);
  submission.plan.entries = {Rowwise("layers.*.norm1")};
  EXPECT_EQ(TextOf(submission),
            "plan.entries[0] 'layers.*.norm1': layers.0.norm1: RowwiseParallel supports Linear and Embedding modules "
            "(also at layers.1.norm1, layers.2.norm1 and 27 more)");
}

TEST(PlanProblemsTest, EmptyPrepareEntriesAreRefused) {
  for (const Style& style :
       {Style(PrepareModuleInput{}), Style(PrepareModuleOutput{}), Style(PrepareModuleInputOutput{})}) {
    Submission submission = MlpSubmission(4, 6, 2);
    submission.plan.entries = {Styled("w1", style)};
    EXPECT_EQ(TextOf(submission), "plan.entries[0] 'w1': w1: a layout is required");
  }
}

TEST(PlanProblemsTest, LocalMapTellsEveryTensorThatLacksALayout) {
  Submission submission = MlpSubmission(4, 6, 2);
  ShardingConfig local;
  local.local_map = true;
  submission.plan.entries = {Styled("w1", local)};
  EXPECT_EQ(TextOf(submission),
            "plan.entries[0] 'w1': w1: local_map needs in_dst_shardings of argument 'input'; "
            "plan.entries[0] 'w1': w1: local_map needs out_src_shardings of output 'output'");
}

TEST(PlanProblemsTest, SuggestionsExist) {
  Submission submission = DecoderSubmission({}, 2);
  const std::map<std::string, std::string> nearest{
      {"layers.*.mlp.wl", "layers.*.mlp.w1"},  // the last token
      {"layer.*.mlp.w1", "layers.*.mlp.w1"},   // the first
      {"mlp.w1", "layers.0.mlp.w1"},           // no prefix
      {"w1", "layers.0.mlp.w1"},
      {"layers.*.mlp.w1.weight", "layers.0"}};  // a state: deeper than any module
  for (const auto& [pattern, want] : nearest) {
    submission.plan.entries = {Colwise(pattern)};
    const std::string text = TextOf(submission);
    EXPECT_THAT(text, HasSubstr("'" + pattern + "': matches no module; nearest: " + want));
    EXPECT_THAT(text, Not(HasSubstr("norm")));
  }
}

TEST(PlanProblemsTest, LongNamesAreCut) {
  const std::string name(100000, 'x'), shown = std::string(80, 'x') + "...'";
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {Colwise(name)};
  EXPECT_THAT(TextOf(submission), HasSubstr("plan.entries[0] '" + shown + ": matches no module; nearest: w1 or w2"));
  submission.plan.entries = {Styled("w1", ShardingConfig{.state_shardings = {{name, {}}},
                                                         .in_src_shardings = {{name, {{name, Placement::Shard(0)}}}},
                                                         .in_dst_shardings = {},
                                                         .out_src_shardings = {},
                                                         .out_dst_shardings = {}})};
  EXPECT_THAT(TextOf(submission), AllOf(HasSubstr("has no state '" + shown), HasSubstr("has no argument '" + shown),
                                        HasSubstr("axes not in")));
  submission.plan.axis = name;
  TextOf(submission);
  submission.plan.axis = "";
  submission.plan.batch_axes = {name};
  TextOf(submission);
  submission.weights[name] = {};
  TextOf(submission);
}

// The entry that wrote it, not the consumer behind it: also where only the sizes tell.
TEST(PlanProblemsTest, AnIllegalLayoutOfTheRootsInputIsTheEntrysOwn) {
  Submission submission = MlpSubmission(4, 6, 2);
  for (const Placement& placement : {Placement::Shard(5), Placement::InterleavedShard(1, {5, 2})}) {
    submission.plan.entries = {PreparedInput("", placement, kR), Colwise("w1"), Rowwise("w2")};
    EXPECT_THAT(TextOf(submission), AllOf(HasSubstr("plan.entries[0] '': the root module: input_layouts[0]: "),
                                          Not(HasSubstr("w1")), Not(HasSubstr("w2"))));
  }
}

}  // namespace
}  // namespace tp
