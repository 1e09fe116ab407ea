// Models compiled at several degrees and run in the simulator equal the same models at degree 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/program/compile.h"
#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

constexpr uint64_t kSeed = 7;

// Values that no cut treats alike: a fixed pseudo-random walk.
SimTensor Wave(const Shape& shape, double phase) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    tensor.values.push_back(std::sin(phase + 1.7 * static_cast<double>(i)) + 0.01 * static_cast<double>(i % 5));
  }
  return tensor;
}

SimTensor Ids(const Shape& shape, int64_t vocabulary) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i)
    tensor.values.push_back(static_cast<double>((i * 97 + 3) % vocabulary));
  return tensor;
}

void ExpectNear(const SimTensor& got, const SimTensor& want, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape) << what;
  for (size_t i = 0; i < want.values.size(); ++i) {
    ASSERT_NEAR(got.values[i], want.values[i], 1e-9) << what << " element " << i;
  }
}

SimulationResult RunAt(Submission submission, const std::vector<MeshAxis>& mesh,
                       const std::map<std::string, SimTensor>& inputs) {
  submission.plan.mesh = mesh;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  EXPECT_TRUE(ValidateProgram(compiled->program).ok()) << ValidateProgram(compiled->program);
  absl::StatusOr<SimulationResult> result = Simulate(compiled->program, InitialStates(*compiled, kSeed), inputs);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : SimulationResult{};
}

void ExpectEqualAtDegrees(const Submission& submission, const std::vector<std::vector<MeshAxis>>& meshes,
                          const std::map<std::string, SimTensor>& inputs) {
  const SimulationResult one = RunAt(submission, Tp(1), inputs);
  EXPECT_EQ(one.collectives, 0);
  ASSERT_FALSE(one.outputs.empty());
  for (const std::vector<MeshAxis>& mesh : meshes) {
    const SimulationResult many = RunAt(submission, mesh, inputs);
    for (const auto& [name, want] : one.outputs) {
      ASSERT_TRUE(many.outputs.contains(name));
      ExpectNear(many.outputs.at(name), want, name);
    }
  }
}

TEST(SimulateTest, MlpWithResidualAndSoftmaxEqualsOneRank) {
  ExpectEqualAtDegrees(MlpSubmission(6, 10, 1), {Tp(2), Tp(3), Tp(4), Tp(5)}, {{"x", Wave({3, 6}, 0.3)}});
}

TEST(SimulateTest, UnevenHiddenSizeIsExact) {  // hidden 5 on 2 ranks: 3 and 2
  ExpectEqualAtDegrees(MlpSubmission(4, 5, 1), {Tp(2), Tp(3), Tp(4)}, {{"x", Wave({2, 4}, 0.1)}});
}

TEST(SimulateTest, MoreRanksThanColumnsIsExact) {
  ExpectEqualAtDegrees(MlpSubmission(4, 1, 1), {Tp(2), Tp(3)}, {{"x", Wave({2, 4}, 0.1)}});
}

TEST(SimulateTest, NoRowsIsLegal) { ExpectEqualAtDegrees(MlpSubmission(4, 5, 1), {Tp(2)}, {{"x", Wave({0, 4}, 0)}}); }

TEST(SimulateTest, TwoInputsAndOutputsEqualOneRank) {
  ExpectEqualAtDegrees(TwoByTwoSubmission(5, 7, 1), {Tp(2), Tp(3), Tp(4)},
                       {{"a", Wave({3, 5}, 0.5)}, {"b", Wave({3, 5}, 2.5)}});
}

TEST(SimulateTest, SecondAxisComputesCopies) {
  ExpectEqualAtDegrees(MlpSubmission(6, 10, 1), {{{"dp", 2}, {"tp", 2}}, {{"tp", 3}, {"pp", 2}}},
                       {{"x", Wave({3, 6}, 0.3)}});
}

TEST(SimulateTest, DecoderEqualsOneRankAtEveryLegalDegree) {
  ExpectEqualAtDegrees(DecoderSubmission({}, 1), {Tp(2), Tp(4), Tp(8)}, {{"ids", Ids({2, 5}, 257)}});
}

TEST(SimulateTest, TwoKeyHeadsOverFourRanksEqualOneRank) {
  ExpectEqualAtDegrees(DecoderSubmission({.kv_heads = 2}, 1), {Tp(2), Tp(4), Tp(8)}, {{"ids", Ids({1, 6}, 257)}});
}

TEST(SimulateTest, VocabularyOfTenOverFourRanksMeetsEveryId) {
  const DecoderSize size{.layers = 1, .vocabulary = 10};
  const std::map<std::string, SimTensor> inputs{{"ids", {{1, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}}};
  ExpectEqualAtDegrees(DecoderSubmission(size, 1), {Tp(2), Tp(4)}, inputs);
  EXPECT_EQ(RunAt(DecoderSubmission(size, 1), Tp(4), inputs).outputs.at("logits").shape, (Shape{1, 10, 10}));
}

TEST(SimulateTest, OutputLayoutsOfRowwiseLeaveTheValueAlone) {
  for (const Placement& layout : {Placement::Shard(1), Placement::Shard(0), Placement::Partial()}) {
    Submission submission = MlpSubmission(6, 10, 1);
    std::get<RowwiseParallel>(submission.plan.entries[1].style).output_layouts = layout;
    ExpectEqualAtDegrees(submission, {Tp(2), Tp(4)}, {{"x", Wave({3, 6}, 0.3)}});
  }
}

TEST(SimulateTest, StepProgramGivesTheChosenRowsOfTheLogits) {
  for (int degree : {1, 2, 8}) {
    absl::StatusOr<CompiledModel> compiled = CompileForward(DecoderSubmission({}, degree));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(compiled->step_program.has_value());
    ASSERT_TRUE(ValidateProgram(*compiled->step_program).ok()) << ValidateProgram(*compiled->step_program);
    const std::map<std::string, SimTensor> states = InitialStates(*compiled, kSeed);
    const std::map<std::string, SimTensor> inputs{{"ids", Ids({2, 5}, 257)}};
    absl::StatusOr<SimulationResult> all = Simulate(compiled->program, states, inputs);
    absl::StatusOr<SimulationResult> some = Simulate(*compiled->step_program, states, inputs, {9, 4, 4});
    ASSERT_TRUE(all.ok() && some.ok()) << all.status() << some.status();
    const SimTensor& logits = all->outputs.at("logits");
    const SimTensor& rows = some->outputs.at("logits");
    ASSERT_EQ(rows.shape, (Shape{1, 3, 257}));
    const std::vector<int64_t> wanted{9, 4, 4};
    for (int64_t i = 0; i < 3 * 257; ++i) {
      ASSERT_NEAR(rows.values[i], logits.values[wanted[i / 257] * 257 + i % 257], 1e-9) << i;
    }
  }
}

}  // namespace
}  // namespace tp::testing
