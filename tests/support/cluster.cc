#include "tests/support/cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/check.h"

namespace tp::testing {
namespace {

std::string Drain(int fd) {
  std::string text;
  char buffer[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  return text;
}

// An unnamed file that collects a program's output.
int AnonymousFile() {
  std::string name = (std::filesystem::temp_directory_path() / "tp-output-XXXXXX").string();
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  TP_CHECK(fd >= 0);
  unlink(name.c_str());
  return fd;
}

}  // namespace

nlohmann::json CommandResult::json() const {
  nlohmann::json value = nlohmann::json::parse(out, nullptr, false);
  if (value.is_discarded()) std::fprintf(stderr, "not JSON (exit %d): %s\n%s\n", code, out.c_str(), err.c_str());
  TP_CHECK(!value.is_discarded());
  return value;
}

Process::Process(const std::vector<std::string>& words, const std::vector<std::string>& environment)
    : out_(AnonymousFile()), err_(AnonymousFile()) {
  std::vector<std::string> copies = words, variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  variables.insert(variables.end(), environment.begin(), environment.end());
  std::vector<char*> argv, envp;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
  TP_CHECK(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
}

Process::~Process() {
  Kill();
  close(out_);
  close(err_);
}

// The program writes at the offset that this one's reads must not move.
std::string Process::ErrorsSoFar() const {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = pread(err_, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

void Process::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, 0), nullptr, 0);
}

CommandResult Process::Wait() {
  TP_CHECK(pid_ != 0);
  int status = 0;
  waitpid(std::exchange(pid_, 0), &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), Drain(out_), Drain(err_)};
}

CommandResult RunCommand(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  return Process(words, environment).Wait();
}

std::string Source(const std::string& path) { return absl::StrCat(TP_SOURCE_DIR, "/", path); }
std::string Program(const std::string& name) { return absl::StrCat(TP_BIN_DIR, "/", name); }

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "tp-test-XXXXXX").string();
  TP_CHECK(mkdtemp(path_.data()) != nullptr);
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

Cluster::Cluster(int workers, const std::vector<std::string>& extra, const std::vector<std::string>& environment) {
  // Limits are stretched: sanitizers are slow, and machines that test are shared.
  std::vector<std::string> words = {Program("tpctl"),
                                    "local",
                                    "up",
                                    "--workers",
                                    absl::StrCat(workers),
                                    "--dir",
                                    dir(),
                                    "--threads",
                                    "1",
                                    "--coordinator-flag=--time-scale=5",
                                    "--worker-flag=--time-scale=5"};
  words.insert(words.end(), extra.begin(), extra.end());
  const CommandResult result = RunCommand(words, environment);
  if (result.code != 0) std::fprintf(stderr, "local up: %s%s\n", result.out.c_str(), result.err.c_str());
  TP_CHECK(result.code == 0);
  std::ifstream(dir() + "/endpoint") >> server_;
}

Cluster::~Cluster() {
  const CommandResult result = RunCommand({Program("tpctl"), "local", "down", "--dir", dir()});
  if (result.code != 0) std::fprintf(stderr, "local down: %s\n", result.err.c_str());
  // What a sanitizer said of a daemon must not be lost.
  for (const auto& entry : std::filesystem::directory_iterator(dir())) {
    if (entry.path().extension() != ".log") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const bool bad = text.str().find("Sanitizer") != std::string::npos ||
                     text.str().find("runtime error") != std::string::npos ||
                     text.str().find("TP_CHECK failed") != std::string::npos;
    if (bad) std::fprintf(stderr, "%s:\n%s\n", entry.path().c_str(), text.str().c_str());
    TP_CHECK(!bad);
  }
}

CommandResult Cluster::Tpctl(std::vector<std::string> words) const {
  words.insert(words.begin(), {Program("tpctl"), "--server", server_});
  return RunCommand(words);
}

void Cluster::Submit(const std::string& file, const std::string& name, const std::string& mesh) const {
  const CommandResult result = Tpctl({"submit", file, "--name", name, "--mesh", mesh});
  if (result.code != 0) std::fprintf(stderr, "submit %s: %s\n", file.c_str(), result.err.c_str());
  TP_CHECK(result.code == 0);
}

std::string Cluster::SubmitDemo(int tp, const std::string& compute_dtype) const {
  const std::string name = absl::StrCat("kjv", tp, compute_dtype.empty() ? "" : "-", compute_dtype);
  const std::string file = absl::StrCat(dir(), "/", name, ".pb");
  std::vector<std::string> words = {"import", Source("deploy/demo/kjv"), "--tp", absl::StrCat(tp), "--out", file};
  if (!compute_dtype.empty()) words.insert(words.end(), {"--compute-dtype", compute_dtype});
  const CommandResult result = Tpctl(words);
  if (result.code != 0) std::fprintf(stderr, "import: %s\n", result.err.c_str());
  TP_CHECK(result.code == 0);
  Submit(file, name, absl::StrCat("tp=", tp));
  return name;
}

std::unique_ptr<client::Client> Cluster::Connect() const { return client::Connect({.server = server_}); }

int Cluster::WorkerPid(const std::string& id) const {
  const nlohmann::json workers = Tpctl({"workers", "--output-format", "json"}).json();
  for (const auto& worker : workers["workers"])
    if (worker["id"] == id) return worker["pid"];
  return -1;
}

std::vector<std::string> Cluster::WorkersOf(const std::string& model) const {
  const nlohmann::json description = Tpctl({"describe", model, "--output-format", "json"}).json();
  std::vector<std::string> ids(description["workers"].size());
  for (const auto& worker : description["workers"]) ids[worker["rank"]] = worker["id"];
  return ids;
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (absl::Now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace tp::testing
