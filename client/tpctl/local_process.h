// Detached processes that a cluster on this machine consists of: starting them, remembering them in a file, stopping
// them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tp::client {

// A process, safe against reuse of its number: the kernel's start time belongs to it.
struct LocalProcess {
  pid_t pid = 0;
  uint64_t start_time = 0;  // clock ticks after boot
  std::string name;
};

// Starts `program` in a session of its own, with its output appended to `log`, no other descriptor of ours, and these
// variables (NAME=VALUE) only. NOT_FOUND where the program is missing or can't be executed.
absl::StatusOr<LocalProcess> StartDetached(const std::string& name, const std::string& program,
                                           const std::vector<std::string>& arguments,
                                           std::vector<std::string> environment, const std::string& log);
bool IsRunning(const LocalProcess& process);
// SIGTERM, then SIGKILL to what is left after `patience`; returns when none runs.
void StopAll(const std::vector<LocalProcess>& processes, absl::Duration patience);

absl::Status WriteProcesses(const std::string& file, const std::vector<LocalProcess>& processes);
// Those of the file that still run; empty where there is no file.
std::vector<LocalProcess> ReadProcesses(const std::string& file);

}  // namespace tp::client
