#include "common/http/probes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace tp {
namespace {

HttpHandler Probe(std::function<absl::Status()> check) {
  return [check = std::move(check)](const HttpRequest&) {
    const absl::Status status = check();
    if (status.ok()) return HttpResponse{.body = "ok\n"};
    return HttpResponse{.status = 503, .body = absl::StrCat(std::string(status.message()), "\n")};
  };
}

}  // namespace

HttpHandlers ProbeHandlers(const Probes& probes) {
  return {{"/livez", Probe(probes.live)},
          {"/readyz", Probe(probes.ready)},
          {"/metrics", [metrics = probes.metrics](const HttpRequest&) {
             return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics()};
           }}};
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartProbes(const std::string& address, const Probes& probes) {
  if (address.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(address, ProbeHandlers(probes));
  if (!server.ok()) return Annotate(server.status(), "--metrics-listen");
  Log(LogLevel::kInfo, absl::StrCat("metrics at ", (*server)->endpoint()));
  return server;
}

}  // namespace tp
