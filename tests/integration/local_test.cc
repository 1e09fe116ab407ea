// tpctl local up and down, and what the command line promises to scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;

// A process that has ended may stay in the table until its parent asks for it.
bool Runs(int pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  const size_t name = stat.rfind(')');
  return name != std::string::npos && stat.substr(name + 2, 1) != "Z";
}

TEST(Local, UpHoldsNoDescriptorsAndDownStopsEverything) {
  TemporaryFolder folder;
  const CommandResult up = RunCommand({Program("tpctl"), "local", "up", "--workers", "2", "--dir", folder.path()});
  ASSERT_EQ(up.code, 0) << up.err;
  std::ifstream processes(folder.path() + "/processes");
  std::vector<int> pids;
  std::string line;
  while (std::getline(processes, line)) pids.push_back(std::stoi(line));
  ASSERT_EQ(pids.size(), 3u);
  for (int pid : pids) {
    EXPECT_TRUE(Runs(pid));
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      EXPECT_THAT(target, ::testing::Not(HasSubstr("tp-output"))) << "holds its starter's output";
    }
  }
  const CommandResult again = RunCommand({Program("tpctl"), "local", "up", "--workers", "2", "--dir", folder.path()});
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("tpctl: ALREADY_EXISTS: a cluster runs in"));
  EXPECT_EQ(RunCommand({Program("tpctl"), "local", "down", "--dir", folder.path()}).code, 0);
  for (int pid : pids) EXPECT_FALSE(Runs(pid)) << pid;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/endpoint"));
  const CommandResult none = RunCommand({Program("tpctl"), "local", "down", "--dir", folder.path()});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("tpctl: NOT_FOUND"));
}

TEST(Local, SubmissionsAreThereAgainAfterARestart) {
  TemporaryFolder folder;
  const std::vector<std::string> up = {Program("tpctl"), "local", "up", "--workers", "2", "--dir", folder.path()};
  const std::vector<std::string> down = {Program("tpctl"), "local", "down", "--dir", folder.path()};
  ASSERT_EQ(RunCommand(up).code, 0);
  auto tpctl = [&](std::vector<std::string> words) {
    std::string server;
    std::ifstream(folder.path() + "/endpoint") >> server;
    words.insert(words.begin(), {Program("tpctl"), "--server", server});
    return RunCommand(words);
  };
  ASSERT_EQ(tpctl({"submit", Source("deploy/demo/mlp.textproto"), "--mesh", "tp=2"}).code, 0);
  const std::string first = tpctl({"forward", "mlp", "--input", "x=1,2,3,4,5,6,7,8"}).out;
  ASSERT_EQ(RunCommand(down).code, 0);
  ASSERT_EQ(RunCommand(up).code, 0);
  EXPECT_TRUE(Eventually([&] { return tpctl({"models"}).out.find("READY") != std::string::npos; }));
  const std::string second = tpctl({"forward", "mlp", "--input", "x=1,2,3,4,5,6,7,8"}).out;
  EXPECT_EQ(first.substr(0, first.find("1 collective")), second.substr(0, second.find("1 collective")));
  EXPECT_EQ(tpctl({"status", "--output-format", "json"}).json()["term"], 2);
  ASSERT_EQ(RunCommand(down).code, 0);
}

TEST(Local, ADeadCoordinatorIsNamed) {
  for (const char* command : {"models", "workers", "status"}) {
    const CommandResult result = RunCommand({Program("tpctl"), "--server", "127.0.0.1:1", command});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("tpctl: UNAVAILABLE: no coordinator answers at 127.0.0.1:1"));
  }
  TemporaryFolder folder;
  const CommandResult none =
      RunCommand({Program("tpctl"), "models"}, {"XDG_STATE_HOME=" + folder.path(), "TPCTL_SERVER="});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("tpctl: FAILED_PRECONDITION: no coordinator is named"));
}

TEST(Local, WrongUsageIsExitTwoAndUnbuiltCommandsSaySo) {
  EXPECT_EQ(RunCommand({Program("tpctl")}).code, 2);
  EXPECT_EQ(RunCommand({Program("tpctl"), "no-such-command"}).code, 2);
  EXPECT_EQ(RunCommand({Program("tpctl"), "models", "--no-such-flag"}).code, 2);
  EXPECT_EQ(RunCommand({Program("tpctl"), "generate", "m"}).code, 2);
  EXPECT_EQ(RunCommand({Program("tpctl"), "--help"}).code, 0);
  EXPECT_EQ(RunCommand({Program("tpctl"), "version"}).code, 0);
  const CommandResult unbuilt = RunCommand({Program("tpctl"), "events"});
  EXPECT_EQ(unbuilt.code, 1);
  EXPECT_THAT(unbuilt.err, HasSubstr("tpctl: UNIMPLEMENTED: "));
}

TEST(Local, WorkersWithoutAGpuRefuseCudaBeforeConnecting) {
  const CommandResult result = RunCommand({Program("tp-worker"), "--server", "127.0.0.1:1", "--device", "cuda:0"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cuda"));
}

}  // namespace
}  // namespace tp::testing
