// tpctl models, workers, status, version: what there is.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/rpc/channel.h"

namespace tp::client {

absl::StatusOr<std::string> ServerAddress(const GlobalOptions& globals) {
  if (!globals.server.empty()) return globals.server;
  if (const char* variable = std::getenv("TPCTL_SERVER"); variable != nullptr && *variable != '\0')
    return std::string(variable);
  absl::StatusOr<std::string> endpoint = ReadWholeFile(DefaultDir() + "/endpoint", 1 << 10);
  if (!endpoint.ok())
    return absl::FailedPreconditionError(absl::StrCat(
        "no coordinator is named: give --server HOST:PORT, set TPCTL_SERVER, or start one with `tpctl local up` (",
        endpoint.status().message(), ")"));
  return std::string(absl::StripAsciiWhitespace(*endpoint));
}

absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const GlobalOptions& globals) {
  TP_ASSIGN_OR_RETURN(std::string server, ServerAddress(globals));
  TP_RETURN_IF_ERROR(Annotate(ValidateHostPort(server), "the coordinator's address"));
  TP_RETURN_IF_ERROR(CheckTls(globals.tls, /*server=*/false));
  return Connect(
      {.server = std::move(server),
       .timeout = globals.timeout_seconds > 0 ? absl::Seconds(globals.timeout_seconds) : absl::InfiniteDuration(),
       .tls = globals.tls});
}

absl::Status ListModels(const GlobalOptions& globals) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(std::vector<ModelSummary> models, client->ListModels());
  std::fputs(ModelsText(models, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status ListWorkers(const GlobalOptions& globals) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(std::vector<WorkerInfo> workers, client->ListWorkers());
  std::fputs(WorkersText(workers, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Status(const GlobalOptions& globals) {
  TP_ASSIGN_OR_RETURN(std::string server, ServerAddress(globals));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(StatusInfo status, client->GetStatus());
  std::fputs(StatusText(status, server, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Version(const GlobalOptions& globals) {
  std::fputs(VersionText(TP_VERSION, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
