#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/forwarding_device.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"
#include "tests/support/simulator.h"
#include "tests/support/tensor_cluster.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;

HostTensor Ramp(const Shape& shape, float scale) {
  std::vector<float> values;
  for (int64_t i = 0; i < ElementCount(shape); ++i) {
    values.push_back(scale * std::sin(static_cast<float>(3 * i + 1)));
  }
  return MakeHostTensor<float>(shape, values);
}

SimTensor ToSim(const HostTensor& tensor) {
  SimTensor sim{tensor.shape, {}};
  const HostTensor wide = ConvertTo(tensor, DType::kF64);
  for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) sim.values.push_back(wide.data<double>()[i]);
  return sim;
}

// Every output of `submission` equals the simulation in float64, and the counted collectives are the planned ones.
void ExpectForward(const Submission& submission, const std::map<std::string, HostTensor>& inputs, double tolerance) {
  RuntimeCluster cluster(submission.plan.mesh[0].size);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  CompiledModel compiled;
  ASSERT_EQ(cluster.Load(submission, 8, &compiled), absl::OkStatus());
  std::map<std::string, SimTensor> sim_inputs;
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : inputs) {
    sim_inputs[name] = ToSim(tensor);
    shapes[name] = tensor.shape;
  }
  const auto expected = Simulate(compiled.program, InitialStates(compiled, submission.seed), sim_inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int repeat = 0; repeat < 2; ++repeat) {
    const ClusterAnswer answer = cluster.Forward(submission.name, inputs);
    ASSERT_EQ(answer.status, absl::OkStatus());
    ASSERT_EQ(answer.outputs.size(), expected->outputs.size());
    for (const auto& [name, output] : answer.outputs) {
      const SimTensor& want = expected->outputs.at(name);
      ASSERT_EQ(output.shape, want.shape) << name;
      const SimTensor got = ToSim(output);
      for (size_t i = 0; i < got.values.size(); ++i) {
        ASSERT_NEAR(got.values[i], want.values[i], tolerance) << name << " element " << i;
      }
    }
    const auto planned = CollectivesOf(compiled.program, *BindInputs(compiled.program, shapes));
    ASSERT_TRUE(planned.ok());
    for (const Ack& ack : answer.acks) EXPECT_EQ(ack.run.collectives, *planned);
  }
}

class ForwardAtDegree : public ::testing::TestWithParam<int> {};

TEST_P(ForwardAtDegree, MlpEqualsTheSimulation) {
  Submission submission = MlpSubmission(6, 10, GetParam());
  submission.seed = 3;
  ExpectForward(submission, {{"x", Ramp({5, 6}, 2)}}, 1e-5);
}

TEST_P(ForwardAtDegree, NoRowsGiveNoRows) {
  ExpectForward(MlpSubmission(6, 10, GetParam()), {{"x", Ramp({0, 6}, 1)}}, 0);
}

TEST_P(ForwardAtDegree, TwoInputsAndThreeOutputsEqualTheSimulation) {
  Submission submission = TwoByTwoSubmission(5, 7, GetParam());
  submission.seed = 11;
  ExpectForward(submission, {{"a", Ramp({3, 5}, 1)}, {"b", Ramp({3, 5}, -2)}}, 1e-5);
}

TEST_P(ForwardAtDegree, DecoderEqualsTheSimulation) {
  if (GetParam() == 3) GTEST_SKIP() << "8 heads over 4 kv heads have no degree 3";
  Submission submission = DecoderSubmission({.layers = 1, .vocabulary = 31}, GetParam());
  submission.seed = 2;
  ExpectForward(submission, {{"ids", MakeHostTensor<int64_t>({2, 5}, {1, 30, 2, 7, 7, 0, 5, 29, 3, 11})}}, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Degrees, ForwardAtDegree, ::testing::Values(1, 2, 3, 4));

TEST(Forward, EightRanksShareFourKeyValueHeads) {
  Submission submission = DecoderSubmission({.layers = 1, .vocabulary = 31}, 8);
  ExpectForward(submission, {{"ids", MakeHostTensor<int64_t>({1, 3}, {1, 30, 2})}}, 1e-4);
}

TEST(Forward, LargeOutputsAreStreamed) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(64, 4, 2)), absl::OkStatus());
  const ClusterAnswer answer = cluster.Forward("mlp", {{"x", Ramp({512, 64}, 1)}});
  ASSERT_EQ(answer.status, absl::OkStatus());
  ASSERT_EQ(answer.acks[0].run.blocks.size(), 1u);
  EXPECT_TRUE(answer.acks[0].run.blocks[0].streamed);
  EXPECT_TRUE(answer.acks[0].run.blocks[0].data.empty());
  const float* y = answer.outputs.at("y").data<float>();
  double sum = 0;
  for (int i = 0; i < 64; ++i) sum += y[511 * 64 + i];
  EXPECT_NEAR(sum, 1, 1e-5);  // the last row of a softmax
}

TEST(Forward, TensorsOfTheRanksGoInAndEveryRanksBlockComesOut) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(6, 10, 2)), absl::OkStatus());
  const HostTensor x = Ramp({3, 6}, 1);
  const ClusterAnswer full = cluster.Forward("mlp", {{"x", x}});
  ASSERT_EQ(full.status, absl::OkStatus());
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1}), turned = *tensors.Connect("tp=2", {1, 0});
  ASSERT_EQ(tensors.Put(mesh, 7, x, {Placement::Replicate()}), absl::OkStatus());
  ASSERT_EQ(tensors.Put(mesh, 8, x, {Placement::Shard(0)}), absl::OkStatus());
  ASSERT_EQ(tensors.Put(turned, 9, x, {Placement::Replicate()}), absl::OkStatus());
  const auto run = [&](uint64_t tensor_id) {
    cluster.Send([&](int) {
      tp::Run command;
      command.model = "mlp";
      RunInput input;
      input.name = "x";
      input.global_shape = {3, 6};
      input.tensor_id = tensor_id;
      command.inputs = {input};
      command.local_blocks = true;
      return command;
    });
    return cluster.Collect();
  };
  const ClusterAnswer answer = run(7);
  ASSERT_EQ(answer.status, absl::OkStatus());
  for (const Ack& ack : answer.acks) {
    ASSERT_EQ(ack.run.blocks.size(), 1u);  // a copy on each
    EXPECT_EQ(ack.run.blocks[0].data, full.outputs.at("y").bytes);
    EXPECT_EQ(ack.run.blocks[0].offset, (Shape{0, 0}));
  }
  EXPECT_EQ(*tensors.Get(mesh, 7), x);
  const absl::Status cut = run(8).status, moved = run(9).status;
  EXPECT_EQ(cut.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("tp=S(0)"));
  EXPECT_EQ(moved.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(run(10).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(run(7).status, absl::OkStatus());
}

// Fails the n-th product of one rank.
class FailingLinear : public ForwardingDevice {
 public:
  FailingLinear(std::unique_ptr<worker::Device> device, int at) : ForwardingDevice(std::move(device)), left_(at) {}
  absl::Status Linear(Stream& s, const In& input, const worker::PackedWeight& weight, const In* bias,
                      const Out& output) override {
    if (left_-- == 0) return absl::ResourceExhaustedError("no memory for this product");
    return ForwardingDevice::Linear(s, input, weight, bias, output);
  }

 private:
  int left_;
};

TEST(Forward, AFailureOfOneRankIsTheOnlyErrorAndTheNextCommandWorks) {
  RuntimeCluster cluster(3, [](int rank, std::unique_ptr<worker::Device> device) -> std::unique_ptr<worker::Device> {
    if (rank != 1) return device;
    return std::make_unique<FailingLinear>(std::move(device), 0);
  });
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(6, 9, 3)), absl::OkStatus());
  const std::map<std::string, HostTensor> inputs{{"x", Ramp({2, 6}, 1)}};
  const ClusterAnswer failed = cluster.Forward("mlp", inputs);
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failed.status.message()), HasSubstr("w1 (linear): no memory for this product"));
  for (const Ack& ack : failed.acks) {
    EXPECT_EQ(ack.failed_rank, 1);
    EXPECT_FALSE(ack.status.ok());
    EXPECT_TRUE(ack.run.blocks.empty());
  }
  EXPECT_THAT(std::string(failed.acks[0].status.message()), HasSubstr("rank 1"));
  EXPECT_EQ(cluster.Forward("mlp", inputs).status, absl::OkStatus());
}

TEST(Forward, BadInputIsRefusedOnAllRanksAndTheNextCommandWorks) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(6, 8, 2)), absl::OkStatus());
  EXPECT_EQ(cluster.Forward("mlp", {}).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.Forward("mlp", {{"x", Ramp({2, 7}, 1)}}).status.code(), absl::StatusCode::kInvalidArgument);
  cluster.Send([](int rank) { return tp::Run{"mlp", {{"x", {2, 6}, std::string(rank == 0 ? 48 : 44, '\0'), 0}}, 0}; });
  const ClusterAnswer short_block = cluster.Collect();
  EXPECT_EQ(short_block.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(short_block.status.message()), HasSubstr("expected 48 bytes, got 44"));
  EXPECT_EQ(short_block.acks[0].failed_rank, 1);
  EXPECT_EQ(cluster.Forward("mlp", {{"x", Ramp({2, 6}, 1)}}).status, absl::OkStatus());
}

TEST(Forward, AModelThatOneRankHasNotIsNotRun) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  cluster.Send([](int) { return tp::Run{"nobody", {}, 0}; });
  EXPECT_EQ(cluster.Collect().status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tp::testing
