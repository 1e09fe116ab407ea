// Stages and their commits: loads from files, slow and failing ones, transfers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "common/checkpoint/safetensors.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"
#include "worker/weights/weight_file.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NewFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tp_stage_XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

// Bias-free product by hand: y = softmax(x + w2 relu(w1 x)) with all states in a file.
Submission FromFile(const std::string& file, int degree) {
  Submission submission = MlpSubmission(2, 3, degree);
  for (const char* name : {"w1.weight", "w1.bias", "w2.weight", "w2.bias"}) {
    WeightSource source;
    source.kind = WeightSource::Kind::kFile;
    source.path = file;
    source.tensor = name;
    submission.weights[name] = source;
  }
  return submission;
}

void WriteWeights(const std::string& file) {
  ASSERT_EQ(WriteSafetensors(file, {{"w1.weight", MakeHostTensor<float>({3, 2}, {1, 0, 0, 1, -1, -1})},
                                    {"w1.bias", MakeHostTensor<float>({3}, {0, 1, 5})},
                                    {"w2.weight", MakeHostTensor<float>({2, 3}, {1, 0, 1, 0, 1, 0})},
                                    {"w2.bias", MakeHostTensor<float>({2}, {0, 3})}}),
            absl::OkStatus());
}

TEST(Load, FromFilesReadsEachRanksOwnSlices) {
  const std::string folder = NewFolder();
  WriteWeights(folder + "/w.safetensors");
  for (int ranks : {1, 2, 3}) {
    RuntimeCluster cluster(ranks, nullptr, {.model_root = folder});
    ASSERT_EQ(cluster.Connect(), absl::OkStatus());
    const Submission submission = FromFile(folder + "/w.safetensors", ranks);
    const auto compiled = CompileForward(submission);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto results = cluster.RunStages([&](int rank) {
      return Stage{0, 0, cluster.MakeLoad(*compiled, submission, rank, 0)};
    });
    for (const StageResult& result : results) {
      ASSERT_EQ(result.status, absl::OkStatus());
      EXPECT_GE(result.bytes_read, result.parameter_bytes);
      EXPECT_LE(result.bytes_read, 4 * (6 + 3 + 6 + 2));
    }
    if (ranks == 3) {
      // A row of w1, an element of its bias, a column of w2 (one span of 16 bytes), all of w2's bias.
      EXPECT_EQ(results[0].parameter_bytes, 4 * (2 + 1 + 2 + 2));
      EXPECT_EQ(results[0].bytes_read, 8 + 4 + 16 + 8);
      EXPECT_EQ(cluster.sink(0).last_progress(), results[0].bytes_read);
    }
    ASSERT_EQ(cluster.Load(submission), absl::OkStatus());
    const ClusterAnswer answer = cluster.Forward("mlp", {{"x", MakeHostTensor<float>({1, 2}, {1, 2})}});
    ASSERT_EQ(answer.status, absl::OkStatus());
    // relu(w1 x + b1) = [1, 3, 2]; w2 of it + b2 = [3, 6]; + x = [4, 8].
    const float* y = answer.outputs.at("y").data<float>();
    EXPECT_NEAR(y[0], 1 / (1 + std::exp(4.0)), 1e-6);
    EXPECT_NEAR(y[1], 1 / (1 + std::exp(-4.0)), 1e-6);
  }
  std::filesystem::remove_all(folder);
}

TEST(Load, AFailureNamesFileAndTensorAndFreesAll) {
  const std::string folder = NewFolder();
  ASSERT_EQ(
      WriteSafetensors(folder + "/w.safetensors", {{"w1.weight", MakeHostTensor<float>({3, 2}, {1, 0, 0, 1, 2, 3})}}),
      absl::OkStatus());
  RuntimeCluster cluster(1, nullptr, {.model_root = folder});
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  const absl::Status status = cluster.Load(FromFile(folder + "/w.safetensors", 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder + "/w.safetensors"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("w1.bias"));
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 0);
  EXPECT_EQ(cluster.Load(FromFile("/etc/hostname", 1)).code(), absl::StatusCode::kPermissionDenied);
  std::filesystem::remove_all(folder);
}

TEST(Load, AnotherFingerprintIsRefused) {
  RuntimeCluster cluster(1);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  const Submission submission = MlpSubmission(2, 3, 1);
  const auto compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok());
  const auto results = cluster.RunStages([&](int rank) {
    StageLoad load = cluster.MakeLoad(*compiled, submission, rank, 0);
    load.fingerprint[0] = load.fingerprint[0] == '0' ? '1' : '0';
    return Stage{0, 0, load};
  });
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("fingerprint mismatch"));
}

TEST(Load, AMissingStateIsRefused) {
  RuntimeCluster cluster(1);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  const Submission submission = MlpSubmission(2, 3, 1);
  const auto compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok());
  const auto results = cluster.RunStages([&](int rank) {
    StageLoad load = cluster.MakeLoad(*compiled, submission, rank, 0);
    load.states.pop_back();
    return Stage{0, 0, load};
  });
  EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("was not loaded"));
}

// Reads nothing until the test lets go.
class SlowFiles : public worker::WeightFiles {
 public:
  SlowFiles(std::unique_ptr<worker::WeightFiles> files, std::promise<void>* began, std::shared_future<void> go)
      : files_(std::move(files)), began_(began), go_(std::move(go)) {}
  absl::StatusOr<std::unique_ptr<worker::WeightFile>> Open(const std::string& path) override {
    if (began_ != nullptr) std::exchange(began_, nullptr)->set_value();
    go_.wait();
    return files_->Open(path);
  }

 private:
  const std::unique_ptr<worker::WeightFiles> files_;
  std::promise<void>* began_;
  const std::shared_future<void> go_;
};

TEST(Load, ASlowOneHoldsUpNoCommandAndCanBeDropped) {
  const std::string folder = NewFolder();
  WriteWeights(folder + "/w.safetensors");
  std::promise<void> began, go;
  SlowFiles slow(worker::CreateRootedWeightFiles(folder), &began, go.get_future().share());
  {
    RuntimeCluster cluster(1, nullptr, {.files = &slow});
    ASSERT_EQ(cluster.Connect(), absl::OkStatus());
    Submission quick = MlpSubmission(2, 3, 1);
    quick.name = "quick";
    ASSERT_EQ(cluster.Load(quick), absl::OkStatus());
    const Submission submission = FromFile(folder + "/w.safetensors", 1);
    const auto compiled = CompileForward(submission);
    ASSERT_TRUE(compiled.ok());
    const uint64_t id = cluster.NextStageId();
    cluster.runtime(0).StartStage({id, 1, cluster.MakeLoad(*compiled, submission, 0, 0)});
    began.get_future().wait();
    EXPECT_EQ(cluster.Forward("quick", {{"x", MakeHostTensor<float>({1, 2}, {1, 2})}}).status, absl::OkStatus());
    cluster.Send([&](int) { return Commit{{id}}; });
    EXPECT_THAT(std::string(cluster.Collect().status.message()), HasSubstr("under way"));
    cluster.runtime(0).DropStage(id);
    go.set_value();
    EXPECT_EQ(cluster.sink(0).ResultOf(id).status.code(), absl::StatusCode::kCancelled);
    cluster.Send([&](int) { return Commit{{id}}; });
    EXPECT_EQ(cluster.Collect().status.code(), absl::StatusCode::kFailedPrecondition);
  }
  std::filesystem::remove_all(folder);
}

TEST(Receive, GivesARunItsInput) {
  RuntimeCluster cluster(1);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(2, 3, 1)), absl::OkStatus());
  const HostTensor x = MakeHostTensor<float>({1, 2}, {1, 2});
  const uint64_t id = cluster.NextStageId();
  cluster.runtime(0).StartStage({id, 1, StageReceive{55, 8}});
  EXPECT_THAT(cluster.sink(0).wanted(), ElementsAre(id));
  cluster.runtime(0).ReceiveData(id, 55, x.bytes.substr(0, 3), false, absl::OkStatus());
  cluster.Send([&](int) { return tp::Run{"mlp", {{"x", {1, 2}, {}, id}}, 0}; });
  EXPECT_THAT(std::string(cluster.Collect().status.message()), HasSubstr("under way"));
  cluster.runtime(0).ReceiveData(id, 55, x.bytes.substr(3), true, absl::OkStatus());
  EXPECT_EQ(cluster.sink(0).ResultOf(id).status, absl::OkStatus());
  cluster.Send([&](int) { return tp::Run{"mlp", {{"x", {1, 2}, {}, id}}, 0}; });
  const ClusterAnswer staged = cluster.Collect();
  ASSERT_EQ(staged.status, absl::OkStatus());
  EXPECT_EQ(staged.outputs, cluster.Forward("mlp", {{"x", x}}).outputs);
}

TEST(Receive, AnotherSizeOrAFailureIsTheResult) {
  RuntimeCluster cluster(1);
  cluster.runtime(0).StartStage({1, 1, StageReceive{5, 8}});
  cluster.runtime(0).ReceiveData(1, 5, "short", true, absl::OkStatus());
  EXPECT_THAT(std::string(cluster.sink(0).ResultOf(1).status.message()), HasSubstr("expected 8 bytes, got 5"));
  cluster.runtime(0).StartStage({2, 1, StageReceive{6, 8}});
  cluster.runtime(0).ReceiveData(2, 6, "12", false, absl::UnavailableError("the client is gone"));
  EXPECT_EQ(cluster.sink(0).ResultOf(2).status.code(), absl::StatusCode::kUnavailable);
}

TEST(Stage, AnotherTermAndAConnectWithoutAListenAreRefused) {
  RuntimeCluster cluster(1);
  cluster.runtime(0).StartStage({1, 9, StageListen{7, 1, 0, 1}});
  EXPECT_EQ(cluster.sink(0).ResultOf(1).status.code(), absl::StatusCode::kFailedPrecondition);
  cluster.runtime(0).StartStage({2, 1, StageConnect{7, 1, {"x"}, absl::Seconds(1)}});
  EXPECT_EQ(cluster.sink(0).ResultOf(2).status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Stage, AbortingAnEpochEndsAConnectThatWaits) {
  RuntimeCluster cluster(2);
  cluster.runtime(0).StartStage({1, 1, StageListen{7, 1, 0, 2}});
  cluster.runtime(1).StartStage({1, 1, StageListen{7, 1, 1, 2}});
  const std::vector<std::string> addresses{cluster.sink(0).ResultOf(1).address, cluster.sink(1).ResultOf(1).address};
  cluster.runtime(0).StartStage({2, 1, StageConnect{7, 1, addresses, absl::Seconds(50)}});
  cluster.runtime(0).AbortEpoch(7, 1, "rank 1 is gone");
  // Aborted while it waits, or before it began.
  EXPECT_FALSE(cluster.sink(0).ResultOf(2).status.ok());
}

}  // namespace
}  // namespace tp::testing
