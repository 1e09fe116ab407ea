// A worker is killed: its requests fail at once and by name, everything else goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Failure, AKilledWorkerFailsItsRequestsByNameAndOthersAnswer) {
  Cluster cluster(3);
  const std::string model = cluster.SubmitDemo(2);
  cluster.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=1");
  const std::vector<std::string> workers = cluster.WorkersOf(model);
  ASSERT_EQ(workers.size(), 2u);
  ASSERT_THAT(cluster.WorkersOf("mlp"), ::testing::Each(::testing::Not(::testing::AnyOf(workers[0], workers[1]))));
  const int victim = cluster.WorkerPid(workers[1]);
  ASSERT_GT(victim, 0);

  absl::Notification started;
  absl::Status status;
  absl::Time ended;
  std::thread generation([&] {
    status = cluster.Connect()->Generate(
        {.model = model, .prompt = "And God said", .max_new_tokens = 400, .ignore_eos = true},
        [&](const client::GenerateChunk&) {
          if (!started.HasBeenNotified()) started.Notify();
          return true;
        });
    ended = absl::Now();
  });
  started.WaitForNotification();
  const absl::Time killed = absl::Now();
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  generation.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1"), HasSubstr(workers[1])));
  RecordProperty("milliseconds_to_error", static_cast<int>(absl::ToInt64Milliseconds(ended - killed)));
  std::printf("error after %d ms\n", static_cast<int>(absl::ToInt64Milliseconds(ended - killed)));

  EXPECT_EQ(cluster.Tpctl({"status"}).code, 0);
  EXPECT_EQ(cluster.Tpctl({"forward", "mlp", "--input", "x=1,2,3,4,5,6,7,8"}).code, 0);
  const CommandResult lost = cluster.Tpctl({"forward", model, "--input", "ids=256,65"});
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, AllOf(HasSubstr("tpctl: UNAVAILABLE: "), HasSubstr("rank 1")));
  // The survivor is free again: the name can be deleted and a new model loaded on what is left.
  EXPECT_EQ(cluster.Tpctl({"delete", model}).code, 0);
  cluster.SubmitDemo(2);
  EXPECT_EQ(cluster.Tpctl({"generate", "kjv2", "--prompt", "And", "--max-new-tokens", "4"}).code, 0);
}

TEST(Failure, AWorkerKilledWhileItLoadsFailsTheSubmissionAndLeavesNothing) {
  TemporaryFolder folder;
  const std::string gate = folder.path() + "/gate";
  std::ofstream(gate) << "closed";
  Cluster cluster(2, {},
                  {absl::StrCat("LD_PRELOAD=", TP_SLOW_READS), "TP_SLOW_READS_PATH=deploy/demo/kjv/model",
                   absl::StrCat("TP_SLOW_READS_GATE=", gate)});
  const std::string file = cluster.dir() + "/kjv.pb";
  ASSERT_EQ(cluster.Tpctl({"import", Source("deploy/demo/kjv"), "--tp", "2", "--out", file}).code, 0);
  CommandResult result;
  std::thread submit([&] { result = cluster.Tpctl({"submit", file, "--name", "kjv"}); });
  const auto client = cluster.Connect();
  ASSERT_TRUE(Eventually([&] {
    const auto description = client->GetModel("kjv", false);
    return description.ok() && description->summary.state == "LOADING";
  }));
  kill(cluster.WorkerPid("worker-1"), SIGKILL);
  submit.join();
  std::filesystem::remove(gate);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("tpctl: UNAVAILABLE: "), HasSubstr("worker-1")));
  EXPECT_TRUE(cluster.Tpctl({"models", "--output-format", "json"}).json()["models"].empty());
  cluster.Submit(Source("deploy/demo/mlp.textproto"), "mlp", "tp=1");
}

}  // namespace
}  // namespace tp::testing
