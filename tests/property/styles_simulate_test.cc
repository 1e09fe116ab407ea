// Plans of all six styles against one rank, in the simulator: sequence parallelism at every length, several axes, the
// batch cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

constexpr uint64_t kSeed = 11;

SimTensor Wave(const Shape& shape, double phase) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    tensor.values.push_back(std::cos(phase + 0.37 * static_cast<double>(i)) + 0.02 * static_cast<double>(i % 7));
  }
  return tensor;
}

SimTensor Ids(const Shape& shape) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(static_cast<double>((i * 53 + 7) % 257));
  return tensor;
}

using Tensors = std::map<std::string, SimTensor>;

absl::StatusOr<Tensors> Run(Submission submission, const std::vector<MeshAxis>& mesh, const Tensors& inputs) {
  submission.plan.mesh = mesh;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  if (!compiled.ok()) return compiled.status();
  if (absl::Status valid = ValidateProgram(compiled->program); !valid.ok()) return valid;
  absl::StatusOr<SimulationResult> result = Simulate(compiled->program, InitialStates(*compiled, kSeed), inputs);
  if (!result.ok()) return result.status();
  return result->outputs;
}

// `plain` on one rank against `styled` on each mesh.
void ExpectEqual(Submission plain, const Submission& styled, const std::vector<std::vector<MeshAxis>>& meshes,
                 const Tensors& inputs) {
  plain.plan.entries.clear();
  plain.plan.batch_axes.clear();
  absl::StatusOr<Tensors> want = Run(plain, Tp(1), inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const std::vector<MeshAxis>& mesh : meshes) {
    absl::StatusOr<Tensors> got = Run(styled, mesh, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    for (const auto& [name, tensor] : *want) {
      ASSERT_EQ(got->at(name).shape, tensor.shape) << name;
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        ASSERT_NEAR(got->at(name).values[i], tensor.values[i], 1e-9) << name << " element " << i;
      }
    }
  }
}

// SEMANTICS 8, case 8; CASES 20 (a full tensor) and 21.
TEST(SequenceTest, EveryLengthEqualsOneRank) {
  const Submission plain = DecoderSubmission({}, 1), cut = SequenceDecoderSubmission({}, 1);
  for (int64_t length : {1, 2, 3, 17, 64}) {
    ExpectEqual(plain, cut, {Tp(2), Tp(4), Tp(8)}, {{"ids", Ids({1, length})}});
  }
  ExpectEqual(plain, cut, {Tp(2), Tp(4)}, {{"ids", Ids({3, 5})}});
}

TEST(SequenceTest, BiasesAfterTheScatterAreAddedOnce) {
  // CASES 8: y = [30, 70, 110] + [100, 200, 300] whatever the layout of the output.
  CompositeConfig config{.type_name = "One",
                         .inputs = {{"x"}},
                         .nodes = {CallChild("y", "w", {"x"})},
                         .outputs = {{"y", "y"}},
                         .states = {}};
  for (const Placement& layout : {Placement::Replicate(), Placement::Shard(1), Placement::Shard(0)}) {
    for (int degree : {1, 2, 4}) {
      Submission submission;
      submission.model.root.config = config;
      submission.model.root.children = {
          {.name = "w",
           .config = LinearConfig{.in_features = 4, .out_features = 3, .bias = true, .output_dtype = {}},
           .children = {},
           .param_init = {}}};
      submission.model.inputs = {{"x", DType::kF32, {Dim::Symbol("batch"), Dim(4)}}};
      RowwiseParallel style;
      style.output_layouts = layout;
      submission.plan.mesh = Tp(degree);
      submission.plan.entries = {Styled("w", style)};
      absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const Tensors states{{"w.weight", {{3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}},
                           {"w.bias", {{3}, {100, 200, 300}}}};
      absl::StatusOr<SimulationResult> result = Simulate(compiled->program, states, {{"x", {{1, 4}, {1, 2, 3, 4}}}});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_THAT(result->outputs.at("y").values, ::testing::ElementsAre(130, 270, 410)) << degree;
    }
  }
}

TEST(SequenceTest, WholeLayersAndModelsAsModules) {
  const Submission plain = DecoderSubmission({}, 1);
  Submission styled = plain;
  // Every state of the layers is whole; linears and rotary run on parts of the sequence, attention gathers.
  styled.plan.entries = {Styled("layers.*", SequenceParallel{}), Styled("embed", SequenceParallel{})};
  ExpectEqual(plain, styled, {Tp(2), Tp(3)}, {{"ids", Ids({2, 5})}});
  styled.plan.entries = {Styled("layers.*", SequenceParallel{.sequence_dim = 0})};
  ExpectEqual(plain, styled, {Tp(2)}, {{"ids", Ids({3, 5})}});
  styled.plan.entries = {Styled("", SequenceParallel{})};
  ExpectEqual(plain, styled, {Tp(2), Tp(4)}, {{"ids", Ids({2, 3})}});
}

TEST(SequenceTest, ReplicatedHeadsStepsSelectRowsOfAllRanks) {
  Submission submission = SequenceDecoderSubmission({}, 2);
  submission.plan.entries.erase(submission.plan.entries.begin() + 8);  // no Colwise head: logits are S(1)
  for (int degree : {2, 4}) {
    submission.plan.mesh = Tp(degree);
    for (const Submission& each : {submission, SequenceDecoderSubmission({}, degree)}) {
      absl::StatusOr<CompiledModel> compiled = CompileForward(each);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      ASSERT_TRUE(ValidateProgram(*compiled->step_program).ok()) << ValidateProgram(*compiled->step_program);
      const Tensors states = InitialStates(*compiled, kSeed), inputs{{"ids", Ids({1, 5})}};
      absl::StatusOr<SimulationResult> all = Simulate(compiled->program, states, inputs);
      absl::StatusOr<SimulationResult> some = Simulate(*compiled->step_program, states, inputs, {4, 0});
      ASSERT_TRUE(all.ok() && some.ok()) << all.status() << some.status();
      const SimTensor& logits = all->outputs.at("logits");
      const SimTensor& rows = some->outputs.at("logits");
      ASSERT_EQ(rows.shape, (Shape{1, 2, 257}));
      for (int64_t i = 0; i < 257; ++i) {
        ASSERT_NEAR(rows.values[i], logits.values[4 * 257 + i], 1e-9);
        ASSERT_NEAR(rows.values[257 + i], logits.values[i], 1e-9);
      }
    }
  }
}

// CASES 4, and layouts that the plan moves back and forth.
TEST(StylesTest, PreparedModulesLeaveTheValueAlone) {
  const Submission plain = MlpSubmission(4, 5, 1);
  Submission styled = plain;
  ExpectEqual(plain, styled, {Tp(2), Tp(3)}, {{"x", Wave({5, 4}, 0.2)}});
  const Placement s0 = Placement::Shard(0), s1 = Placement::Shard(1), r = Placement::Replicate();
  styled.plan.entries = {PreparedInput("w1", s0, s1), Colwise("w1"), PreparedOutput("w1", s1, s0), Rowwise("w2"),
                         PreparedOutput("w2", r, s1)};
  ExpectEqual(plain, styled, {Tp(2), Tp(3), Tp(4)}, {{"x", Wave({5, 4}, 0.2)}});
  PrepareModuleInputOutput root;
  root.input_layouts = {s1};
  root.desired_input_layouts = {s0};
  root.output_layouts = {s0};
  root.desired_output_layouts = {s1};
  styled.plan.entries = {Styled("", root)};
  ExpectEqual(plain, styled, {Tp(2), Tp(4)}, {{"x", Wave({3, 4}, 0.2)}});
}

TEST(StylesTest, PartialOutputsAreClaimedAndMoved) {
  const Submission plain = MlpSubmission(6, 10, 1);
  Submission styled = plain;
  // The bias, of both signs, is a term of a sum only.
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax}) {
    RowwiseParallel terms;
    terms.output_layouts = Placement::Partial(op);
    styled.plan.entries = {Colwise("w1"), Styled("w2", terms),
                           PreparedOutput("w2", Placement::Partial(op), Placement::Shard(1))};
    ExpectEqual(plain, styled, {Tp(2), Tp(4)}, {{"x", Wave({3, 6}, 0.9)}});
  }
}

// Random plans of all styles on random modules: what compiles equals one rank.
TEST(StylesTest, RandomPlansThatCompileEqualOneRank) {
  const char* given = std::getenv("TP_TEST_SEED");
  const unsigned seed = given == nullptr ? 20u : static_cast<unsigned>(std::stoul(given));
  SCOPED_TRACE(::testing::Message() << "TP_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  const std::vector<Placement> layouts{Placement::Replicate(),
                                       Placement::Shard(0),
                                       Placement::Shard(1),
                                       Placement::Shard(-1),
                                       Placement::Partial(),
                                       Placement::Partial(ReduceOp::kMax),
                                       Placement::Partial(ReduceOp::kAvg)};
  const std::vector<std::string> mlp{"", "w1", "w2"};
  const std::vector<std::string> decoder{"",
                                         "embed",
                                         "layers.0",
                                         "layers.*.norm1",
                                         "layers.*.norm2",
                                         "layers.0.attn",
                                         "layers.0.attn.q_proj",
                                         "layers.0.attn.k_proj",
                                         "layers.0.attn.v_proj",
                                         "layers.*.attn.o_proj",
                                         "layers.*.mlp",
                                         "layers.*.mlp.w1",
                                         "layers.*.mlp.w2",
                                         "layers.*.mlp.w3",
                                         "norm",
                                         "head"};
  int compared = 0;
  for (int round = 0; round < 60; ++round) {
    const bool small = round % 2 == 0;
    const Submission plain = small ? MlpSubmission(4, 5, 1) : DecoderSubmission({.layers = 1, .vocabulary = 21}, 1);
    const std::vector<std::string>& modules = small ? mlp : decoder;
    Submission styled = plain;
    styled.plan.entries.clear();
    const std::vector<MeshAxis> mesh = pick(3) == 0 ? std::vector<MeshAxis>{{"dp", 2}, {"tp", 2}} : Tp(pick(2) ? 2 : 4);
    styled.plan.mesh = mesh;
    if (mesh.size() == 2 && pick(2) == 0) styled.plan.batch_axes = {"dp"};
    for (size_t wanted = 1 + pick(small ? 4 : 12); wanted > 0; --wanted) {
      // A claim must be true: the first declared layout that compiles is kept.
      const std::string& module = modules[pick(modules.size())];
      const Placement desired = layouts[pick(layouts.size())];
      const size_t kind = pick(5);
      for (const Placement& declared : layouts) {
        PlanEntry entry =
            kind == 3 ? PreparedInput(module, declared, desired) : PreparedOutput(module, declared, desired);
        ColwiseParallel colwise;
        RowwiseParallel rowwise;
        if (pick(2) == 0) colwise.output_layouts = rowwise.output_layouts = desired;
        if (kind == 0) entry = Styled(module, colwise);
        if (kind == 1) entry = Styled(module, rowwise);
        if (kind == 2) entry = Styled(module, SequenceParallel{.sequence_dim = static_cast<int>(pick(2))});
        styled.plan.entries.push_back(entry);
        if (CompileForward(styled).ok()) break;
        styled.plan.entries.pop_back();
      }
    }
    if (styled.plan.entries.empty()) continue;
    std::string texts;
    for (const PlanEntry& entry : styled.plan.entries) texts += entry.pattern + ": " + StyleText(entry.style) + "\n";
    SCOPED_TRACE(texts);
    if (small) {
      ExpectEqual(plain, styled, {mesh}, {{"x", Wave({3, 4}, 0.2)}});
    } else {
      ExpectEqual(plain, styled, {mesh}, {{"ids", {{2, 3}, {1, 20, 4, 0, 7, 9}}}});
    }
    if (HasFatalFailure()) return;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

TEST(BatchTest, EveryAxisKeepsItsPart) {
  Submission mlp = MlpSubmission(6, 10, 1);
  mlp.plan.batch_axes = {"dp"};
  const std::vector<std::vector<MeshAxis>> meshes{
      {{"dp", 2}, {"tp", 2}}, {{"tp", 3}, {"dp", 2}}, {{"dp", 4}, {"tp", 1}}};
  for (int64_t batch : {0, 1, 3, 8}) ExpectEqual(mlp, mlp, meshes, {{"x", Wave({batch, 6}, 0.4)}});
  Submission two = TwoByTwoSubmission(5, 7, 1);
  two.plan.batch_axes = {"dp"};
  ExpectEqual(two, two, meshes, {{"a", Wave({3, 5}, 0.1)}, {"b", Wave({3, 5}, 0.6)}});
}

TEST(BatchTest, DecodersWithAndWithoutSequenceParallelism) {
  for (Submission submission : {DecoderSubmission({}, 1), SequenceDecoderSubmission({}, 1)}) {
    submission.plan.batch_axes = {"dp"};
    ExpectEqual(submission, submission, {{{"dp", 2}, {"tp", 2}}, {{"tp", 2}, {"dp", 3}}}, {{"ids", Ids({3, 5})}});
    ExpectEqual(submission, submission, {{{"dp", 2}, {"tp", 4}}}, {{"ids", Ids({1, 3})}});
  }
}

}  // namespace
}  // namespace tp::testing
