// A Run that brings a program: module by module the ranks answer what one rank does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/model/initializer.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"
#include "worker/device/cpu/cpu_device.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 6;

HostTensor Ramp(const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < ElementCount(shape); ++i) values.push_back(std::sin(static_cast<float>(3 * i + 1)));
  return MakeHostTensor<float>(shape, values);
}

std::shared_ptr<const ForwardProgram> ModuleOutputsOf(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission, {.module_outputs = true});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return std::make_shared<const ForwardProgram>(std::move(compiled->program));
}

// Its one input is whole on every rank.
ClusterAnswer RunWith(RuntimeCluster& cluster, const std::string& model, const std::string& input,
                      const HostTensor& value, std::shared_ptr<const ForwardProgram> program) {
  cluster.Send([&](int) {
    Run run;
    run.model = model;
    run.transfer_id = 77;
    RunInput block;
    block.name = input;
    block.global_shape = value.shape;
    block.data = value.bytes;
    run.inputs.push_back(std::move(block));
    run.program = program;
    return run;
  });
  return cluster.Collect();
}

std::map<std::string, HostTensor> OutputsAt(Submission submission, int degree, const std::string& input,
                                            const HostTensor& value) {
  submission.plan.mesh = Tp(degree);
  RuntimeCluster cluster(degree);
  EXPECT_EQ(cluster.Connect(), absl::OkStatus());
  EXPECT_EQ(cluster.Load(submission), absl::OkStatus());
  const ClusterAnswer answer = RunWith(cluster, submission.name, input, value, ModuleOutputsOf(submission));
  EXPECT_EQ(answer.status, absl::OkStatus());
  return answer.outputs;
}

void ExpectEqualOutputs(const Submission& submission, int degree, const std::string& input, const HostTensor& value,
                        size_t count) {
  const std::map<std::string, HostTensor> want = OutputsAt(submission, 1, input, value);
  const std::map<std::string, HostTensor> got = OutputsAt(submission, degree, input, value);
  EXPECT_EQ(want.size(), count);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    const HostTensor& other = got.at(name);
    ASSERT_EQ(other.shape, tensor.shape) << name;
    for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) {
      ASSERT_NEAR(other.data<float>()[i], tensor.data<float>()[i], 1e-5) << name << " element " << i;
    }
  }
}

TEST(ModuleOutputs, OfRanksEqualThoseOfOne) {
  for (int degree : {2, 3}) ExpectEqualOutputs(MlpSubmission(kWidth, 10, degree), degree, "x", Ramp({5, kWidth}), 3);
  const HostTensor ids = MakeHostTensor<int64_t>({2, 5}, {1, 30, 2, 7, 7, 0, 5, 29, 3, 11});
  ExpectEqualOutputs(DecoderSubmission({.layers = 1, .vocabulary = 31}, 2), 2, "ids", ids, 16);
}

TEST(ModuleOutputs, OfOneModuleEqualItsProduct) {
  Submission submission = MlpSubmission(kWidth, 10, 2);
  submission.seed = 3;
  const HostTensor x = Ramp({5, kWidth});
  const std::map<std::string, HostTensor> outputs = OutputsAt(submission, 2, "x", x);
  const absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok());
  const FlatState* weight = nullptr;
  const FlatState* bias = nullptr;
  for (const PlacedState& placed : compiled->states) {
    if (placed.state.path == "w1.weight") weight = &placed.state;
    if (placed.state.path == "w1.bias") bias = &placed.state;
  }
  ASSERT_NE(weight, nullptr);
  ASSERT_NE(bias, nullptr);
  const auto initial = [&](const FlatState& state, int64_t at) {
    return InitialValue(state.initializer, submission.seed, state.path, state.shape, at);
  };
  const HostTensor& h = outputs.at("w1:output");
  ASSERT_EQ(h.shape, (Shape{5, 10}));
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t column = 0; column < 10; ++column) {
      double sum = initial(*bias, column);
      for (int64_t k = 0; k < kWidth; ++k) {
        sum += x.data<float>()[row * kWidth + k] * initial(*weight, column * kWidth + k);
      }
      EXPECT_NEAR(h.data<float>()[row * 10 + column], sum, 1e-5) << row << ", " << column;
    }
  }
}

TEST(ModuleOutputs, LeaveTheModelsOwnProgramAsItIs) {
  const Submission submission = MlpSubmission(kWidth, 10, 2);
  const HostTensor x = Ramp({4, kWidth});
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(submission), absl::OkStatus());
  const std::string before = cluster.Forward("mlp", {{"x", x}}).outputs.at("y").bytes;
  const std::shared_ptr<const ForwardProgram> program = ModuleOutputsOf(submission);
  const int64_t used = cluster.runtime(0).Usage().used_bytes;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const ClusterAnswer answer = RunWith(cluster, "mlp", "x", x, program);
    ASSERT_EQ(answer.status, absl::OkStatus());
    EXPECT_EQ(answer.outputs.at("y").bytes, before);
    EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, used);  // its memory is not kept
  }
  const ClusterAnswer after = cluster.Forward("mlp", {{"x", x}});
  EXPECT_EQ(after.outputs.size(), 1u);
  EXPECT_EQ(after.outputs.at("y").bytes, before);
}

TEST(ModuleOutputs, AProgramThatDoesNotFitIsRefusedByAllRanks) {
  const Submission submission = MlpSubmission(kWidth, 10, 2);
  const HostTensor x = Ramp({4, kWidth});
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(submission), absl::OkStatus());
  ClusterAnswer answer = RunWith(cluster, "mlp", "x", x, ModuleOutputsOf(MlpSubmission(kWidth, 10, 3)));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("tp=3"));
  answer = RunWith(cluster, "mlp", "x", x, ModuleOutputsOf(MlpSubmission(kWidth, 12, 2)));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("state 'w1"));
  EXPECT_EQ(cluster.Forward("mlp", {{"x", x}}).status, absl::OkStatus());
}

TEST(ModuleOutputs, MemoryThatIsNotThereIsSaidByAllRanks) {
  const Submission submission = MlpSubmission(kWidth, 10, 2);
  const HostTensor x = Ramp({4000, kWidth});
  const std::shared_ptr<const ForwardProgram> program = ModuleOutputsOf(submission);
  const auto bytes = [](const ForwardProgram& of) { return PlanMemory(of, {{"batch", 4000}}, {0})->total_bytes; };
  // The model's program keeps its memory; beside it and the states there is too little for the other.
  const int64_t limit = bytes(CompileForward(submission)->program) + bytes(*program);
  RuntimeCluster cluster(2, [limit](int, std::unique_ptr<worker::Device>) {
    return *worker::CreateCpuDevice({.threads = 1, .memory_limit_bytes = limit});
  });
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(submission), absl::OkStatus());
  ASSERT_EQ(cluster.Forward("mlp", {{"x", x}}).status, absl::OkStatus());
  const ClusterAnswer answer = RunWith(cluster, "mlp", "x", x, program);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kResourceExhausted) << answer.status;
  EXPECT_EQ(cluster.Forward("mlp", {{"x", x}}).status, absl::OkStatus());
}

}  // namespace
}  // namespace tp::testing
