// The paths that both programs serve with --metrics-listen: /metrics for Prometheus, /livez and /readyz for an
// orchestrator. Example:
//   auto server = *HttpServer::Start("127.0.0.1:9464", ProbeHandlers({.metrics = text, .live = live, .ready = ready}));
#pragma once

#include <functional>
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

}  // namespace tp
