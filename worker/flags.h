// The options of tp-worker. Example:
//   WorkerFlags flags;  if (std::optional<int> exit = ParseWorkerFlags(argc, argv, &flags)) return *exit;
#pragma once

#include <optional>

#include "common/flags/program_flags.h"
#include "worker/module/open_device.h"
#include "worker/rpc/worker_agent.h"

namespace tp::worker {

struct WorkerFlags {
  ProgramFlags program{.listen = "127.0.0.1:0"};
  WorkerAgentOptions options;  // what `program` and `device` hold, too, once parsed
  OpenOptions device;
  bool no_graphs = false;
};

// `flags` are the defaults and outlive the parsing; the id and the threads get theirs here.
void AddWorkerFlags(WorkerFlags* flags, CLI::App* app);
// Nothing, or the status to exit with (ParseFlags).
std::optional<int> ParseWorkerFlags(int argc, char** argv, WorkerFlags* flags);

}  // namespace tp::worker
