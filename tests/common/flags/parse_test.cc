// Where an option's value comes from, and what is told about wrong ones.
#include "common/flags/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <map>

namespace tp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

using Map = std::map<std::string, std::string>;

// Sets variables for as long as it lives.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }

 private:
  const std::map<std::string, std::string> variables_;
};

// Some options of a worker.
struct Parsed {
  std::string server = "", id = "default";
  int threads = 7;
  double time_scale = 1;
  bool insecure = false, graphs = true;
  std::optional<int> exit;
  std::string out, err;
};

Parsed Parse(std::vector<std::string> words) {
  Parsed parsed;
  CLI::App app("A worker", "tp-worker");
  app.set_version_flag("--version", "1.2.3");
  app.add_option("--server", parsed.server, "Coordinator")->required();
  app.add_option("--id", parsed.id, "Name");
  app.add_option("--threads", parsed.threads, "Threads")->check(CLI::Range(1, 16));
  app.add_option("--time-scale", parsed.time_scale, "Scale")->check(Between(0.1, 1000));
  app.add_flag("--insecure", parsed.insecure, "Plain");
  app.add_flag("!--no-graphs", parsed.graphs, "No graphs");
  words.insert(words.begin(), "tp-worker");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  CaptureStderr();
  CaptureStdout();
  parsed.exit = ParseFlags(static_cast<int>(argv.size()), argv.data(), ConfigKind::kWorker, &app);
  parsed.out = GetCapturedStdout();
  parsed.err = GetCapturedStderr();
  return parsed;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ParseFlags, TheCommandLineGoesBeforeVariablesAndTheseBeforeTheFile) {
  const std::string file = WriteFile("order.textproto", R"(server: "file:1" id: "file" threads: 2 time_scale: 0.3)");
  const Variables variables(Map{{"TP_SERVER", "variable:1"}, {"TP_ID", "variable"}, {"TP_THREADS", ""}});
  const Parsed parsed = Parse({"--config", file, "--server", "flag:1"});
  ASSERT_EQ(parsed.exit, std::nullopt) << parsed.err;
  EXPECT_EQ(parsed.server, "flag:1");
  EXPECT_EQ(parsed.id, "variable");
  EXPECT_EQ(parsed.threads, 2);  // an empty variable is none
  EXPECT_EQ(parsed.time_scale, 0.3);
  EXPECT_TRUE(parsed.graphs);
}

TEST(ParseFlags, WhatIsRequiredComesFromAnywhere) {
  EXPECT_EQ(Parse({"--server", "flag:1"}).exit, std::nullopt);
  {
    const Variables variables(Map{{"TP_SERVER", "variable:1"}});
    EXPECT_EQ(Parse({}).exit, std::nullopt);
  }
  const Variables variables(Map{{"TP_CONFIG", WriteFile("server.textproto", R"(server: "file:1")")}});
  const Parsed parsed = Parse({});
  EXPECT_EQ(parsed.exit, std::nullopt) << parsed.err;
  EXPECT_EQ(parsed.server, "file:1");
}

TEST(ParseFlags, WhatIsRequiredAndMissingIsToldWithItsNames) {
  const Parsed parsed = Parse({});
  EXPECT_EQ(parsed.exit, 2);
  EXPECT_EQ(parsed.err, "tp-worker: --server is required: as an option, as TP_SERVER or in the file of --config\n");
}

// A file that can't be read may hold it, and a wrong value is not a missing one.
TEST(ParseFlags, WhatIsRequiredIsNotMissingWhereAnotherFaultHidesIt) {
  const Parsed parsed = Parse({"--config", WriteFile("hides.textproto", "server: \"file:1\"\nthredas: 1")});
  EXPECT_EQ(parsed.exit, 2);
  EXPECT_THAT(parsed.err, HasSubstr("no field 'thredas'"));
  EXPECT_THAT(parsed.err, Not(HasSubstr("is required")));
}

TEST(ParseFlags, FlagsWithoutValueAreTrueOrFalseElsewhere) {
  {
    const Variables variables(Map{{"TP_INSECURE", "1"}, {"TP_NO_GRAPHS", "true"}});
    const Parsed set = Parse({"--server", "a:1"});
    EXPECT_TRUE(set.insecure);
    EXPECT_FALSE(set.graphs);
    EXPECT_FALSE(Parse({"--server", "a:1", "--insecure=false"}).insecure);
  }
  {
    const Variables variables(Map{{"TP_INSECURE", "false"}, {"TP_NO_GRAPHS", "0"}});
    const Parsed set = Parse({"--server", "a:1"});
    EXPECT_FALSE(set.insecure);
    EXPECT_TRUE(set.graphs);
  }
  const Parsed file =
      Parse({"--server", "a:1", "--config", WriteFile("flags.textproto", "insecure: true\nno_graphs: true")});
  EXPECT_TRUE(file.insecure);
  EXPECT_FALSE(file.graphs);
  const Parsed off = Parse({"--server", "a:1", "--config", WriteFile("off.textproto", "no_graphs: false")});
  EXPECT_TRUE(off.graphs);
}

TEST(ParseFlags, WrongValuesAreAllToldWithTheirPlace) {
  const std::string file = WriteFile("wrong.textproto", "id: \"a\"\n  threads: 99");
  const Variables variables(Map{{"TP_TIME_SCALE", "abc"}, {"TP_INSECURE", "maybe"}, {"TP_SERVER", "a:1"}});
  const Parsed parsed = Parse({"--config", file});
  EXPECT_EQ(parsed.exit, 2);
  EXPECT_THAT(parsed.err, AllOf(HasSubstr("tp-worker: TP_TIME_SCALE=abc: must be a number from 0.1 to 1000\n"),
                                HasSubstr("tp-worker: TP_INSECURE=maybe: "),
                                HasSubstr("tp-worker: " + file + ":2:3: threads 99: ")));
  // What the command line overrides does not matter.
  EXPECT_EQ(Parse({"--config", file, "--threads", "3", "--time-scale", "2", "--insecure"}).exit, std::nullopt);
}

TEST(ParseFlags, WrongFilesAreTold) {
  const Parsed missing = Parse({"--server", "a:1", "--config", "/nowhere/worker.textproto"});
  EXPECT_EQ(missing.exit, 2);
  EXPECT_THAT(missing.err, HasSubstr("tp-worker: --config: "));
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/worker.textproto"));
  const Parsed folder = Parse({"--server", "a:1", "--config", "/tmp"});
  EXPECT_EQ(folder.exit, 2);
  const std::string file = WriteFile("unknown.textproto", "\ntreads: 3\nlisten: 4");
  const Parsed unknown = Parse({"--server", "a:1", "--config", file});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_THAT(unknown.err,
              AllOf(HasSubstr(file + ":2:7: no field 'treads'; nearest: threads"), HasSubstr(file + ":3:")));
  // A field of the message for which this program has no option.
  const Parsed none = Parse({"--server", "a:1", "--config", WriteFile("none.textproto", "tf32: true")});
  EXPECT_EQ(none.exit, 2);
  EXPECT_THAT(none.err, HasSubstr("none.textproto:1:1: there is no --tf32"));
}

TEST(ParseFlags, AWrongCommandLineIsToldAsEver) {
  const Variables variables(Map{{"TP_SERVER", "a:1"}});
  EXPECT_EQ(Parse({"--threads", "0"}).exit, 2);
  EXPECT_EQ(Parse({"--nothing"}).exit, 2);
  EXPECT_EQ(Parse({"word"}).exit, 2);
  EXPECT_EQ(Parse({"--time-scale", "nan"}).exit, 2);
}

TEST(ParseFlags, HelpNamesEveryVariableAndTheOrder) {
  const Variables variables(Map{{"TP_TIME_SCALE", "abc"}});  // must not keep anyone from reading it
  const Parsed help = Parse({"--help"});
  EXPECT_EQ(help.exit, 0);
  for (const char* variable : {"TP_SERVER", "TP_ID", "TP_THREADS", "TP_TIME_SCALE", "TP_INSECURE", "TP_NO_GRAPHS",
                               "TP_CONFIG", "An option goes before its variable", "tp.v1.WorkerConfig", "REQUIRED"}) {
    EXPECT_THAT(help.out, HasSubstr(variable));
  }
  const Parsed version = Parse({"--version"});
  EXPECT_EQ(version.exit, 0);
  EXPECT_EQ(version.out, "1.2.3\n");
}

TEST(Between, TakesNumbersInItsRangeOnly) {
  const auto check = Between(0, 10);
  for (const char* right : {"0", "10", "2.5", "1e1"}) EXPECT_EQ(check(right), "") << right;
  for (const char* wrong : {"-1", "10.1", "nan", "inf", "", "two"}) {
    EXPECT_EQ(check(wrong), "must be a number from 0 to 10") << wrong;
  }
}

}  // namespace
}  // namespace tp
