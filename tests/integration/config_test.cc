// Where the programs' options come from: the command line, TP_ variables, a file; JSON logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

std::string Write(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.path() + "/" + name) << text;
  return folder.path() + "/" + name;
}

// HOST:PORT that a coordinator wrote to its --endpoint-file.
std::string AwaitEndpoint(const std::string& file) {
  std::string server;
  TP_CHECK(Eventually([&] {
    std::ifstream text(file);
    return static_cast<bool>(std::getline(text, server)) && !server.empty();
  }));
  return server;
}

// Ids of the workers, once there are `count`.
Words AwaitWorkers(const std::string& server, size_t count) {
  Words ids;
  EXPECT_TRUE(Eventually([&] {
    const CommandResult workers =
        RunCommand({Program("tpctl"), "--server", server, "workers", "--output-format", "json"});
    if (workers.code != 0) return false;
    const nlohmann::json list = workers.json()["workers"];
    ids.clear();
    for (const nlohmann::json& worker : list) ids.push_back(worker["id"]);
    return list.size() == count;
  }));
  return ids;
}

// The objects that a program logged before SIGTERM ended it.
std::vector<nlohmann::json> JsonLog(Process* process) {
  kill(process->pid(), SIGTERM);
  const CommandResult result = process->Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<nlohmann::json> objects;
  std::stringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(objects.back().is_object() && objects.back().size() == 4) << line;
    for (const char* key : {"time", "level", "program", "message"}) EXPECT_TRUE(objects.back().contains(key)) << line;
  }
  EXPECT_FALSE(objects.empty());
  return objects;
}

TEST(Config, FilesAloneStartBothProgramsAndTheyLogJson) {
  TemporaryFolder folder;
  const std::string endpoint = folder.path() + "/endpoint";
  Process coordinator(
      {Program("tp-coordinator"), "--config",
       Write(folder, "coordinator.textproto",
             absl::StrCat("listen: '127.0.0.1:0'\nendpoint_file: '", endpoint, "'\ndata_dir: '", folder.path(),
                          "'\nlog_format: 'json' log_level: 'debug'\ndrain_seconds: 0.5\n"))});
  const std::string server = AwaitEndpoint(endpoint);
  Process worker({Program("tp-worker"), "--config",
                  Write(folder, "worker.textproto",
                        absl::StrCat("# A worker.\nserver: '", server,
                                     "'\nid: 'of-file'\nthreads: 1\nno_graphs: true\nlog_format: 'json'\n"))});
  EXPECT_THAT(AwaitWorkers(server, 1), ElementsAre("of-file"));
  std::ifstream database(folder.path() + "/coordinator.db");
  EXPECT_TRUE(database.good());

  const std::vector<nlohmann::json> of_worker = JsonLog(&worker), of_coordinator = JsonLog(&coordinator);
  EXPECT_EQ(of_worker[0]["program"], "tp-worker");
  EXPECT_EQ(of_worker[0]["level"], "info");
  EXPECT_THAT(of_worker[0]["message"].get<std::string>(), StartsWith("worker of-file dials " + server));
  EXPECT_EQ(of_coordinator[0]["program"], "tp-coordinator");
  EXPECT_THAT(of_coordinator[0]["message"].get<std::string>(), HasSubstr("serves at " + server));
}

TEST(Config, VariablesAloneStartBothPrograms) {
  TemporaryFolder folder;
  const std::string endpoint = folder.path() + "/endpoint";
  Process coordinator({Program("tp-coordinator")}, {"TP_LISTEN=127.0.0.1:0", "TP_ENDPOINT_FILE=" + endpoint});
  const std::string server = AwaitEndpoint(endpoint);
  Process worker({Program("tp-worker")}, {"TP_SERVER=" + server, "TP_ID=of-variable", "TP_THREADS=1"});
  EXPECT_THAT(AwaitWorkers(server, 1), ElementsAre("of-variable"));
}

TEST(Config, TheCommandLineGoesBeforeVariablesAndTheseBeforeTheFile) {
  TemporaryFolder folder;
  const std::string endpoint = folder.path() + "/endpoint";
  Process coordinator({Program("tp-coordinator"), "--listen", "127.0.0.1:0", "--endpoint-file", endpoint},
                      {"TP_LISTEN=127.0.0.1:1"});
  const std::string server = AwaitEndpoint(endpoint);
  const std::string file =
      Write(folder, "worker.textproto", absl::StrCat("server: '127.0.0.1:1'\nid: 'of-file'\nthreads: 1"));
  Process by_flag({Program("tp-worker"), "--id", "of-flag"},
                  {"TP_CONFIG=" + file, "TP_SERVER=" + server, "TP_ID=of-variable"});
  Process by_variable({Program("tp-worker"), "--config", file}, {"TP_SERVER=" + server, "TP_ID=of-variable"});
  Process by_file({Program("tp-worker"), "--config", file, "--server", server});
  EXPECT_THAT(AwaitWorkers(server, 3), ::testing::UnorderedElementsAre("of-flag", "of-variable", "of-file"));
}

TEST(Config, WrongFilesAndVariablesAreWrongUsage) {
  TemporaryFolder folder;
  const struct {
    std::string program, text, error;
  } wrong[] = {
      {"tp-coordinator", "listen '127.0.0.1:0'", ":1:8: "},
      {"tp-coordinator", "\nlisten: '127.0.0.1:0'\ndrain_secs: 3",
       ":3:11: no field 'drain_secs'; nearest: drain_seconds"},
      {"tp-worker", "server: 'a:1' threads: 'two'", ":1:24: "},
      {"tp-worker", "server: 'a:1'\nthreads: 0", ":2:1: threads 0: "},
      {"tp-worker", "server: 'a:1'\ntime_scale: nan", ":2:1: time-scale nan: must be a number from 0.1 to 1000"},
      {"tp-worker", "threads: 1", "tp-worker: --server is required"},
  };
  for (const auto& [program, text, error] : wrong) {
    const std::string file = Write(folder, "wrong.textproto", text);
    const CommandResult result = RunCommand({Program(program), "--config", file});
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_THAT(result.err, AllOf(StartsWith(program + ": "), HasSubstr(error))) << text;
  }
  const CommandResult missing = RunCommand({Program("tp-coordinator"), "--config", "/nowhere/c.textproto"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/c.textproto"));
  const CommandResult variable = RunCommand({Program("tp-coordinator")}, {"TP_TIME_SCALE=abc"});
  EXPECT_EQ(variable.code, 2);
  EXPECT_EQ(variable.err, "tp-coordinator: TP_TIME_SCALE=abc: must be a number from 0.1 to 1000\n");
}

TEST(Config, WorkersServeNoPlainTextBeyondLoopback) {
  for (const std::string wrong : {"abc", ":70", "127.0.0.1:70000", "127.0.0.1:+5", "127.0.0.1:", "127.0.0.1:0 "}) {
    for (const char* flag : {"--listen", "--metrics-listen"}) {
      const CommandResult result = RunCommand({Program("tp-coordinator"), flag, wrong});
      EXPECT_EQ(result.code, 2);
      EXPECT_THAT(result.err, HasSubstr(absl::StrCat(flag, ": '", wrong, "' is not HOST:PORT")));
    }
    const CommandResult client = RunCommand({Program("tpctl"), "--server", wrong, "status"});
    EXPECT_EQ(client.code, 1);
    EXPECT_THAT(client.err, HasSubstr("'" + wrong + "' is not HOST:PORT"));
  }
  const CommandResult variable = RunCommand({Program("tp-coordinator")}, {"TP_LISTEN=abc"});
  EXPECT_EQ(variable.code, 2);
  EXPECT_THAT(variable.err, HasSubstr("TP_LISTEN"));
  const CommandResult plain = RunCommand({Program("tp-worker"), "--server", "127.0.0.1:1", "--listen", "0.0.0.0:0"});
  EXPECT_EQ(plain.code, 1);
  EXPECT_THAT(plain.err, HasSubstr("--listen 0.0.0.0:0 is not loopback and would serve plain text"));
}

// A cluster on this machine is what its own command line says, whatever the shell was set up for.
TEST(Config, LocalUpKeepsVariablesOfOptionsFromItsPrograms) {
  const Cluster cluster(
      1, {},
      {"TP_CONFIG=/nowhere", "TP_LISTEN=192.0.2.1:1", "TP_METRICS_LISTEN=192.0.2.1:2", "TP_SERVER=x:1", "TP_ID=mine",
       "TP_DATA_DIR=/nowhere", "TP_DEVICE=cuda:7", "TP_COLLECTIVE_HOST=192.0.2.1", "TP_THREADS=none",
       "TP_MODEL_ROOT=/nowhere", "TP_LOG_FORMAT=json", "TP_ENDPOINT_FILE=/nowhere/e"});
  EXPECT_THAT(AwaitWorkers(cluster.server(), 1), ElementsAre("worker-0"));
}

}  // namespace
}  // namespace tp::testing
