// local_map: the forward of a module on each rank's own blocks (SEMANTICS 7).
#include "common/program/local_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/program/compile.h"
#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Placement kR = Placement::Replicate(), kS0 = Placement::Shard(0), kS1 = Placement::Shard(1),
                kP = Placement::Partial();

// The root calls "local", a composite of one input "x" whose forward is `nodes`, with the layouts of a local_map.
Submission LocalSubmission(std::vector<GraphNode> nodes, const std::string& output, std::vector<Module> children,
                           SymShape shape, const Placement& in, const Placement& out, int degree = 2) {
  CompositeConfig local;
  local.type_name = "Local";
  local.inputs = {{"x"}};
  local.nodes = std::move(nodes);
  local.outputs = {{"output", output}};
  Module inner;
  inner.name = "local";
  inner.config = local;
  inner.children = std::move(children);
  inner.sharding.emplace();
  inner.sharding->local_map = true;
  inner.sharding->in_dst_shardings["x"]["tp"] = in;
  inner.sharding->out_src_shardings["output"]["tp"] = out;
  CompositeConfig root;
  root.type_name = "Root";
  root.inputs = {{"x"}};
  root.nodes = {CallChild("y", "local", {"x"})};
  root.outputs = {{"y", "y"}};
  Submission submission;
  submission.model.root.config = root;
  submission.model.root.children = {inner};
  submission.model.inputs = {{"x", DType::kF32, std::move(shape)}};
  submission.plan.mesh = Tp(degree);
  return submission;
}
const SymShape kRows{Dim::Symbol("batch"), Dim(4)};

Module Weight(int64_t in, int64_t out) {
  LinearConfig config;
  config.in_features = in;
  config.out_features = out;
  config.bias = false;
  Module module;
  module.name = "fc";
  module.config = config;
  return module;
}

std::vector<double> ValuesOf(const Submission& submission, const std::map<std::string, SimTensor>& states,
                             const SimTensor& x) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  EXPECT_TRUE(ValidateProgram(compiled->program).ok()) << ValidateProgram(compiled->program);
  absl::StatusOr<SimulationResult> result = Simulate(compiled->program, states, {{"x", x}});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->outputs.at("y").values : std::vector<double>();
}

absl::Status Refusal(const Submission& submission) { return CompileForward(submission).status(); }
std::string InvalidText(const Submission& submission) {
  EXPECT_EQ(Refusal(submission).code(), absl::StatusCode::kInvalidArgument) << Refusal(submission);
  return std::string(Refusal(submission).message());
}
std::string UnbuiltText(const Submission& submission) {
  EXPECT_EQ(Refusal(submission).code(), absl::StatusCode::kUnimplemented) << Refusal(submission);
  return std::string(Refusal(submission).message());
}

TEST(LocalMapTest, SoftmaxOfEachBlockOnItsOwn) {
  const Submission submission =
      LocalSubmission({CallFunction("s", "softmax", {"x"}, {{"dim", int64_t{-1}}})}, "s", {}, kRows, kS1, kS1);
  const double e = std::exp(1), each = 1 / (1 + e);
  const std::vector<double> y = ValuesOf(submission, {}, {{1, 4}, {0, 1, 5, 5}});
  ASSERT_EQ(y.size(), 4u);
  EXPECT_NEAR(y[0], each, 1e-12);
  EXPECT_NEAR(y[1], e * each, 1e-12);
  EXPECT_NEAR(y[2], 0.5, 1e-12);
  EXPECT_NEAR(y[3], 0.5, 1e-12);
}

TEST(LocalMapTest, TermsOfASum) {
  Submission submission = LocalSubmission({CallChild("h", "fc", {"x"}), CallFunction("r", "relu", {"h"})}, "r",
                                          {Weight(4, 2)}, kRows, kS1, kP);
  submission.model.root.children[0].sharding->state_shardings["fc.weight"]["tp"] = kS1;
  const std::map<std::string, SimTensor> states{{"local.fc.weight", {{2, 4}, {1, 2, -3, -4, 1, 0, 0, 1}}}};
  // Blocks [1, 2] and [3, 4]: products (5, 1) and (-25, 4); relu of each, then the sum.
  EXPECT_THAT(ValuesOf(submission, states, {{1, 4}, {1, 2, 3, 4}}), ElementsAre(5, 5));
  submission.model.root.children[0].sharding->out_src_shardings["output"]["tp"] = Placement::Partial(ReduceOp::kMax);
  EXPECT_THAT(ValuesOf(submission, states, {{1, 4}, {1, 2, 3, 4}}), ElementsAre(5, 4));
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok());
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(compiled->program, {{"batch", 1}});
  ASSERT_TRUE(records.ok());
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].op, "all_reduce");
}

TEST(LocalMapTest, UnevenBlocksKeepTheGlobalShape) {
  for (int degree : {1, 2, 3, 4, 8}) {
    const Submission submission =
        LocalSubmission({CallChild("h", "fc", {"x"}),
                         CallFunction("t", "transpose", {"h"}, {{"dim0", int64_t{0}}, {"dim1", int64_t{1}}})},
                        "t", {Weight(4, 2)}, kRows, kS0, kS1, degree);
    const std::map<std::string, SimTensor> states{{"local.fc.weight", {{2, 4}, {1, 0, 0, 0, 0, 0, 0, 2}}}};
    SimTensor x{{5, 4}, {}};
    for (int i = 0; i < 20; ++i) x.values.push_back(i);
    EXPECT_THAT(ValuesOf(submission, states, x), ElementsAre(0, 4, 8, 12, 16, 6, 14, 22, 30, 38)) << degree;
  }
}

TEST(LocalMapTest, OutputsAreMovedAfterwards) {
  Submission submission = LocalSubmission({CallFunction("r", "relu", {"x"})}, "r", {}, kRows, kS0, kS0);
  submission.model.root.children[0].sharding->out_dst_shardings["output"]["tp"] = kS1;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_THAT(compiled->modules[1].outputs, ElementsAre("F32[batch, 4] tp=S(1)"));
  EXPECT_THAT(ValuesOf(submission, {}, {{2, 4}, {-1, 1, 2, -3, 4, 5, -6, 7}}), ElementsAre(0, 1, 2, 0, 4, 5, 0, 7));
}

TEST(LocalMapTest, EveryTensorNeedsALayout) {
  Submission submission = LocalSubmission({CallFunction("r", "relu", {"x"})}, "r", {}, kRows, kS0, kS0);
  ShardingConfig& sharding = *submission.model.root.children[0].sharding;
  sharding.in_dst_shardings.clear();
  EXPECT_THAT(InvalidText(submission), HasSubstr("local: local_map needs in_dst_shardings of argument 'x'"));
  sharding.out_src_shardings.clear();
  EXPECT_THAT(InvalidText(submission), HasSubstr("local: local_map needs out_src_shardings of output 'output'"));
}

TEST(LocalMapTest, BlocksMustFit) {
  // The weight is whole, its input is cut.
  Submission submission = LocalSubmission({CallChild("h", "fc", {"x"})}, "h", {Weight(4, 2)}, kRows, kS1, kP);
  EXPECT_THAT(InvalidText(submission),
              HasSubstr("local.fc: linear inside a local_map: local blocks of F32[batch, 4] tp=S(1) and F32[2, 4] tp=R "
                        "do not fit"));
  // What the forward makes is whole; out_src says that it is cut.
  submission = LocalSubmission({CallFunction("r", "relu", {"x"})}, "r", {}, kRows, kR, kS1);
  EXPECT_THAT(InvalidText(submission), HasSubstr("local: out_src_shardings['output']: says tp=S(1), the forward makes "
                                                 "blocks cut as F32[batch, 4] tp=R"));
  // Equal blocks under another name.
  submission = LocalSubmission({CallFunction("r", "relu", {"x"})}, "r", {}, {Dim(4), Dim(4)}, kS0,
                               Placement::InterleavedShard(0, {1, 1}));
  EXPECT_TRUE(Refusal(submission).ok()) << Refusal(submission);
}

// On one rank nothing is cut, whatever the placements say.
TEST(LocalMapTest, AnAxisOfOneRankCutsNothing) {
  const SimTensor x{{2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const Attributes last{{"dims", std::vector<int64_t>{-1}}};
  Submission submission = LocalSubmission({CallFunction("m", "mean", {"x"}, last)}, "m", {}, kRows, kS1, kR, 1);
  EXPECT_THAT(ValuesOf(submission, {}, x), ElementsAre(2.5, 6.5));
  submission =
      LocalSubmission({CallFunction("c", "cat", {"x", "x"}, {{"dim", int64_t{1}}})}, "c", {}, kRows, kS1, kS1, 1);
  EXPECT_THAT(ValuesOf(submission, {}, x), ElementsAre(1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8));
}

TEST(LocalMapTest, FunctionsAlongWholeDims) {
  const SimTensor x{{3, 4}, {4, 2, 3, 1, 5, 8, 6, 7, 0, 9, 9, 1}};
  Submission submission =
      LocalSubmission({CallFunction("a", "argmax", {"x"}, {{"dim", int64_t{1}}})}, "a", {}, kRows, kS0, kS0);
  EXPECT_THAT(ValuesOf(submission, {}, x), ElementsAre(0, 1, 1));
  submission = LocalSubmission({CallFunction("c", "cat", {"x", "x"}, {{"dim", int64_t{1}}})}, "c", {}, kRows, kS0, kS0);
  EXPECT_THAT(ValuesOf(submission, {}, {{2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}}),
              ElementsAre(1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8));
}

TEST(LocalMapTest, WhatIsNotBuiltIsRefusedByName) {
  Submission submission =
      LocalSubmission({CallFunction("a", "argmax", {"x"}, {{"dim", int64_t{-1}}})}, "a", {}, kRows, kS1, kR);
  EXPECT_THAT(
      UnbuiltText(submission),
      HasSubstr("local: argmax inside a local_map of local blocks F32[batch, 4] tp=S(1) to [batch] is not built"));
  submission = LocalSubmission({CallChild("h", "fc", {"x"})}, "h", {Weight(4, 2)}, kRows, kS0, kS0);
  submission.plan.entries = {Rowwise("local.fc")};
  EXPECT_THAT(UnbuiltText(submission), HasSubstr("plan.entries[0] 'local.fc': local.fc is inside the local_map of "
                                                 "local, where only state_shardings are built"));
}

// Functions by family, on specs alone.
TEST(LocalMapTest, PlacementsOfOutputs) {
  const Mesh mesh = *Mesh::Create({{"dp", 2}, {"tp", 2}});
  auto spec = [](SymShape shape, Placements placements) {
    return DTensorSpec{DType::kF32, std::move(shape), std::move(placements)};
  };
  auto local = [&](const std::string& function, const Attributes& attributes, const std::vector<DTensorSpec>& inputs,
                   SymShape output) {
    FlatNode node;
    node.function = function;
    node.attributes = attributes;
    std::vector<const DTensorSpec*> pointers;
    for (const DTensorSpec& input : inputs) pointers.push_back(&input);
    const TensorType type{DType::kF32, std::move(output)};
    absl::StatusOr<Placements> placements = LocalPlacements(node, pointers, type, mesh);
    return placements.ok() ? PlacementsText(mesh, *placements) : std::string(placements.status().message());
  };
  const DTensorSpec x = spec({Dim(4), Dim(6), Dim(8)}, {kS0, kS1});
  EXPECT_EQ(local("sum", {{"dims", std::vector<int64_t>{1}}}, {x}, {Dim(4), Dim(8)}), "dp=S(0),tp=R");
  EXPECT_EQ(local("max", {{"dims", std::vector<int64_t>{0}}, {"keepdim", true}}, {x}, {Dim(1), Dim(6), Dim(8)}),
            "dp=R,tp=S(1)");
  EXPECT_EQ(local("mean", {{"dims", std::vector<int64_t>{2}}}, {x}, {Dim(4), Dim(6)}), "dp=S(0),tp=S(1)");
  EXPECT_THAT(local("mean", {{"dims", std::vector<int64_t>{0}}}, {x}, {Dim(6), Dim(8)}), HasSubstr("mean over a cut"));
  EXPECT_EQ(local("permute", {{"dims", std::vector<int64_t>{2, 0, 1}}}, {x}, {Dim(8), Dim(4), Dim(6)}),
            "dp=S(1),tp=S(2)");
  EXPECT_EQ(local("add", {}, {x, spec({Dim(6), Dim(1)}, {kR, kS0})}, {Dim(4), Dim(6), Dim(8)}), "dp=S(0),tp=S(1)");
  EXPECT_THAT(local("add", {}, {x, spec({Dim(6), Dim(1)}, {kR, kR})}, {Dim(4), Dim(6), Dim(8)}),
              HasSubstr("do not fit"));
  // Contracted over tp on both sides; terms of P(sum) are whole in shape.
  EXPECT_EQ(
      local("matmul", {}, {spec({Dim(4), Dim(6)}, {kS0, kS1}), spec({Dim(6), Dim(8)}, {kP, kS0})}, {Dim(4), Dim(8)}),
      "dp=S(0),tp=R");
  EXPECT_THAT(
      local("matmul", {}, {spec({Dim(4), Dim(6)}, {kR, kS0}), spec({Dim(6), Dim(8)}, {kR, kS1})}, {Dim(4), Dim(8)}),
      HasSubstr("two dims of its output would be cut over axis 'tp'"));
  // Along dims that are whole on each rank.
  EXPECT_EQ(local("argmax", {{"dim", int64_t{2}}}, {x}, {Dim(4), Dim(6)}), "dp=S(0),tp=S(1)");
  EXPECT_EQ(local("cat", {{"dim", int64_t{2}}}, {x, x}, {Dim(4), Dim(6), Dim(16)}), "dp=S(0),tp=S(1)");
  EXPECT_EQ(local("slice", {{"dim", int64_t{2}}, {"start", int64_t{1}}, {"end", int64_t{3}}, {"step", int64_t{1}}}, {x},
                  {Dim(4), Dim(6), Dim(2)}),
            "dp=S(0),tp=S(1)");
  EXPECT_THAT(local("cat", {{"dim", int64_t{0}}}, {x, x}, {Dim(8), Dim(6), Dim(8)}),
              HasSubstr("cat inside a local_map of local blocks"));
  EXPECT_THAT(local("attention", {}, {x, x, x}, x.shape), HasSubstr("'attention' inside a local_map is not built"));
}

}  // namespace
}  // namespace tp::testing
