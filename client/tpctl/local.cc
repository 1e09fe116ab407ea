// tpctl local: a coordinator and CPU workers on this machine. The folder holds `endpoint` (HOST:PORT), `processes`,
// `coordinator.db` and one log a process.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/local_process.h"
#include "client/tpctl/progress.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/proto_convert/config.h"

namespace tp::client {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStartPatience = absl::Seconds(60);
constexpr absl::Duration kStopPatience = absl::Seconds(15);

// The programs lie beside tpctl.
absl::StatusOr<std::string> ProgramPath(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path program = self.parent_path() / name;
  if (error || !fs::exists(program, error))
    return absl::NotFoundError(
        absl::StrCat(name, " is not beside tpctl (", program.string(), "): build preset `release`, or install"));
  return program.string();
}

// Our variables without those that stand for options of the programs: a cluster of `local up` is as its own flags say,
// whatever the shell was set up for. The CUDA backend and the files of TLS are the machine's.
std::vector<std::string> ProgramEnvironment() {
  std::set<std::string> options = {ConfigVariable("config")};
  for (const ConfigKind kind : {ConfigKind::kCoordinator, ConfigKind::kWorker})
    for (const std::string& flag : ConfigFlags(kind))
      if (flag != "cuda-module" && !absl::StartsWith(flag, "tls-")) options.insert(ConfigVariable(flag));
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (options.count(text.substr(0, text.find('='))) == 0) environment.push_back(text);
  }
  return environment;
}

// The last lines of a log, for messages.
std::string Tail(const std::string& log) {
  const absl::StatusOr<std::string> text = ReadWholeFile(log, int64_t{1} << 30);
  if (!text.ok()) return "";
  std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (lines.size() > 3) lines.erase(lines.begin(), lines.end() - 3);
  std::string tail;
  for (const std::string& line : lines) absl::StrAppend(&tail, "\n  ", line);
  return tail;
}

absl::Status Died(const LocalProcess& process, const std::string& dir) {
  const std::string log = absl::StrCat(dir, "/", process.name, ".log");
  return absl::UnavailableError(absl::StrCat(process.name, " ended; its log ", log, " says:", Tail(log)));
}

// Waits until `ready` says true, an error, or a process ended.
template <typename Ready>
absl::Status WaitFor(const std::vector<LocalProcess>& processes, const std::string& dir, const std::string& what,
                     Ready ready) {
  const absl::Time end = absl::Now() + kStartPatience;
  while (true) {
    TP_ASSIGN_OR_RETURN(bool done, ready());
    if (done) return absl::OkStatus();
    for (const LocalProcess& process : processes)
      if (!IsRunning(process)) return Died(process, dir);
    if (absl::Now() > end)
      return absl::DeadlineExceededError(
          absl::StrCat(what, " within ", absl::FormatDuration(kStartPatience), "; logs are in ", dir));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

absl::Status StartCluster(const GlobalOptions& globals, const LocalOptions& options, const std::string& dir,
                          std::vector<LocalProcess>* processes) {
  TP_ASSIGN_OR_RETURN(std::string coordinator, ProgramPath("tp-coordinator"));
  TP_ASSIGN_OR_RETURN(std::string worker, ProgramPath("tp-worker"));
  const std::string endpoint_file = dir + "/endpoint";
  std::vector<std::string> arguments = {"--listen", "127.0.0.1:0", "--data-dir", dir, "--endpoint-file", endpoint_file};
  arguments.insert(arguments.end(), options.coordinator_flags.begin(), options.coordinator_flags.end());
  TP_ASSIGN_OR_RETURN(LocalProcess started, StartDetached("coordinator", coordinator, arguments, ProgramEnvironment(),
                                                          dir + "/coordinator.log"));
  processes->push_back(started);
  TP_RETURN_IF_ERROR(WriteProcesses(dir + "/processes", *processes));
  std::string endpoint;
  TP_RETURN_IF_ERROR(WaitFor(*processes, dir, "the coordinator did not serve", [&]() -> absl::StatusOr<bool> {
    const absl::StatusOr<std::string> text = ReadWholeFile(endpoint_file, int64_t{1} << 30);
    if (text.ok()) endpoint = std::string(absl::StripAsciiWhitespace(*text));
    return !endpoint.empty();
  }));

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : std::max(1, cores / options.workers);
  for (int i = 0; i < options.workers; ++i) {
    const std::string id = absl::StrCat("worker-", i);
    const std::string device = options.device == "cpu" ? "cpu" : absl::StrCat(options.device, ":", i);
    arguments = {"--server",     endpoint,           "--id",     id,    "--threads", absl::StrCat(threads),
                 "--model-root", options.model_root, "--device", device};
    arguments.insert(arguments.end(), options.worker_flags.begin(), options.worker_flags.end());
    TP_ASSIGN_OR_RETURN(started,
                        StartDetached(id, worker, arguments, ProgramEnvironment(), absl::StrCat(dir, "/", id, ".log")));
    processes->push_back(started);
    TP_RETURN_IF_ERROR(WriteProcesses(dir + "/processes", *processes));
  }
  const std::unique_ptr<Client> client = Connect({.server = endpoint, .timeout = absl::Seconds(5), .tls = globals.tls});
  ProgressBar bar("starting workers");
  return WaitFor(*processes, dir, absl::StrCat(options.workers, " workers did not join"),
                 [&]() -> absl::StatusOr<bool> {
                   const absl::StatusOr<std::vector<WorkerInfo>> workers = client->ListWorkers();
                   if (!workers.ok()) return false;
                   const int64_t healthy =
                       std::count_if(workers->begin(), workers->end(), [](const WorkerInfo& w) { return w.healthy; });
                   bar.Update(healthy, options.workers);
                   return healthy >= options.workers;
                 });
}

}  // namespace

std::string DefaultDir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return absl::StrCat(state, "/tensorplane");
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr || *home == '\0' ? "/tmp" : home, "/.local/state/tensorplane");
}

absl::Status LocalUp(const GlobalOptions& globals, const LocalOptions& options) {
  std::error_code error;
  const std::string dir =
      fs::absolute(options.dir.empty() ? DefaultDir() : options.dir, error).lexically_normal().string();
  fs::create_directories(dir, error);
  if (error) return absl::PermissionDeniedError(absl::StrCat("can't create ", dir, ": ", error.message()));
  if (!ReadProcesses(dir + "/processes").empty())
    return absl::AlreadyExistsError(
        absl::StrCat("a cluster runs in ", dir, "; stop it with `tpctl local down --dir ", dir, "`"));
  fs::remove(dir + "/endpoint", error);
  std::vector<LocalProcess> processes;
  const absl::Status status = StartCluster(globals, options, dir, &processes);
  if (!status.ok()) {
    StopAll(processes, kStopPatience);
    fs::remove(dir + "/endpoint", error);
    fs::remove(dir + "/processes", error);
    return status;
  }
  TP_ASSIGN_OR_RETURN(std::string endpoint, ReadWholeFile(dir + "/endpoint", int64_t{1} << 30));
  endpoint = std::string(absl::StripAsciiWhitespace(endpoint));
  if (globals.json())
    std::fprintf(stdout, "{\n  \"endpoint\": \"%s\",\n  \"dir\": \"%s\",\n  \"workers\": %d\n}\n", endpoint.c_str(),
                 dir.c_str(), options.workers);
  else
    std::fprintf(stdout, "coordinator on %s with %d healthy workers; logs in %s\n", endpoint.c_str(), options.workers,
                 dir.c_str());
  return absl::OkStatus();
}

absl::Status LocalDown(const GlobalOptions& globals, const LocalOptions& options) {
  std::error_code error;
  const std::string dir =
      fs::absolute(options.dir.empty() ? DefaultDir() : options.dir, error).lexically_normal().string();
  const std::vector<LocalProcess> processes = ReadProcesses(dir + "/processes");
  if (processes.empty()) return absl::NotFoundError(absl::StrCat("no cluster runs in ", dir));
  StopAll(processes, kStopPatience);
  fs::remove(dir + "/endpoint", error);
  fs::remove(dir + "/processes", error);
  if (globals.json())
    std::fputs("{}\n", stdout);
  else
    std::fprintf(stdout, "stopped %d processes\n", static_cast<int>(processes.size()));
  return absl::OkStatus();
}

}  // namespace tp::client
