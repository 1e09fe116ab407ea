#include "common/program/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tp::testing::DecoderSize;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;
using tp::testing::SimTensor;

CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}

std::string PlacementOf(const CompiledModel& model, const std::string& path) {
  for (const PlacedState& placed : model.states) {
    if (placed.state.path == path) return PlacementsText(model.mesh, placed.placements);
  }
  return "none";
}

std::vector<std::string> OpsOf(const ForwardProgram& program, const Bindings& bindings) {
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(program, bindings);
  EXPECT_TRUE(records.ok()) << records.status();
  std::vector<std::string> ops;
  for (const CollectiveRecord& record : *records) ops.push_back(record.module + " " + record.op);
  return ops;
}

const Bindings kBound{{"batch", 1}, {"time", 16}};

// SEMANTICS 8, case 6.
TEST(CompileTest, BiasIsAddedOnceAfterOneAllReduce) {
  Submission submission = MlpSubmission(2, 4, 2);
  auto& graph = std::get<CompositeConfig>(submission.model.root.config);
  graph.nodes.resize(3);
  graph.nodes.erase(graph.nodes.begin() + 1);
  graph.nodes[1].arguments = {{"", "h"}};
  graph.outputs = {{"y", "o"}};
  const CompiledModel model = Compile(submission);
  const std::map<std::string, SimTensor> states{{"w1.weight", {{4, 2}, {1, 0, 0, 1, 1, 1, 1, -1}}},
                                                {"w1.bias", {{4}, {0, 1, 2, 3}}},
                                                {"w2.weight", {{2, 4}, {1, 1, 1, 1, 1, 2, 3, 4}}},
                                                {"w2.bias", {{2}, {10, 20}}}};
  absl::StatusOr<tp::testing::SimulationResult> result =
      tp::testing::Simulate(model.program, states, {{"x", {{2, 2}, {1, 2, 3, 4}}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->outputs.at("y").values, ElementsAre(21, 50, 29, 68));
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(model.program, {{"batch", 2}});
  ASSERT_TRUE(records.ok());
  // 2 x 2 F32 on two ranks: 2 * (2 - 1) / 2 * 16 bytes.
  EXPECT_THAT(*records, ElementsAre(CollectiveRecord{"w2", "all_reduce", "tp", 16, "output of w2: P(sum) -> R"}));
}

TEST(CompileTest, StatesLieWhereTheStylesSay) {
  const CompiledModel model = Compile(MlpSubmission(4, 6, 2));
  EXPECT_EQ(PlacementOf(model, "w1.weight"), "tp=S(0)");
  EXPECT_EQ(PlacementOf(model, "w1.bias"), "tp=S(0)");
  EXPECT_EQ(PlacementOf(model, "w2.weight"), "tp=S(1)");
  EXPECT_EQ(PlacementOf(model, "w2.bias"), "tp=R");
}

TEST(CompileTest, ReduceScatterWhereTheOutputIsCut) {
  Submission submission = MlpSubmission(4, 6, 2);
  std::get<RowwiseParallel>(submission.plan.entries[1].style).output_layouts = Placement::Shard(1);
  const CompiledModel model = Compile(submission);
  EXPECT_EQ(OpsOf(model.program, {{"batch", 2}})[0], "w2 reduce_scatter");
}

// SEMANTICS 8, case 9: 1 + 2 L, and nothing gathers the logits.
TEST(CompileTest, DecoderHasOneAndTwoALayerAllReduces) {
  for (int degree : {2, 4, 8}) {
    const CompiledModel model = Compile(DecoderSubmission({.layers = 4, .hidden = 256, .intermediate = 688}, degree));
    const std::vector<std::string> ops = OpsOf(model.program, kBound);
    ASSERT_EQ(ops.size(), 9u) << degree;
    EXPECT_EQ(ops[0], "embed all_reduce");
    for (int layer = 0; layer < 4; ++layer) {
      EXPECT_EQ(ops[1 + 2 * layer], "layers." + std::to_string(layer) + ".attn.o_proj all_reduce");
      EXPECT_EQ(ops[2 + 2 * layer], "layers." + std::to_string(layer) + ".mlp.w2 all_reduce");
    }
    // The step program gathers the logits of its rows, and nothing else is new.
    const std::vector<std::string> step = OpsOf(*model.step_program, {{"batch", 1}, {"time", 16}, {"rows", 1}});
    ASSERT_EQ(step.size(), 10u);
    EXPECT_EQ(step.back(), " all_gather");
  }
}

TEST(CompileTest, OneRankCommunicatesNothing) {
  const CompiledModel model = Compile(DecoderSubmission({}, 1));
  EXPECT_TRUE(OpsOf(model.program, kBound).empty());
  EXPECT_TRUE(OpsOf(*model.step_program, {{"batch", 1}, {"time", 16}, {"rows", 1}}).empty());
  for (const Instruction& instruction : model.program.instructions) EXPECT_NE(instruction.function, "redistribute");
}

// SEMANTICS 8, case 10.
TEST(CompileTest, FewerKeyHeadsThanRanksAreGrouped) {
  const CompiledModel model = Compile(DecoderSubmission({.layers = 1, .hidden = 256}, 8));
  for (const PlacedState& placed : model.states) {
    if (placed.state.path != "layers.0.attn.k_proj.weight") continue;
    EXPECT_EQ(placed.state.shape, (Shape{128, 256}));
    EXPECT_EQ(placed.placements[0], Placement::GroupShard(0, 4));
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(LocalShape(placed.state.shape, placed.placements, model.mesh, std::vector<int>{rank}),
                (Shape{32, 256}));
      EXPECT_EQ(LocalOffset(placed.state.shape, placed.placements, model.mesh, std::vector<int>{rank}),
                (Shape{32 * (rank / 2), 0}));
    }
  }
  EXPECT_EQ(PlacementOf(model, "layers.0.attn.k_proj.bias"), "tp=GS(0,4)");
  EXPECT_EQ(PlacementOf(model, "layers.0.attn.v_proj.weight"), "tp=GS(0,4)");
  EXPECT_EQ(PlacementOf(model, "layers.0.attn.q_proj.weight"), "tp=S(0)");
  ASSERT_EQ(model.program.caches.size(), 1u);
  EXPECT_EQ(model.program.caches[0].heads_placements, (Placements{Placement::GroupShard(0, 4)}));
  EXPECT_EQ(model.program.caches[0].kv_heads, 4);
  EXPECT_EQ(model.program.caches[0].head_dim, 32);
}

// CASES 13.
TEST(CompileTest, TwoKeyHeadsOverFourRanks) {
  const CompiledModel model = Compile(DecoderSubmission({.layers = 1, .kv_heads = 2}, 4));
  EXPECT_EQ(PlacementOf(model, "layers.0.attn.k_proj.weight"), "tp=GS(0,2)");
  EXPECT_EQ(OpsOf(model.program, kBound).size(), 3u);
}

TEST(CompileTest, VocabularyOf257OverFourRanks) {
  const CompiledModel model = Compile(DecoderSubmission({}, 4));
  const DTensorSpec& logits = model.program.values[model.program.outputs[0].value].spec;
  EXPECT_EQ(logits.placements, (Placements{Placement::Shard(2)}));
  std::vector<int64_t> widths, rows;
  for (int rank = 0; rank < 4; ++rank) {
    widths.push_back(LocalShape({1, 1, 257}, logits.placements, model.mesh, std::vector<int>{rank})[2]);
    rows.push_back(LocalShape({257, 32}, {Placement::Shard(0)}, model.mesh, std::vector<int>{rank})[0]);
  }
  EXPECT_THAT(widths, ElementsAre(65, 65, 65, 62));
  EXPECT_EQ(PlacementOf(model, "embed.weight"), "tp=S(0)");
  EXPECT_EQ(PlacementOf(model, "head.weight"), "tp=S(0)");
  EXPECT_THAT(rows, ElementsAre(65, 65, 65, 62));
}

TEST(CompileTest, StepProgramSelectsRowsAfterTheLastResidual) {
  const CompiledModel model = Compile(DecoderSubmission({}, 2));
  ASSERT_TRUE(model.step_program.has_value());
  const std::vector<Instruction>& instructions = model.step_program->instructions;
  std::vector<std::string> tail;
  for (size_t i = instructions.size() - 5; i < instructions.size(); ++i) tail.push_back(instructions[i].function);
  EXPECT_THAT(tail, ElementsAre("add", "select_rows", "rms_norm", "linear", "redistribute"));
  const DTensorSpec& logits = model.step_program->values[model.step_program->outputs[0].value].spec;
  EXPECT_EQ(logits.shape, (SymShape{1, Dim::Symbol("rows"), 257}));
  EXPECT_EQ(logits.placements, (Placements{Placement::Replicate()}));
  EXPECT_EQ(model.step_program->caches.size(), 2u);
}

TEST(CompileTest, InputsOfEmbeddingsAreChecked) {
  const CompiledModel model = Compile(DecoderSubmission({}, 2));
  ASSERT_EQ(model.program.input_checks.size(), 1u);
  EXPECT_EQ(model.program.input_checks[0].input, "ids");
  EXPECT_EQ(model.program.input_checks[0].limit, 257);
}

TEST(CompileTest, WrittenInputLayoutsAreClaims) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries[1].input_layouts_written = true;  // S(-1), as it is
  EXPECT_TRUE(CompileForward(submission).ok()) << CompileForward(submission).status();
  std::get<RowwiseParallel>(submission.plan.entries[1].style).input_layouts = Placement::Replicate();
  const absl::Status status = CompileForward(submission).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("w2: input_layouts of 'w2' says R, the input is S(1)"));
}

TEST(CompileTest, RequestsArriveInTheFirstConsumersLayout) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries[0].input_layouts_written = true;
  std::get<ColwiseParallel>(submission.plan.entries[0].style).input_layouts = Placement::Shard(0);
  const CompiledModel model = Compile(submission);
  EXPECT_EQ(model.program.values[model.program.operands[0].value].spec.placements, (Placements{Placement::Shard(0)}));
}

TEST(CompileTest, UnnamedAxisWarnsOfCopies) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.mesh = {{"dp", 3}, {"tp", 2}};
  const CompiledModel model = Compile(submission);
  EXPECT_THAT(model.warnings, ElementsAre(HasSubstr("axis 'dp': its 3 coordinates compute copies; batch_axes: [dp]")));
  EXPECT_EQ(PlacementOf(model, "w1.weight"), "dp=R,tp=S(0)");
}

TEST(CompileTest, ModulesShowTheirSpecs) {
  const CompiledModel model = Compile(MlpSubmission(4, 6, 2));
  ASSERT_EQ(model.modules.size(), 3u);
  EXPECT_EQ(model.modules[1].path, "w1");
  EXPECT_THAT(model.modules[1].style, HasSubstr("ColwiseParallel("));
  EXPECT_THAT(model.modules[1].inputs, ElementsAre("F32[batch, 4] tp=R"));
  EXPECT_THAT(model.modules[1].outputs, ElementsAre("F32[batch, 6] tp=S(1)"));
  EXPECT_THAT(model.modules[2].inputs, ElementsAre("F32[batch, 6] tp=S(1)"));
  EXPECT_THAT(model.modules[2].outputs, ElementsAre("F32[batch, 4] tp=R"));
}

TEST(CompileTest, FingerprintsAreStableAndTellPlacementsApart) {
  const std::string one = Compile(MlpSubmission(4, 6, 2)).fingerprint;
  EXPECT_EQ(one.size(), 64u);
  EXPECT_EQ(Compile(MlpSubmission(4, 6, 2)).fingerprint, one);
  Submission other = MlpSubmission(4, 6, 2);
  std::get<RowwiseParallel>(other.plan.entries[1].style).output_layouts = Placement::Shard(0);
  std::set<std::string> all{one, Compile(other).fingerprint, Compile(MlpSubmission(4, 6, 3)).fingerprint,
                            Compile(MlpSubmission(4, 7, 2)).fingerprint, Compile(DecoderSubmission({}, 2)).fingerprint};
  EXPECT_EQ(all.size(), 5u);
}

TEST(CompileTest, Bf16ModelsKeepF32Logits) {
  Submission submission = DecoderSubmission({}, 2);
  submission.compute_dtype = DType::kBF16;
  const CompiledModel model = Compile(submission);
  EXPECT_EQ(model.program.values[model.program.outputs[0].value].spec.dtype, DType::kF32);
  EXPECT_EQ(model.states[0].state.dtype, DType::kBF16);
  EXPECT_EQ(model.program.caches[0].dtype, DType::kBF16);
  EXPECT_TRUE(ValidateProgram(model.program).ok()) << ValidateProgram(model.program);
}

}  // namespace
}  // namespace tp
