// Several clients at once: answers stay right, nothing waits for what it does not need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/checkpoint/safetensors.h"
#include "common/rpc/channel.h"
#include "tests/support/cluster.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::testing {
namespace {

using client::GenerateChunk;

std::vector<client::NamedTensor> Ids(const HostTensor& ids) {
  std::vector<client::NamedTensor> inputs = {{"ids", ids}};
  inputs[0].tensor.shape = {1, ids.shape[0]};
  return inputs;
}

TEST(Concurrency, TwoClientsWithFiftyForwardsEachGetOneHundredRightAnswers) {
  Cluster cluster(2);
  const std::string model = cluster.SubmitDemo(2);
  auto reference = ReadSafetensors(Source("deploy/demo/kjv/reference.safetensors"));
  ASSERT_TRUE(reference.ok());
  std::atomic<int> right = 0;
  auto run = [&](int first) {
    const auto client = cluster.Connect();
    for (int i = 0; i < 50; ++i) {
      const int which = (first + i) % 5;
      auto result = client->Forward(model, Ids(reference->at(absl::StrCat("ids_", which))));
      ASSERT_TRUE(result.ok()) << result.status();
      const HostTensor& expected = reference->at(absl::StrCat("logits_", which));
      double largest = 0;
      ASSERT_EQ(ElementCount(result->outputs[0].tensor.shape), ElementCount(expected.shape));
      for (int64_t j = 0; j < ElementCount(expected.shape); ++j)
        largest = std::max(
            largest, std::abs(double{result->outputs[0].tensor.data<float>()[j]} - double{expected.data<float>()[j]}));
      if (largest <= 1e-4) ++right;
    }
  };
  std::thread a(run, 0), b(run, 2);
  a.join();
  b.join();
  EXPECT_EQ(right, 100);
}

TEST(Concurrency, TwoGenerationsOnOneModelInterleave) {
  Cluster cluster(2);
  const std::string model = cluster.SubmitDemo(2);
  absl::Notification first_started;
  std::atomic<bool> first_done = false, second_began_before_first_ended = false;
  std::vector<int64_t> first_tokens, second_tokens;
  std::thread first([&] {
    const absl::Status status = cluster.Connect()->Generate(
        {.model = model, .prompt = "And God said", .max_new_tokens = 400, .ignore_eos = true},
        [&](const GenerateChunk& chunk) {
          first_tokens.insert(first_tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
          if (!first_started.HasBeenNotified()) first_started.Notify();
          return true;
        });
    first_done = true;
    EXPECT_TRUE(status.ok()) << status;
  });
  first_started.WaitForNotification();
  const absl::Status status = cluster.Connect()->Generate(
      {.model = model, .prompt = "In the beginning", .max_new_tokens = 64, .ignore_eos = true},
      [&](const GenerateChunk& chunk) {
        if (second_tokens.empty() && !first_done) second_began_before_first_ended = true;
        second_tokens.insert(second_tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
  first.join();
  EXPECT_TRUE(second_began_before_first_ended);
  EXPECT_EQ(first_tokens.size(), 400u);
  const nlohmann::json reference = nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")));
  const std::vector<int64_t> one = reference["cases"][0]["greedy"], two = reference["cases"][1]["greedy"];
  EXPECT_EQ(std::vector<int64_t>(first_tokens.begin(), first_tokens.begin() + 64), one);
  EXPECT_EQ(second_tokens, two);
}

// Runs `meanwhile` while `model` generates 400 tokens; false where the generation ended first.
bool DuringAGeneration(const Cluster& cluster, const std::string& model, const std::function<void()>& meanwhile) {
  absl::Notification started;
  std::atomic<bool> done = false;
  std::thread generation([&] {
    const absl::Status status = cluster.Connect()->Generate(
        {.model = model, .prompt = "And God said", .max_new_tokens = 400, .ignore_eos = true},
        [&](const GenerateChunk&) {
          if (!started.HasBeenNotified()) started.Notify();
          return true;
        });
    done = true;
    EXPECT_TRUE(status.ok()) << status;
  });
  started.WaitForNotification();
  meanwhile();
  const bool in_time = !done;
  generation.join();
  return in_time;
}

TEST(Concurrency, AForwardAnswersWhileAnotherModelGenerates) {
  Cluster cluster(2);
  const std::string model = cluster.SubmitDemo(2);
  cluster.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
  const auto client = cluster.Connect();
  const std::vector<client::NamedTensor> x = {{"x", MakeHostTensor<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8})}};
  EXPECT_TRUE(DuringAGeneration(cluster, model, [&] {
    const auto result = client->Forward("mlp", x);
    EXPECT_TRUE(result.ok()) << result.status();
  }));
}

TEST(Concurrency, ASlowUploadHoldsUpNothing) {
  Cluster cluster(2);
  const std::string model = cluster.SubmitDemo(2);
  cluster.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
  // A submission that is sent up to its middle only, and then stands still.
  std::stringstream file;
  file << std::ifstream(absl::StrCat(cluster.dir(), "/", model, ".pb")).rdbuf();
  const std::string bytes = file.str();
  auto stub = v1::CoordinatorService::NewStub(CreateChannel(cluster.server()));
  grpc::ClientContext context;
  v1::SubmitResponse response;
  auto writer = stub->Submit(&context, &response);
  v1::SubmitRequest request;
  request.mutable_header()->set_name("slow");
  request.mutable_header()->set_request_id("slow-upload");
  request.mutable_header()->set_size_bytes(bytes.size());
  ASSERT_TRUE(writer->Write(request));
  auto send = [&](size_t begin, size_t end) {
    v1::SubmitRequest piece;
    piece.mutable_chunk()->set_offset(begin);
    piece.mutable_chunk()->set_data(bytes.substr(begin, end - begin));
    piece.mutable_chunk()->set_crc32(Crc32(piece.chunk().data()));
    return writer->Write(piece);
  };
  ASSERT_TRUE(send(0, bytes.size() / 2));
  const std::vector<client::NamedTensor> x = {{"x", MakeHostTensor<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8})}};
  EXPECT_TRUE(DuringAGeneration(cluster, model, [&] {
    const auto result = cluster.Connect()->Forward("mlp", x);
    EXPECT_TRUE(result.ok()) << result.status();
  }));
  // The rest arrives, and the submission is as good as any.
  ASSERT_TRUE(send(bytes.size() / 2, bytes.size()));
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.model().name(), "slow");
  EXPECT_EQ(response.model().state(), v1::MODEL_STATE_READY);
}

TEST(Concurrency, AnUploadThatIsGivenUpLeavesNothing) {
  Cluster cluster(1);
  {
    auto stub = v1::CoordinatorService::NewStub(CreateChannel(cluster.server()));
    grpc::ClientContext context;
    v1::SubmitResponse response;
    auto writer = stub->Submit(&context, &response);
    v1::SubmitRequest request;
    request.mutable_header()->set_request_id("given-up");
    request.mutable_header()->set_size_bytes(1000);
    ASSERT_TRUE(writer->Write(request));
    context.TryCancel();
    EXPECT_FALSE(writer->Finish().ok());
  }
  EXPECT_TRUE(cluster.Tpctl({"models", "--output-format", "json"}).json()["models"].empty());
  cluster.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=1");
}

TEST(Concurrency, ASlowLoaderHoldsUpNothing) {
  TemporaryFolder slow;
  std::filesystem::copy(Source("deploy/demo/kjv"), slow.path() + "/kjv-slow", std::filesystem::copy_options::recursive);
  const std::string gate = slow.path() + "/gate";
  std::ofstream(gate) << "closed";
  Cluster cluster(2, {},
                  {absl::StrCat("LD_PRELOAD=", TP_SLOW_READS), "TP_SLOW_READS_PATH=kjv-slow",
                   absl::StrCat("TP_SLOW_READS_GATE=", gate)});
  const std::string model = cluster.SubmitDemo(2);
  cluster.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=2");
  const std::string file = cluster.dir() + "/slow.pb";
  ASSERT_EQ(cluster.Tpctl({"import", slow.path() + "/kjv-slow", "--tp", "2", "--out", file}).code, 0);
  std::atomic<bool> loaded = false;
  std::thread loader([&] {
    cluster.Submit(file, "slow", "tp=2");
    loaded = true;
  });
  const auto client = cluster.Connect();
  ASSERT_TRUE(Eventually([&] {
    const auto description = client->GetModel("slow", false);
    return description.ok() && description->summary.state == "LOADING";
  }));
  const std::vector<client::NamedTensor> x = {{"x", MakeHostTensor<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8})}};
  for (int i = 0; i < 3; ++i) {
    const auto result = client->Forward("mlp", x);
    EXPECT_TRUE(result.ok()) << result.status();
  }
  EXPECT_TRUE(DuringAGeneration(cluster, model, [&] {
    const auto result = client->Forward("mlp", x);
    EXPECT_TRUE(result.ok()) << result.status();
  }));
  EXPECT_FALSE(loaded);
  std::filesystem::remove(gate);
  loader.join();
  EXPECT_TRUE(loaded);
  EXPECT_EQ(cluster.Tpctl({"generate", "slow", "--prompt", "And", "--max-new-tokens", "4"}).code, 0);
}

TEST(Concurrency, AClientThatLeavesEndsItsGeneration) {
  Cluster cluster(2);
  const std::string model = cluster.SubmitDemo(2);
  const absl::Status status =
      cluster.Connect()->Generate({.model = model, .prompt = "And God said", .max_new_tokens = 400, .ignore_eos = true},
                                  [&](const GenerateChunk&) { return false; });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return cluster.Tpctl({"status", "--output-format", "json"}).json()["requests"] == 0; }));
  EXPECT_EQ(cluster.Tpctl({"generate", model, "--prompt", "And", "--max-new-tokens", "4"}).code, 0);
}

}  // namespace
}  // namespace tp::testing
