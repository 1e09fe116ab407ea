// tp-coordinator: reads flags, wires, waits for a signal.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/http/probes.h"
#include "common/rpc/channel.h"
#include "server/flags.h"
#include "server/rpc/coordinator_server.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tp-coordinator: %s\n", status.ToString().c_str());
  return 1;
}

// Whole or not at all: written beside and renamed.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::trunc);
  file << text;
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("can't write ", path));
  }
  return absl::OkStatus();
}

// Chunks that pass through go back to the system at once: freed ones would pile up in the arena of each thread.
void KeepMemoryLow() {
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

}  // namespace

int main(int argc, char** argv) {
  KeepMemoryLow();
  tp::QuietGrpcLog();
  tp::server::CoordinatorFlags flags;
  if (std::optional<int> exit = tp::server::ParseCoordinatorFlags(argc, argv, &flags)) return *exit;
  tp::InitLog("tp-coordinator", flags.program);
  if (absl::Status valid = tp::CheckProgramFlags(flags.program, /*server=*/true); !valid.ok()) return Fail(valid);

  // Before any thread starts, so that only this thread gets the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  tp::RealClock clock;
  auto server = tp::server::CoordinatorServer::Start(flags.options, &clock);
  if (!server.ok()) return Fail(server.status());
  auto http = tp::StartProbes(flags.program.metrics_listen, {.metrics = [&] { return (*server)->MetricsText(); },
                                                             .live = [&] { return (*server)->Live(); },
                                                             .ready = [&] { return (*server)->Ready(); }});
  if (!http.ok()) return Fail(http.status());
  if (!flags.endpoint_file.empty()) {
    if (absl::Status status = WriteFileAtomically(flags.endpoint_file, (*server)->endpoint() + "\n"); !status.ok()) {
      return Fail(status);
    }
  }
  tp::Log(tp::LogLevel::kInfo, absl::StrCat("version ", flags.options.version, " serves at ", (*server)->endpoint()));

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  tp::Log(tp::LogLevel::kInfo, absl::StrCat("stops: ", signal_number == SIGTERM ? "SIGTERM" : "SIGINT"));
  // A second signal ends the wait for running calls.
  std::atomic<bool> hurry{false}, stopped{false};
  std::thread second([&] {
    timespec wait{0, 50'000'000};
    while (!stopped) {
      if (sigtimedwait(&signals, nullptr, &wait) > 0) hurry = true;
    }
  });
  (*server)->Stop(absl::Seconds(flags.program.drain_seconds), &hurry);
  stopped = true;
  second.join();
  return 0;
}
