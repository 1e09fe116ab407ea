// tpctl describe: one model in full.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status Describe(const GlobalOptions& globals, const std::string& model) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(ModelDescription description, client->GetModel(model, false));
  std::fputs(DescribeText(description, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
