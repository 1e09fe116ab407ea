// The submissions of deploy/demo that have no reference file: equal on every mesh, with the collectives that they
// promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/checkpoint/file.h"
#include "common/checkpoint/safetensors.h"
#include "common/program/memory.h"
#include "common/proto_convert/program.h"
#include "common/proto_convert/submission_file.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;

TEST(DemoPlans, ProgramsCrossTheWire) {
  for (const char* name : {"mlp", "mlp_sequence", "mlp_sharding", "tiny_lm", "two_inputs"}) {
    const std::string path = std::string(TP_SOURCE_DIR "/deploy/demo/") + name + ".textproto";
    absl::StatusOr<std::string> text = ReadWholeFile(path, int64_t{1} << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    absl::StatusOr<Submission> submission = ParseSubmission(*text, SubmissionFormat::kText);
    ASSERT_TRUE(submission.ok()) << submission.status();
    absl::StatusOr<CompiledModel> compiled = CompileForward(*submission);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    v1::Program proto;
    ProgramToProto(compiled->program, &proto);
    absl::StatusOr<ForwardProgram> read = ProgramFromProto(proto, "program");
    ASSERT_TRUE(read.ok()) << name << ": " << read.status();
    EXPECT_EQ(ProgramText(*read), ProgramText(compiled->program)) << name;
  }
}

TEST(DemoPlans, SequenceParallelMlpEqualsItsFormulaOnEveryMesh) {
  absl::StatusOr<std::string> text =
      ReadWholeFile(TP_SOURCE_DIR "/deploy/demo/mlp_sequence.textproto", int64_t{1} << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  absl::StatusOr<Submission> submission = ParseSubmission(*text, SubmissionFormat::kText);
  ASSERT_TRUE(submission.ok()) << submission.status();
  for (int64_t time : {1, 3, 17}) {
    SimTensor x{{2, time, 8}, {}};
    for (int64_t i = 0; i < ElementCount(x.shape); ++i) x.values.push_back(std::sin(0.7 * static_cast<double>(i)));
    for (int degree : {1, 2, 3, 4}) {
      submission->plan.mesh = {{"tp", degree}};
      absl::StatusOr<CompiledModel> compiled = CompileForward(*submission);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      const std::map<std::string, SimTensor> states = InitialStates(*compiled, submission->seed);
      absl::StatusOr<SimulationResult> result = Simulate(compiled->program, states, {{"x", x}});
      ASSERT_TRUE(result.ok()) << result.status();
      const std::vector<double>& w1 = states.at("mlp.fc1.weight").values;
      const std::vector<double>& w2 = states.at("mlp.fc2.weight").values;
      for (int64_t token = 0; token < 2 * time; ++token) {
        const double* in = x.values.data() + token * 8;
        double squares = 0;
        for (int d = 0; d < 8; ++d) squares += in[d] * in[d];
        std::vector<double> out = states.at("mlp.fc2.bias").values;
        for (int row = 0; row < 13; ++row) {
          double hidden = states.at("mlp.fc1.bias").values[row];
          for (int d = 0; d < 8; ++d) {
            hidden += w1[row * 8 + d] * in[d] / std::sqrt(squares / 8 + 1e-5) * states.at("norm.weight").values[d];
          }
          hidden /= 1 + std::exp(-hidden);
          for (int d = 0; d < 8; ++d) out[d] += w2[d * 13 + row] * hidden;
        }
        for (int d = 0; d < 8; ++d) {
          ASSERT_NEAR(result->outputs.at("y").values[token * 8 + d], in[d] + out[d], 1e-9) << degree << " " << token;
        }
      }
      absl::StatusOr<std::vector<CollectiveRecord>> records =
          CollectivesOf(compiled->program, {{"batch", 2}, {"time", time}});
      ASSERT_TRUE(records.ok()) << records.status();
      std::vector<std::string> ops;
      for (const CollectiveRecord& record : *records) ops.push_back(record.module + " " + record.op);
      if (degree == 1) {
        EXPECT_THAT(ops, ElementsAre());
      } else {
        EXPECT_THAT(ops, ElementsAre("mlp all_gather", "mlp.fc2 reduce_scatter"));
      }
    }
  }
}

SimTensor FloatsOf(const HostTensor& tensor) {
  SimTensor result{tensor.shape, {}};
  for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) {
    result.values.push_back(tensor.dtype == DType::kF64 ? tensor.data<double>()[i] : tensor.data<float>()[i]);
  }
  return result;
}

// The answers that numpy computes for mlp.
TEST(DemoPlans, ShardedMlpEqualsTheReferenceOnEveryMesh) {
  const std::string demo = TP_SOURCE_DIR "/deploy/demo/";
  absl::StatusOr<std::string> text = ReadWholeFile(demo + "mlp_sharding.textproto", int64_t{1} << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  absl::StatusOr<Submission> submission = ParseSubmission(*text, SubmissionFormat::kText);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->weights_file, "mlp.safetensors");
  auto weights = ReadSafetensors(demo + "mlp.safetensors");
  auto reference = ReadSafetensors(demo + "mlp.reference.safetensors");
  ASSERT_TRUE(weights.ok() && reference.ok()) << weights.status() << reference.status();
  std::map<std::string, SimTensor> states;
  for (const auto& [name, tensor] : *weights) states[name] = FloatsOf(tensor);
  for (int degree : {1, 2, 3, 4}) {
    submission->plan.mesh = {{"tp", degree}};
    absl::StatusOr<CompiledModel> compiled = CompileForward(*submission);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    for (int i = 0; i < 3; ++i) {
      const SimTensor x = FloatsOf(reference->at("x_" + std::to_string(i)));
      const SimTensor want = FloatsOf(reference->at("y_" + std::to_string(i)));
      absl::StatusOr<SimulationResult> result = Simulate(compiled->program, states, {{"x", x}});
      ASSERT_TRUE(result.ok()) << result.status();
      const SimTensor& y = result->outputs.at("y");
      ASSERT_EQ(y.shape, want.shape);
      for (size_t k = 0; k < want.values.size(); ++k) ASSERT_NEAR(y.values[k], want.values[k], 1e-5) << degree;
    }
    absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(compiled->program, {{"batch", 2}});
    ASSERT_TRUE(records.ok()) << records.status();
    std::vector<std::string> ops;
    for (const CollectiveRecord& record : *records) ops.push_back(record.module + " " + record.op);
    if (degree == 1) {
      EXPECT_THAT(ops, ElementsAre());
    } else {
      EXPECT_THAT(ops, ElementsAre("fc2 all_reduce"));
    }
  }
}

}  // namespace
}  // namespace tp::testing
