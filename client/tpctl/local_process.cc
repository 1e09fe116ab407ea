#include "client/tpctl/local_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"

namespace tp::client {
namespace {

// Field 22 of /proc/PID/stat; 0 where there is no such process or it is a zombie.
uint64_t StartTimeOf(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), stat);
  const size_t close = stat.rfind(')');
  if (close == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(close + 1), ' ', absl::SkipEmpty());
  uint64_t time = 0;
  if (fields.size() < 20 || fields[0] == "Z" || !absl::SimpleAtoi(fields[19], &time)) return 0;
  return time;
}

}  // namespace

absl::StatusOr<LocalProcess> StartDetached(const std::string& name, const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           std::vector<std::string> environment, const std::string& log) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv, variables;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("can't start ", program));
  return LocalProcess{pid, StartTimeOf(pid), name};
}

bool IsRunning(const LocalProcess& process) {
  const uint64_t time = StartTimeOf(process.pid);
  return time != 0 && time == process.start_time;
}

void StopAll(const std::vector<LocalProcess>& processes, absl::Duration patience) {
  auto any = [&] {
    for (const LocalProcess& process : processes)
      if (IsRunning(process)) return true;
    return false;
  };
  for (const LocalProcess& process : processes)
    if (IsRunning(process)) kill(process.pid, SIGTERM);
  const absl::Time end = absl::Now() + patience;
  while (any() && absl::Now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (const LocalProcess& process : processes)
    if (IsRunning(process)) kill(process.pid, SIGKILL);
  while (any()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

absl::Status WriteProcesses(const std::string& file, const std::vector<LocalProcess>& processes) {
  std::string text;
  for (const LocalProcess& process : processes)
    absl::StrAppend(&text, process.pid, " ", process.start_time, " ", process.name, "\n");
  return WriteFileAtomically(file, {text});
}

std::vector<LocalProcess> ReadProcesses(const std::string& file) {
  std::vector<LocalProcess> processes;
  const absl::StatusOr<std::string> text = ReadWholeFile(file, 1 << 20);
  if (!text.ok()) return processes;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    LocalProcess process;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &process.pid) ||
        !absl::SimpleAtoi(fields[1], &process.start_time))
      continue;
    process.name = fields[2];
    if (IsRunning(process)) processes.push_back(process);
  }
  return processes;
}

}  // namespace tp::client
