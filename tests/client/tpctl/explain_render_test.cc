#include "client/tpctl/explain_render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/tpctl/explain_shapes.h"
#include "tests/support/model_builders.h"

namespace tp::client {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;

Explanation ExplanationOf(const Submission& submission, const Bindings& bindings) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  absl::StatusOr<Explanation> explanation = Explained(submission, *compiled, bindings);
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  return *explanation;
}

TEST(ExplainTest, JsonHasTheKeysThatScriptsRead) {
  const Explanation explanation = ExplanationOf(MlpSubmission(4, 6, 2), {{"batch", 2}});
  const json out = json::parse(ExplainText(explanation, true));
  EXPECT_EQ(out["mesh"], json({{"tp", 2}}));
  ASSERT_EQ(out["ranks"].size(), 2u);
  // w1 [3, 4] and [3], w2 [4, 3] and [4], F32.
  EXPECT_EQ(out["ranks"][1]["rank"], 1);
  EXPECT_EQ(out["ranks"][1]["parameter_bytes"], 4 * (12 + 3 + 12 + 4));
  EXPECT_EQ(out["ranks"][1]["buffer_bytes"], 0);
  EXPECT_EQ(out["ranks"][1]["cache_bytes"], 0);
  EXPECT_GT(out["ranks"][1]["activation_bytes"], 0);
  ASSERT_EQ(out["modules"].size(), 3u);
  const json& w1 = out["modules"][1];
  EXPECT_EQ(w1["path"], "w1");
  EXPECT_EQ(w1["kind"], "Linear");
  EXPECT_THAT(w1["style"].get<std::string>(), HasSubstr("ColwiseParallel("));
  EXPECT_EQ(w1["parameters"][0]["name"], "weight");
  EXPECT_EQ(w1["parameters"][0]["shape"], json({6, 4}));
  EXPECT_EQ(w1["parameters"][0]["placements"], "tp=S(0)");
  EXPECT_EQ(w1["inputs"], json({"F32[batch, 4] tp=R"}));
  EXPECT_EQ(w1["outputs"], json({"F32[batch, 6] tp=S(1)"}));
  EXPECT_EQ(w1["flops"], 2 * 2 * 3 * 4);
  ASSERT_EQ(out["collectives"].size(), 1u);
  EXPECT_EQ(out["collectives"][0]["module"], "w2");
  EXPECT_EQ(out["collectives"][0]["op"], "all_reduce");
  EXPECT_EQ(out["collectives"][0]["axis"], "tp");
  EXPECT_EQ(out["collectives"][0]["bytes"], 32);
  EXPECT_EQ(out["collectives"][0]["group_size"], 2);
  EXPECT_EQ(out["collectives"][0]["reason"], "output of w2: P(sum) -> R");
  EXPECT_EQ(out["warnings"], json::array());
  EXPECT_EQ(out["totals"]["collectives"], 1);
  EXPECT_EQ(out["totals"]["bytes"], 32);
  EXPECT_EQ(out["totals"]["by_op"], json({{"all_reduce", {{"count", 1}, {"bytes", 32}}}}));
  EXPECT_GT(out["totals"]["seconds"], 0.0);
  EXPECT_EQ(out["totals"]["cost_model"]["link_bytes_per_second"], 1000000000);
}

TEST(ExplainTest, TextShowsTreeCostsAndWarnings) {
  const Explanation explanation = ExplanationOf(DecoderSubmission({.layers = 1}, 2), {{"batch", 1}, {"time", 16}});
  const std::string text = ExplainText(explanation, false);
  EXPECT_THAT(text, HasSubstr("\n  layers "));
  EXPECT_THAT(text, HasSubstr("\n      attn "));
  EXPECT_THAT(text, HasSubstr("\n        q_proj "));
  EXPECT_THAT(text, HasSubstr("cost model: 100 Gflop/s and 20 GB/s of memory a rank, 1 GB/s and 50 us a hop"));
  EXPECT_THAT(text, HasSubstr("all_reduce  tp    2 ranks  2048"));
  EXPECT_THAT(ExplainText(ExplanationOf(MlpSubmission(8, 9, 8), {{"batch", 1}}), false),
              HasSubstr("warning: w1.weight: dim 0 of 9 over tp=8"));
}

TEST(ExplainTest, ManyEqualRanksAreOneRow) {
  Submission submission = MlpSubmission(8, 13, 4);
  submission.plan.mesh = {{"dp", 256}, {"tp", 4}};
  submission.plan.batch_axes = {"dp"};
  const Explanation explanation = ExplanationOf(submission, {{"batch", 256}});
  const std::string text = ExplainText(explanation, false);
  EXPECT_THAT(text, HasSubstr("\n0-2, 4-6, 8-10, 12-14, ... (768 ranks)"));
  EXPECT_THAT(text, HasSubstr("\n3, 7, 11, 15, ... (256 ranks)"));
  EXPECT_THAT(text, HasSubstr("4 ranks x 256"));
  EXPECT_EQ(json::parse(ExplainText(explanation, true))["ranks"].size(), 1024u);
}

TEST(AgainstTest, EqualPlansDoNotDiffer) {
  const Explanation one = ExplanationOf(MlpSubmission(4, 6, 2), {{"batch", 2}});
  EXPECT_TRUE(DifferencesOf(one, one).empty());
  EXPECT_THAT(AgainstText(one, one, false), HasSubstr("no difference"));
  const json out = json::parse(AgainstText(one, one, true));
  EXPECT_EQ(out["differences"], json::array());
  EXPECT_EQ(out["a"], out["b"]);
}

TEST(AgainstTest, SaysWhatDiffers) {
  Submission plain = MlpSubmission(4, 6, 2), whole = plain;
  whole.plan.entries.pop_back();  // w2 stays whole: its input is cut to fit, or the weight is
  const Explanation a = ExplanationOf(plain, {{"batch", 2}}), b = ExplanationOf(whole, {{"batch", 2}});
  const json out = json::parse(AgainstText(a, b, true));
  EXPECT_EQ(out["a"]["totals"]["collectives"], 1);
  std::map<std::string, json> named;
  for (const json& difference : out["differences"])
    named[difference["what"].get<std::string>() + " " + difference["name"].get<std::string>()] = difference;
  ASSERT_TRUE(named.contains("style w2"));
  EXPECT_THAT(named["style w2"]["a"].get<std::string>(), HasSubstr("RowwiseParallel"));
  EXPECT_EQ(named["style w2"]["b"], "");
  ASSERT_TRUE(named.contains("placements w2.weight"));
  EXPECT_EQ(named["placements w2.weight"]["a"], "tp=S(1)");
  EXPECT_EQ(named["placements w2.weight"]["b"], "tp=R");
  EXPECT_FALSE(named.contains("placements w1.weight"));
  EXPECT_EQ(named["memory parameter_bytes"]["a"], 4 * 31);
  EXPECT_EQ(named["memory parameter_bytes"]["b"], 4 * 43);
  const std::string text = AgainstText(a, b, false);
  EXPECT_THAT(text, HasSubstr("placements"));
  EXPECT_THAT(text, HasSubstr("tp=S(1)"));
  EXPECT_THAT(text, Not(HasSubstr("w1.weight")));
}

TEST(ExplainShapesTest, FreeSizesHaveDefaults) {
  const std::vector<ModelInput> inputs = {{"ids", DType::kI64, {Dim::Symbol("batch"), Dim::Symbol("time")}},
                                          {"x", DType::kF32, {Dim::Symbol("batch"), Dim(8)}}};
  absl::StatusOr<std::map<std::string, Shape>> shapes = ExplainShapes({"x=3x8"}, inputs);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(*shapes, (std::map<std::string, Shape>{{"ids", {1, 16}}, {"x", {3, 8}}}));
  EXPECT_EQ(ExplainShapes({"y=1"}, inputs).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExplainShapes({"x=axb"}, inputs).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tp::client
