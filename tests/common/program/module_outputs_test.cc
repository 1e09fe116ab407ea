#include "common/program/module_outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/program/compile.h"
#include "common/program/trim.h"
#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using tp::testing::CallChild;
using tp::testing::CallFunction;
using tp::testing::Colwise;
using tp::testing::DecoderSubmission;
using tp::testing::InitialStates;
using tp::testing::MlpSubmission;
using tp::testing::Rowwise;
using tp::testing::SequenceDecoderSubmission;
using tp::testing::SimTensor;
using tp::testing::Simulate;
using tp::testing::Tp;

CompiledModel WithOutputs(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission, {.module_outputs = true});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

std::vector<std::string> Names(const ForwardProgram& program) {
  std::vector<std::string> names;
  for (const NamedValue& output : program.outputs) names.push_back(output.name);
  return names;
}

std::string SpecOf(const ForwardProgram& program, const std::string& name) {
  for (const NamedValue& output : program.outputs) {
    if (output.name == name) return SpecText(program.values[output.value].spec, program.mesh);
  }
  return "absent";
}

Module SmallLinear(const std::string& name) {
  return {.name = name,
          .config = LinearConfig{.in_features = 4, .out_features = 4, .bias = true},
          .children = {},
          .param_init = {}};
}

// y = b(a(a(x))), an unused c(x).
Submission Repeated(int degree) {
  CompositeConfig config{.type_name = "Repeated",
                         .inputs = {{"x"}},
                         .nodes = {CallChild("h", "a", {"x"}), CallChild("g", "a", {"h"}), CallChild("u", "c", {"x"}),
                                   CallChild("y", "b", {"g"})},
                         .outputs = {{"y", "y"}},
                         .states = {}};
  Submission submission;
  submission.name = "repeated";
  submission.model.root = {.name = "",
                           .config = config,
                           .children = {SmallLinear("a"), SmallLinear("b"), SmallLinear("c")},
                           .param_init = {}};
  submission.model.inputs = {{"x", DType::kF32, {Dim::Symbol("batch"), Dim(4)}}};
  submission.plan.mesh = Tp(degree);
  return submission;
}

// Every output of the program of `parallel` equals that of the same model on one rank.
void ExpectEqualToOneRank(Submission submission, const std::map<std::string, SimTensor>& inputs) {
  const CompiledModel parallel = WithOutputs(submission);
  ASSERT_TRUE(ValidateProgram(parallel.program).ok()) << ValidateProgram(parallel.program);
  for (MeshAxis& axis : submission.plan.mesh) axis.size = 1;
  const CompiledModel single = WithOutputs(submission);
  ASSERT_EQ(Names(parallel.program), Names(single.program));
  const auto got = Simulate(parallel.program, InitialStates(parallel, 5), inputs);
  const auto want = Simulate(single.program, InitialStates(single, 5), inputs);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(want.ok()) << want.status();
  for (const auto& [name, tensor] : want->outputs) {
    const SimTensor& other = got->outputs.at(name);
    ASSERT_EQ(other.shape, tensor.shape) << name;
    for (size_t i = 0; i < tensor.values.size(); ++i) ASSERT_NEAR(other.values[i], tensor.values[i], 1e-9) << name;
  }
}

SimTensor Wave(const Shape& shape) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(std::sin(static_cast<double>(2 * i + 1)));
  return tensor;
}

TEST(ModuleOutputsTest, FollowTheModelsInTheOrderInWhichModulesEnd) {
  const CompiledModel model = WithOutputs(DecoderSubmission({.layers = 1}, 2));
  EXPECT_THAT(
      Names(model.program),
      ElementsAre("logits", "embed:output", "layers.0.norm1:output", "layers.0.attn.q_proj:output",
                  "layers.0.attn.k_proj:output", "layers.0.attn.v_proj:output", "layers.0.attn.o_proj:output",
                  "layers.0.attn:y", "layers.0.norm2:output", "layers.0.mlp.w1:output", "layers.0.mlp.w3:output",
                  "layers.0.mlp.w2:output", "layers.0.mlp:y", "layers.0:y", "norm:output", "head:output"));
  EXPECT_FALSE(model.step_program.has_value());
  EXPECT_EQ(model.fingerprint, FingerprintOf(model.program));
}

TEST(ModuleOutputsTest, HaveThePlacementsThatTheModulesLeaveThemIn) {
  const CompiledModel model = WithOutputs(SequenceDecoderSubmission({.layers = 1}, 2));
  EXPECT_EQ(SpecOf(model.program, "embed:output"), "F32[batch, time, 32] tp=S(1)");
  EXPECT_EQ(SpecOf(model.program, "layers.0.norm1:output"), "F32[batch, time, 32] tp=S(1)");
  EXPECT_EQ(SpecOf(model.program, "layers.0.mlp.w1:output"), "F32[batch, time, 44] tp=S(2)");
}

TEST(ModuleOutputsTest, TheModelsOwnInstructionsStayTheSame) {
  for (const Submission& submission : {DecoderSubmission({.layers = 1}, 4), MlpSubmission(6, 10, 3), Repeated(2)}) {
    const absl::StatusOr<CompiledModel> usual = CompileForward(submission);
    ASSERT_TRUE(usual.ok()) << usual.status();
    ForwardProgram program = WithOutputs(submission).program;
    EXPECT_GT(program.outputs.size(), usual->program.outputs.size());
    program.outputs.resize(usual->program.outputs.size());
    EXPECT_EQ(ProgramText(TrimProgram(program)), ProgramText(usual->program));
  }
}

TEST(ModuleOutputsTest, RepeatedCallsAreNumberedAndUnusedModulesLeftOut) {
  EXPECT_THAT(Names(WithOutputs(Repeated(1)).program), ElementsAre("y", "a:output", "a:output:call2", "b:output"));
}

TEST(ModuleOutputsTest, SumsOverRanksAreReducedWithTheirBias) {
  // Without an entry b's weight is cut like its input: its output is a sum over ranks whose bias comes later.
  Submission submission = Repeated(2);
  submission.plan.entries = {Colwise("a")};
  std::get<ColwiseParallel>(submission.plan.entries[0].style).output_layouts = Placement::Shard(-1);
  for (int degree : {2, 3}) {
    submission.plan.mesh = Tp(degree);
    ExpectEqualToOneRank(submission, {{"x", Wave({5, 4})}});
  }
}

TEST(ModuleOutputsTest, EqualThoseOfOneRank) {
  SimTensor ids{{2, 5}, {1, 30, 2, 7, 7, 0, 5, 29, 3, 11}};
  for (int degree : {2, 4}) {
    ExpectEqualToOneRank(DecoderSubmission({.layers = 1, .vocabulary = 31}, degree), {{"ids", ids}});
    ExpectEqualToOneRank(SequenceDecoderSubmission({.layers = 1, .vocabulary = 31}, degree), {{"ids", ids}});
  }
  for (int degree : {2, 3, 4}) ExpectEqualToOneRank(MlpSubmission(6, 10, degree), {{"x", Wave({5, 6})}});
}

}  // namespace
}  // namespace tp
