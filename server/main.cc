// tp-coordinator: reads flags, wires, waits for a signal.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/channel.h"
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
  tp::server::CoordinatorServerOptions options;
  options.version = TP_VERSION;
  std::string endpoint_file, log_level = "info";
  double drain_seconds = 10;
  bool insecure = false;
  CLI::App app("Tensorplane's coordinator");
  app.set_version_flag("--version", TP_VERSION);
  app.add_option("--listen", options.listen, "HOST:PORT to serve at; port 0 = any")->capture_default_str();
  app.add_option("--metrics-listen", options.metrics_listen,
                 "HOST:PORT of /metrics, /livez and /readyz over HTTP; none = off, port 0 = any");
  app.add_option("--data-dir", options.data_dir, "Folder of coordinator.db; none = nothing is kept");
  app.add_option("--endpoint-file", endpoint_file, "File that gets HOST:PORT once it serves");
  app.add_option("--time-scale", options.time_scale, "Multiplies every time limit")
      ->check(CLI::Range(0.1, 1000.0))
      ->capture_default_str();
  app.add_option("--log-level", log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app.add_option("--max-submission-bytes", options.max_submission_bytes, "Largest submission")->capture_default_str();
  app.add_option("--max-input-bytes", options.max_input_bytes, "Largest inputs of one forward")->capture_default_str();
  app.add_option("--max-queued-requests", options.max_queued_requests, "Requests that wait or run")
      ->capture_default_str();
  app.add_option("--cache-bytes", options.cache_bytes, "Largest cache of a model on a worker")->capture_default_str();
  app.add_option("--drain-seconds", drain_seconds, "How long running calls may go on after SIGTERM")
      ->capture_default_str();
  app.add_flag("--check-collectives", options.check_collectives,
               "Workers agree on every collective call before its payload; slower, for finding what diverges");
  app.add_option("--tls-cert", options.tls.cert, "Certificate to serve with (PEM); turns TLS on")
      ->envname("TP_TLS_CERT");
  app.add_option("--tls-key", options.tls.key, "Its private key (PEM)")->envname("TP_TLS_KEY");
  app.add_option("--tls-ca", options.tls.ca,
                 "Only clients and workers whose certificate this authority signed are served")
      ->envname("TP_TLS_CA");
  app.add_flag("--insecure", insecure, "Serve plain text on addresses other than loopback");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  tp::InitLog("tp-coordinator", log_level == "debug"     ? tp::LogLevel::kDebug
                                : log_level == "warning" ? tp::LogLevel::kWarning
                                : log_level == "error"   ? tp::LogLevel::kError
                                                         : tp::LogLevel::kInfo);
  if (absl::Status valid = tp::ValidateHostPort(options.listen); !valid.ok()) return Fail(valid);
  if (absl::Status valid = tp::CheckTls(options.tls, /*server=*/true); !valid.ok()) return Fail(valid);
  if (!tp::IsLoopback(options.listen) && !insecure && !options.tls.any()) {
    return Fail(absl::FailedPreconditionError(absl::StrCat(
        "--listen ", options.listen,
        " is not loopback and would serve plain text; give --tls-cert and --tls-key, or --insecure to allow it")));
  }

  // Before any thread starts, so that only this thread gets the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  tp::RealClock clock;
  auto server = tp::server::CoordinatorServer::Start(options, &clock);
  if (!server.ok()) return Fail(server.status());
  if (!endpoint_file.empty()) {
    if (absl::Status status = WriteFileAtomically(endpoint_file, (*server)->endpoint() + "\n"); !status.ok()) {
      return Fail(status);
    }
  }
  tp::Log(tp::LogLevel::kInfo, absl::StrCat("version ", TP_VERSION, " serves at ", (*server)->endpoint()));

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
  (*server)->Stop(absl::Seconds(drain_seconds), &hurry);
  stopped = true;
  second.join();
  return 0;
}
