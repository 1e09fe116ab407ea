// Numbers, terms and epochs of commands; aborts and resets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/support/forwarding_device.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;

const std::map<std::string, HostTensor>& Inputs() {
  static const auto* inputs =
      new std::map<std::string, HostTensor>{{"x", MakeHostTensor<float>({1, 4}, {1, -2, 3, 0.5})}};
  return *inputs;
}

Command RunCommand(uint64_t term, uint64_t sequence, uint64_t epoch) {
  Command command;
  command.term = term;
  command.sequence = sequence;
  command.order = sequence;
  command.mesh_id = 7;
  command.epoch = epoch;
  const HostTensor& x = Inputs().at("x");
  command.kind = tp::Run{"mlp", {{"x", x.shape, x.bytes, 0}}, 0};
  return command;
}

class OneRank : public ::testing::Test {
 protected:
  OneRank() : cluster_(1) {
    EXPECT_EQ(cluster_.Connect(), absl::OkStatus());                     // command 1
    EXPECT_EQ(cluster_.Load(MlpSubmission(4, 4, 1)), absl::OkStatus());  // command 2
  }
  Ack Answer(Command command) {
    cluster_.runtime(0).Enqueue(std::move(command));
    return cluster_.sink(0).NextAck();
  }
  RuntimeCluster cluster_;
};

TEST_F(OneRank, AGapIsRefusedAndNamesWhatIsExpected) {
  const Ack gap = Answer(RunCommand(1, 4, 1));
  EXPECT_EQ(gap.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(gap.status.message()), HasSubstr("expected sequence 3 of term 1, got sequence 4"));
  EXPECT_EQ(Answer(RunCommand(1, 3, 1)).status, absl::OkStatus());
}

TEST_F(OneRank, ARepeatIsAnsweredWithoutRunningAgain) {
  const Ack first = Answer(RunCommand(1, 3, 1));
  ASSERT_EQ(first.status, absl::OkStatus());
  Command repeat = RunCommand(1, 3, 1);
  std::get<tp::Run>(repeat.kind).model = "not looked at";
  const Ack again = Answer(repeat);
  EXPECT_EQ(again.status, absl::OkStatus());
  ASSERT_EQ(again.run.blocks.size(), 1u);
  EXPECT_EQ(again.run.blocks[0].data, first.run.blocks[0].data);
  EXPECT_EQ(cluster_.runtime(0).Usage().completed_sequence, 3u);
}

TEST_F(OneRank, AnotherTermIsRefusedAndDoesNotCount) {
  EXPECT_EQ(Answer(RunCommand(2, 3, 1)).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Answer(RunCommand(1, 3, 1)).status, absl::OkStatus());
}

TEST_F(OneRank, AnotherEpochIsRefusedNamingTheExpectedAndTheStreamGoesOn) {
  const Ack other = Answer(RunCommand(1, 3, 9));
  EXPECT_EQ(other.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status.message()), HasSubstr("expected epoch 1, got 9"));
  EXPECT_EQ(Answer(RunCommand(1, 4, 1)).status, absl::OkStatus());
}

TEST_F(OneRank, ResetDropsAllAndExpectsSequence1OfTheTerm) {
  EXPECT_GT(cluster_.runtime(0).Usage().used_bytes, 0);
  cluster_.runtime(0).Reset(2);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 0);
  EXPECT_EQ(Answer(RunCommand(1, 3, 1)).status.code(), absl::StatusCode::kFailedPrecondition);
  const Ack first = Answer(RunCommand(2, 1, 1));
  EXPECT_THAT(std::string(first.status.message()), HasSubstr("mesh 7 is not connected"));
  EXPECT_EQ(cluster_.runtime(0).Usage().completed_sequence, 1u);
}

TEST_F(OneRank, ReleasingForgetsTheModelAndItsMemory) {
  const int64_t before = cluster_.runtime(0).Usage().used_bytes;
  cluster_.Send([](int) { return Release{"mlp"}; });
  EXPECT_EQ(cluster_.Collect().status, absl::OkStatus());
  EXPECT_LT(cluster_.runtime(0).Usage().used_bytes, before);
  EXPECT_EQ(Answer(RunCommand(1, 4, 1)).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Answer(RunCommand(1, 5, 1)).status.code(), absl::StatusCode::kNotFound);
}

TEST_F(OneRank, AClosedMeshRunsNothing) {
  cluster_.Send([](int) { return CloseMesh{}; });
  EXPECT_EQ(cluster_.Collect().status, absl::OkStatus());
  EXPECT_EQ(Answer(RunCommand(1, 4, 1)).status.code(), absl::StatusCode::kFailedPrecondition);
}

// Tells when a product begins on one rank, and holds it until the test lets go.
class HeldLinear : public ForwardingDevice {
 public:
  HeldLinear(std::unique_ptr<worker::Device> device, std::promise<void>* began, std::shared_future<void> go)
      : ForwardingDevice(std::move(device)), began_(began), go_(std::move(go)) {}
  absl::Status Linear(Stream& s, const In& input, const worker::PackedWeight& weight, const In* bias,
                      const Out& output) override {
    if (began_ != nullptr) std::exchange(began_, nullptr)->set_value();
    go_.wait();
    return ForwardingDevice::Linear(s, input, weight, bias, output);
  }

 private:
  std::promise<void>* began_;
  const std::shared_future<void> go_;
};

TEST(Abort, EndsACommandThatWaitsForAPeerAndTheNextEpochWorks) {
  std::promise<void> began, go;
  const std::shared_future<void> released = go.get_future().share();
  RuntimeCluster cluster(2, [&](int rank, std::unique_ptr<worker::Device> device) -> std::unique_ptr<worker::Device> {
    if (rank != 1) return device;
    return std::make_unique<HeldLinear>(std::move(device), &began, released);
  });
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(4, 4, 2)), absl::OkStatus());
  const HostTensor& x = Inputs().at("x");
  cluster.Send([&](int) { return tp::Run{"mlp", {{"x", x.shape, x.bytes, 0}}, 0}; });
  cluster.Send([&](int) { return tp::Run{"mlp", {{"x", x.shape, x.bytes, 0}}, 0}; });
  began.get_future().wait();
  for (int rank = 0; rank < 2; ++rank) cluster.runtime(rank).AbortEpoch(7, cluster.epoch(), "rank 1 is stuck");
  // Rank 0 returns although its peer still stands.
  const Ack aborted = cluster.sink(0).NextAck();
  EXPECT_EQ(aborted.status.code(), absl::StatusCode::kAborted);
  go.set_value();
  EXPECT_EQ(cluster.sink(1).NextAck().status.code(), absl::StatusCode::kAborted);
  // The command that was queued behind fails too, by name.
  for (int rank = 0; rank < 2; ++rank) {
    const Ack behind = cluster.sink(rank).NextAck();
    EXPECT_EQ(behind.status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(behind.status.message()), HasSubstr("rank 1 is stuck"));
  }
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  EXPECT_EQ(cluster.Forward("mlp", Inputs()).status, absl::OkStatus());
}

TEST(Abort, RanksThatDisagreeAboutTheCommandGetAnErrorNotAHang) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(4, 4, 2)), absl::OkStatus());
  for (int rank = 0; rank < 2; ++rank) {
    Command command = RunCommand(1, 3, 1);
    command.order = 50 + rank;
    cluster.runtime(rank).Enqueue(std::move(command));
  }
  for (int rank = 0; rank < 2; ++rank) {
    const Ack ack = cluster.sink(rank).NextAck();
    EXPECT_EQ(ack.status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(ack.status.message()), HasSubstr("mismatch"));
  }
}

TEST(Abort, EndingTheRuntimesReturnsWhileACommandIsUnderWay) {
  std::promise<void> began, go;
  const std::shared_future<void> released = go.get_future().share();
  auto cluster = std::make_unique<RuntimeCluster>(
      2, [&](int rank, std::unique_ptr<worker::Device> device) -> std::unique_ptr<worker::Device> {
        if (rank != 1) return device;
        return std::make_unique<HeldLinear>(std::move(device), &began, released);
      });
  ASSERT_EQ(cluster->Connect(), absl::OkStatus());
  ASSERT_EQ(cluster->Load(MlpSubmission(4, 4, 2)), absl::OkStatus());
  const HostTensor& x = Inputs().at("x");
  cluster->Send([&](int) { return tp::Run{"mlp", {{"x", x.shape, x.bytes, 0}}, 0}; });
  began.get_future().wait();
  go.set_value();
  cluster.reset();
}

}  // namespace
}  // namespace tp::testing
