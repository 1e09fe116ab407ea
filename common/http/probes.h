// The paths that both programs serve with --metrics-listen: /metrics for Prometheus, /livez and /readyz for an
// orchestrator. Example:
//   auto server = *StartProbes("127.0.0.1:9464", {.metrics = text, .live = live, .ready = ready});
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/http/http_server.h"

namespace tp {

// Called from several threads at once.
struct Probes {
  std::function<std::string()> metrics;  // in Prometheus's text format
  // 200 "ok", or 503 with the message.
  std::function<absl::Status()> live;   // else the process should be started anew
  std::function<absl::Status()> ready;  // else it should get no requests now
};
HttpHandlers ProbeHandlers(const Probes& probes);

// A server of them whose address the log tells ("metrics at HOST:PORT"); nullptr where `address` is "". Errors of
// HttpServer::Start, naming --metrics-listen.
absl::StatusOr<std::unique_ptr<HttpServer>> StartProbes(const std::string& address, const Probes& probes);

}  // namespace tp
