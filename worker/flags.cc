#include "worker/flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/flags/parse.h"

namespace tp::worker {
namespace {

std::string DefaultId() {
  char host[256] = "worker";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(std::string(host).substr(0, 100), "-", getpid());
}

}  // namespace

void AddWorkerFlags(WorkerFlags* flags, CLI::App* app) {
  WorkerAgentOptions& options = flags->options;
  OpenOptions& device = flags->device;
  options.id = DefaultId();
  device.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  app->add_option("--server", options.server, "HOST:PORT of the coordinator")->check(HostPort)->required();
  app->add_option("--id", options.id, "Name in the cluster")->default_str("HOST-PROCESS");
  AddProgramFlags({.listen = "HOST:PORT of health and reflection; port 0 = any",
                   .drain_seconds = "How long running work may go on after SIGTERM",
                   .tls_cert = "Certificate to show to the coordinator, and to serve health with (PEM)",
                   .tls_ca = "Authority that signed the coordinator's certificate; turns TLS on"},
                  &flags->program, app);
  app->add_option("--device", device.name, "cpu or cuda:N")->capture_default_str();
  app->add_option("--model-root", options.runtime.model_root,
                  "Files of weights and checkpoints must lie under it; none = no such files");
  app->add_option("--threads", device.threads, "Threads of a cpu device")
      ->check(CLI::Range(1, 1024))
      ->default_str("those of the machine");
  app->add_option("--collective-host", device.collective_host, "Address where other workers reach this one")
      ->capture_default_str();
  app->add_option("--memory-limit", device.memory_limit_bytes,
                  "Bytes that it may use; 0 = the machine's memory, or the GPU's")
      ->check(AtLeast(0));
  app->add_option("--cuda-module", device.cuda_module, "The CUDA backend; none = libtp_cuda.so beside this program");
  app->add_flag("--tf32", device.tf32, "F32 products on a GPU's tensor cores, with 10 bits of mantissa");
  app->add_flag("--no-graphs", flags->no_graphs, "Run decode steps call by call, not as CUDA graphs");
  app->add_flag("--time-products", device.time_products,
                "Choose the algorithms of a GPU's products by timing them (for meshes of one GPU)");
}

std::optional<int> ParseWorkerFlags(int argc, char** argv, WorkerFlags* flags) {
  CLI::App app("A Tensorplane worker", "tp-worker");
  app.set_version_flag("--version", TP_VERSION);
  AddWorkerFlags(flags, &app);
  if (std::optional<int> exit = ParseFlags(argc, argv, ConfigKind::kWorker, &app)) return exit;
  WorkerAgentOptions& options = flags->options;
  options.version = TP_VERSION;
  options.collective_host = flags->device.collective_host;
  options.metrics_listen = flags->program.metrics_listen;
  options.drain_seconds = flags->program.drain_seconds;
  options.tls = flags->program.tls;
  options.runtime.graphs = !flags->no_graphs;
  options.runtime.time_scale = flags->program.time_scale;
  return std::nullopt;
}

}  // namespace tp::worker
