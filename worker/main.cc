// tp-worker: reads flags, opens the device, wires, waits for a signal.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/http/probes.h"
#include "common/proto_convert/model.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "worker/flags.h"
#include "worker/module/open_device.h"
#include "worker/rpc/worker_agent.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tp-worker: %s\n", status.ToString().c_str());
  return 1;
}

constexpr absl::Duration kTeardown = absl::Seconds(2);  // after the limit of a drain

}  // namespace

int main(int argc, char** argv) {
  tp::QuietGrpcLog();
  tp::worker::WorkerFlags flags;
  if (std::optional<int> exit = tp::worker::ParseWorkerFlags(argc, argv, &flags)) return *exit;
  tp::InitLog("tp-worker", flags.program);
  tp::worker::WorkerAgentOptions& options = flags.options;
  if (absl::Status valid = tp::CheckProgramFlags(flags.program, /*server=*/false); !valid.ok()) return Fail(valid);
  if (absl::Status valid = tp::ValidateModelName(options.id, "--id"); !valid.ok()) return Fail(valid);

  // Before any thread starts, so that only this thread gets the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<tp::worker::OpenedDevice> opened = tp::worker::OpenDevice(flags.device);
  if (!opened.ok()) return Fail(opened.status());
  options.memory_limit_bytes = opened->memory_limit_bytes;
  options.collective_host = opened->collective_host;
  auto server =
      tp::RpcServer::Start(flags.program.listen, {}, {.tls = options.tls.cert.empty() ? tp::TlsFiles() : options.tls});
  if (!server.ok()) return Fail(server.status());
  (*server)->SetServing(true);

  tp::RealClock clock;
  auto agent =
      std::make_unique<tp::worker::WorkerAgent>(options, std::move(opened->device), std::move(opened->backend), &clock);
  auto http = tp::StartProbes(flags.program.metrics_listen, {.metrics = [&] { return agent->MetricsText(); },
                                                             .live = [&] { return agent->Live(); },
                                                             .ready = [&] { return agent->Ready(); }});
  if (!http.ok()) return Fail(http.status());
  tp::Log(tp::LogLevel::kInfo,
          absl::StrCat("worker ", options.id, " dials ", options.server, "; health at ",
                       flags.program.listen.substr(0, flags.program.listen.rfind(':')), ":", (*server)->port()));
  absl::Status ended;
  std::thread thread([&] {
    ended = agent->Run();
    kill(getpid(), SIGUSR1);  // wakes the main thread where the agent ended by itself
  });
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  (*server)->SetServing(false);
  if (signal_number == SIGUSR1) {
    thread.join();
    return ended.ok() ? 0 : Fail(ended);
  }
  tp::Log(tp::LogLevel::kInfo, absl::StrCat("stops: ", signal_number == SIGTERM ? "SIGTERM" : "SIGINT"));
  // A second signal ends the wait for what runs. What can't be ended, as a read of a file that hangs, ends with the
  // process.
  const absl::Duration limit = absl::Seconds(options.drain_seconds);
  std::atomic<bool> hurry{false}, stopped{false};
  std::thread guard([&, last = clock.Now() + limit + kTeardown * options.runtime.time_scale]() mutable {
    timespec wait{0, 50'000'000};
    while (!stopped) {
      const int number = sigtimedwait(&signals, nullptr, &wait);
      if (number == SIGTERM || number == SIGINT) {
        hurry = true;
        last = std::min(last, clock.Now() + kTeardown);
      }
      if (clock.Now() > last) {
        tp::Log(tp::LogLevel::kWarning, "ends though something of it hangs");
        _exit(0);
      }
    }
  });
  agent->Drain(limit, &hurry);
  thread.join();
  http->reset();  // it asks the agent
  agent.reset();
  stopped = true;
  guard.join();
  return 0;
}
