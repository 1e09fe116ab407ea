// tp-worker: reads flags, opens the device, wires, waits for a signal.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/proto_convert/model.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "worker/module/open_device.h"
#include "worker/rpc/worker_agent.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tp-worker: %s\n", status.ToString().c_str());
  return 1;
}

std::string DefaultId() {
  char host[256] = "worker";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(std::string(host).substr(0, 100), "-", getpid());
}

}  // namespace

int main(int argc, char** argv) {
  tp::QuietGrpcLog();
  tp::worker::WorkerAgentOptions options;
  options.version = TP_VERSION;
  options.id = DefaultId();
  tp::worker::OpenOptions device;
  device.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::string log_level = "info", listen_host = "127.0.0.1";
  int port = 0;
  CLI::App app("A Tensorplane worker");
  app.set_version_flag("--version", TP_VERSION);
  app.add_option("--server", options.server, "HOST:PORT of the coordinator")->required();
  app.add_option("--id", options.id, "Name in the cluster")->capture_default_str();
  app.add_option("--device", device.name, "cpu or cuda:N")->capture_default_str();
  app.add_option("--model-root", options.runtime.model_root,
                 "Files of weights and checkpoints must lie under it; none = no such files");
  app.add_option("--threads", device.threads, "Threads of a cpu device")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--collective-host", device.collective_host, "Address where other workers reach this one")
      ->capture_default_str();
  app.add_option("--memory-limit", device.memory_limit_bytes,
                 "Bytes that it may use; 0 = the machine's memory, or the GPU's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--cuda-module", device.cuda_module, "The CUDA backend; none = libtp_cuda.so beside this program")
      ->envname("TP_CUDA_MODULE");
  app.add_flag("--tf32", device.tf32, "F32 products on a GPU's tensor cores, with 10 bits of mantissa");
  app.add_flag("!--no-graphs", options.runtime.graphs, "Run decode steps call by call, not as CUDA graphs");
  app.add_flag("--time-products", device.time_products,
               "Choose the algorithms of a GPU's products by timing them (for meshes of one GPU)");
  app.add_option("--tls-cert", options.tls.cert,
                 "Certificate to show to the coordinator, and to serve health with (PEM)")
      ->envname("TP_TLS_CERT");
  app.add_option("--tls-key", options.tls.key, "Its private key (PEM)")->envname("TP_TLS_KEY");
  app.add_option("--tls-ca", options.tls.ca, "Authority that signed the coordinator's certificate; turns TLS on")
      ->envname("TP_TLS_CA");
  app.add_option("--port", port, "Port of health and reflection, on loopback; 0 = any")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--metrics-listen", options.metrics_listen,
                 "HOST:PORT of /metrics, /livez and /readyz over HTTP; none = off, port 0 = any");
  app.add_option("--drain-seconds", options.drain_seconds, "How long running work may go on after SIGTERM")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option("--time-scale", options.runtime.time_scale, "Multiplies every time limit")
      ->check(CLI::Range(0.1, 1000.0))
      ->capture_default_str();
  app.add_option("--log-level", log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  tp::InitLog("tp-worker", log_level == "debug"     ? tp::LogLevel::kDebug
                           : log_level == "warning" ? tp::LogLevel::kWarning
                           : log_level == "error"   ? tp::LogLevel::kError
                                                    : tp::LogLevel::kInfo);
  if (absl::Status valid = tp::ValidateHostPort(options.server); !valid.ok()) return Fail(valid);
  if (absl::Status valid = tp::ValidateModelName(options.id, "--id"); !valid.ok()) return Fail(valid);
  if (absl::Status valid = tp::CheckTls(options.tls, /*server=*/false); !valid.ok()) return Fail(valid);
  // Before any thread starts, so that only this thread gets the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<tp::worker::OpenedDevice> opened = tp::worker::OpenDevice(device);
  if (!opened.ok()) return Fail(opened.status());
  options.collective_host = device.collective_host;
  options.memory_limit_bytes = opened->memory_limit_bytes;
  auto server = tp::RpcServer::Start(absl::StrCat(listen_host, ":", port), {},
                                     {.tls = options.tls.cert.empty() ? tp::TlsFiles() : options.tls});
  if (!server.ok()) return Fail(server.status());
  (*server)->SetServing(true);

  tp::RealClock clock;
  tp::worker::WorkerAgent agent(options, std::move(opened->device), std::move(opened->backend), &clock);
  tp::Log(tp::LogLevel::kInfo, absl::StrCat("worker ", options.id, " dials ", options.server, "; health at ",
                                            listen_host, ":", (*server)->port()));
  std::thread thread([&] { agent.Run(); });
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  tp::Log(tp::LogLevel::kInfo, absl::StrCat("stops: ", signal_number == SIGTERM ? "SIGTERM" : "SIGINT"));
  agent.Stop();
  thread.join();
  return 0;
}
