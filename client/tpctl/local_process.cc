#include "client/tpctl/local_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/tpctl/files.h"
#include "common/base/status.h"

namespace tp::client {
namespace {

// Field 22 of /proc/PID/stat; 0 where there is no such process or it is a zombie.
uint64_t StartTimeOf(pid_t pid) {
  absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return 0;
  const size_t close = stat->rfind(')');
  if (close == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(stat->substr(close + 1), ' ', absl::SkipEmpty());
  uint64_t time = 0;
  if (fields.size() < 20 || fields[0] == "Z" || !absl::SimpleAtoi(fields[19], &time)) return 0;
  return time;
}

[[noreturn]] void RunChild(const std::string& log, char* const* argv, int error_pipe) {
  setsid();
  const int null = open("/dev/null", O_RDONLY);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (null >= 0 && out >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    // All but the error pipe, which execv closes.
    close_range(3, static_cast<unsigned>(error_pipe) - 1, 0);
    close_range(static_cast<unsigned>(error_pipe) + 1, ~0U, 0);
    execv(argv[0], argv);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(error_pipe, &error, sizeof error);
  _exit(127);
}

}  // namespace

absl::StatusOr<LocalProcess> StartDetached(const std::string& name, const std::string& program,
                                           const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int raw[2];
  if (pipe2(raw, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  // Above the standard descriptors, so that the child's close_range keeps it.
  const int write_end = fcntl(raw[1], F_DUPFD_CLOEXEC, 10);
  close(raw[1]);
  // Forked twice, so that the process is the init process's child and never our zombie.
  const pid_t middle = fork();
  if (middle < 0) {
    close(raw[0]);
    close(write_end);
    return absl::ErrnoToStatus(errno, "fork");
  }
  if (middle == 0) {
    const pid_t child = fork();
    if (child == 0) RunChild(log, argv.data(), write_end);
    const int64_t message = -static_cast<int64_t>(child);  // negative: a pid
    [[maybe_unused]] const ssize_t written = write(write_end, &message, sizeof message);
    _exit(0);
  }
  close(write_end);
  waitpid(middle, nullptr, 0);
  pid_t pid = 0;
  int error = 0;
  char buffer[32];
  size_t filled = 0;
  for (ssize_t got; filled < sizeof buffer && (got = read(raw[0], buffer + filled, sizeof buffer - filled)) > 0;)
    filled += static_cast<size_t>(got);
  close(raw[0]);
  // Eight bytes of the pid, and four of an error where execv failed; either may come first.
  if (filled == sizeof(int64_t) || filled == sizeof(int64_t) + sizeof(int)) {
    int64_t message = 0;
    std::memcpy(&message, buffer, sizeof message);
    if (filled > sizeof message) {
      std::memcpy(&error, buffer + sizeof message, sizeof error);
      if (message >= 0 || message < -(int64_t{1} << 30)) std::memcpy(&error, buffer, sizeof error);
    }
    pid = static_cast<pid_t>(-message);
  }
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("can't start ", program));
  if (pid <= 0) return absl::InternalError(absl::StrCat("can't start ", program));
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
  return WriteFile(file, text);
}

std::vector<LocalProcess> ReadProcesses(const std::string& file) {
  std::vector<LocalProcess> processes;
  const absl::StatusOr<std::string> text = ReadFile(file);
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
