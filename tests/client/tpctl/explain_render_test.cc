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
  EXPECT_THAT(text, HasSubstr("\n1      all_reduce  tp    2 ranks  2048"));
  EXPECT_THAT(text, HasSubstr("output: P(sum) -> R"));
  EXPECT_THAT(text, Not(HasSubstr("modules that are alike")));
  EXPECT_THAT(ExplainText(ExplanationOf(MlpSubmission(4, 6, 2), {{"batch", 2}}), false),
              HasSubstr("\n1 collective, 32 B received by the busiest rank"));
  EXPECT_THAT(ExplainText(ExplanationOf(MlpSubmission(8, 9, 8), {{"batch", 1}}), false),
              HasSubstr("warning: w1.weight: dim 0 of 9 over tp=8"));
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0, begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  return longest;
}
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ExplainTest, EqualLayersAndCollectivesAreOneRow) {
  const Explanation explanation = ExplanationOf(DecoderSubmission({.layers = 4}, 2), {{"batch", 1}, {"time", 16}});
  const std::string text = ExplainText(explanation, false);
  EXPECT_THAT(text, HasSubstr("\n    {0-3} "));
  EXPECT_THAT(text, HasSubstr("modules that are alike are one row"));
  EXPECT_EQ(Count(text, "\n        q_proj "), 1);
  EXPECT_THAT(text, HasSubstr("\nlayers.{0-3}.attn.q_proj.weight  F32[32, 32]   tp=S(0)"));
  // Two of each layer and the embedding's.
  EXPECT_THAT(text, HasSubstr("\n4      all_reduce  tp    2 ranks  2048        "));
  EXPECT_THAT(text, HasSubstr("layers.{0-3}.mlp.w2 "));
  EXPECT_THAT(text, HasSubstr("\n9 collectives"));
  EXPECT_LE(LongestLine(text), 160u);
  const json out = json::parse(ExplainText(explanation, true));
  EXPECT_EQ(out["collectives"].size(), 9u);
  int projections = 0;
  for (const json& module : out["modules"]) projections += module["path"].get<std::string>().ends_with("q_proj");
  EXPECT_EQ(projections, 4);
}

TEST(ExplainTest, ALayerThatDiffersStaysApart) {
  Submission submission = DecoderSubmission({.layers = 4}, 2);
  for (PlanEntry& entry : submission.plan.entries) {
    if (entry.pattern == "layers.*.mlp.w2") entry.pattern = "layers.[013].mlp.w2";
  }
  const std::string text = ExplainText(ExplanationOf(submission, {{"batch", 1}, {"time", 16}}), false);
  EXPECT_THAT(text, HasSubstr("\n    {0-1,3} "));
  EXPECT_THAT(text, HasSubstr("\n    2 "));
  EXPECT_THAT(text, HasSubstr("\nlayers.{0-1,3}.mlp.w2.weight"));
  EXPECT_THAT(text, HasSubstr("\nlayers.2.mlp.w2.weight"));
}

TEST(ExplainTest, ALongStyleGoesUnderItsRow) {
  Submission submission = MlpSubmission(8, 12, 2);
  ShardingConfig sharding;
  for (const char* name : {"weight", "bias"}) sharding.state_shardings[name] = {{"tp", Placement::Shard(0)}};
  sharding.in_src_shardings["input"] = {{"tp", Placement::Replicate()}};
  sharding.in_dst_shardings["input"] = {{"tp", Placement::Replicate()}};
  sharding.out_src_shardings["output"] = {{"tp", Placement::Shard(-1)}};
  submission.plan.entries[0] = {"w1", sharding};
  const std::string text = ExplainText(ExplanationOf(submission, {{"batch", 2}}), false);
  EXPECT_THAT(text, HasSubstr("\n      ShardingConfig(state_shardings={'bias': {'tp': S(0)}"));
  EXPECT_LE(LongestLine(text), 160u);
}

TEST(ExplainTest, ReasonsNameTheFunctionThatWasWritten) {
  // loss = cross_entropy(w2(relu(w1(x))), target), logits cut by class.
  Submission submission = MlpSubmission(8, 12, 2);
  auto& graph = std::get<CompositeConfig>(submission.model.root.config);
  graph.inputs.push_back({"target"});
  submission.model.inputs.push_back({"target", DType::kI64, {Dim::Symbol("batch")}});
  graph.nodes = {tp::testing::CallChild("h", "w1", {"x"}),
                 tp::testing::CallFunction("loss", "cross_entropy", {"h", "target"})};
  graph.outputs = {{"loss", "loss"}};
  submission.plan.entries.pop_back();
  const json out = json::parse(ExplainText(ExplanationOf(submission, {{"batch", 2}}), true));
  ASSERT_GE(out["collectives"].size(), 2u);
  for (const json& collective : out["collectives"])
    EXPECT_THAT(collective["reason"].get<std::string>(), HasSubstr("(cross_entropy) in the root module: P("));
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
  EXPECT_THAT(AgainstText(one, one, false), HasSubstr("the programs are equal (fingerprint "));
  const json out = json::parse(AgainstText(one, one, true));
  EXPECT_EQ(out["differences"], json::array());
  EXPECT_EQ(out["a"], out["b"]);
  EXPECT_EQ(out["programs_equal"], true);
}

// Two ways to write one program.
TEST(AgainstTest, EqualProgramsOfOtherStylesAreEqual) {
  Submission plain = MlpSubmission(4, 6, 2), sharded = plain;
  ShardingConfig sharding;
  for (const char* name : {"weight", "bias"}) sharding.state_shardings[name] = {{"tp", Placement::Shard(0)}};
  sharding.out_src_shardings["output"] = {{"tp", Placement::Shard(-1)}};
  sharded.plan.entries[0] = {"w1", sharding};
  const std::string text =
      AgainstText(ExplanationOf(plain, {{"batch", 2}}), ExplanationOf(sharded, {{"batch", 2}}), false);
  EXPECT_THAT(text, HasSubstr("the programs are equal (fingerprint "));
  EXPECT_THAT(text, HasSubstr("what differs is how they came to be"));
  EXPECT_THAT(text, HasSubstr("style  w1    ColwiseParallel  ShardingConfig("));
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
  EXPECT_THAT(text, Not(HasSubstr("programs are equal")));
  EXPECT_THAT(text, HasSubstr("\nbusiest rank  parameters "));
  EXPECT_THAT(text, HasSubstr("\none forward   time "));
  EXPECT_THAT(text, Not(HasSubstr("_bytes")));
}

TEST(ExplainShapesTest, FreeSizesHaveDefaults) {
  ModelDef model;
  const Dim batch = Dim::Symbol("batch"), time = Dim::Symbol("time");
  model.inputs = {
      {"ids", DType::kI64, {batch, time}}, {"x", DType::kF32, {batch, Dim(8)}}, {"at", DType::kI64, {time}}};
  auto shapes_of = [&](const std::vector<std::string>& given) {
    absl::StatusOr<std::map<std::string, Shape>> shapes = ExplainShapes(given, model);
    EXPECT_TRUE(shapes.ok()) << shapes.status();
    return shapes.ok() ? *shapes : std::map<std::string, Shape>();
  };
  // A size that inputs share is one size.
  EXPECT_EQ(shapes_of({}), (std::map<std::string, Shape>{{"ids", {1, 16}}, {"x", {1, 8}}, {"at", {16}}}));
  EXPECT_EQ(shapes_of({"x=3x8"}), (std::map<std::string, Shape>{{"ids", {3, 16}}, {"x", {3, 8}}, {"at", {16}}}));
  EXPECT_EQ(shapes_of({"ids=4x9"}), (std::map<std::string, Shape>{{"ids", {4, 9}}, {"x", {4, 8}}, {"at", {9}}}));
  model.symbol_limits = {{"time", 12}};
  EXPECT_EQ(shapes_of({}).at("ids"), (Shape{1, 12}));
  EXPECT_THAT(ExplainShapes({"y=1"}, model).status().ToString(), HasSubstr("no input 'y'; it has x, at or ids"));
  EXPECT_EQ(ExplainShapes({"x=axb"}, model).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tp::client
