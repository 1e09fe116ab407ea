// CoordinatorServer: the coordinator put together: store, core, services, gRPC server. Example:
//   auto server = *CoordinatorServer::Start({.listen = "127.0.0.1:0"}, &clock);   server->endpoint();   server->Stop();
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/tls_files.h"

namespace tp::server {

struct CoordinatorServerOptions {
  std::string listen = "127.0.0.1:7050";  // port 0 = any
  std::string metrics_listen = {};        // HOST:PORT of /metrics, /livez and /readyz; "" = none, port 0 = any
  std::string data_dir;                   // coordinator.db lies there; "" = nothing is kept
  std::string version;
  TlsFiles tls = {};      // plain text where none is named
  double time_scale = 1;  // multiplies every time limit
  int64_t max_submission_bytes = int64_t{64} << 20;
  int64_t max_input_bytes = int64_t{256} << 20;
  int64_t cache_bytes = int64_t{1} << 30;  // largest cache of a model on a worker
  int max_queued_requests = 1024;
  bool check_collectives = false;  // ranks agree on every collective call, not once a step only
};

class CoordinatorServer {
 public:
  // UNAVAILABLE where the port is in use; the store's errors.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(const CoordinatorServerOptions& options,
                                                                  const Clock* clock);
  ~CoordinatorServer();
  // "HOST:PORT" as clients reach it.
  const std::string& endpoint() const;
  // --- For HTTP (common/http/probes.h); thread-safe, also during Stop().
  // All metrics in Prometheus's format. Waits at most 1 s for the core's; without an answer they are those of before.
  std::string MetricsText();
  // OK where the core's thread answers within 2 s.
  absl::Status Live();
  // OK where it does and new requests are taken.
  absl::Status Ready();

  // Takes no new calls, waits for running ones (at most `grace`), then stops everything. Blocks. `*hurry` ends the
  // wait.
  void Stop(absl::Duration grace, const std::atomic<bool>* hurry);

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tp::server
