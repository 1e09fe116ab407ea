// tpctl delete: frees a model on all its workers.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status Delete(const GlobalOptions& globals, const std::string& model) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_RETURN_IF_ERROR(client->DeleteModel(model));
  if (globals.json())
    std::fputs("{}\n", stdout);
  else
    std::fprintf(stdout, "%s is deleted\n", model.c_str());
  return absl::OkStatus();
}

}  // namespace tp::client
