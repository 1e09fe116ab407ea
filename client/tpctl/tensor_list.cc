// tpctl tensor list, delete.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status TensorList(const GlobalOptions& globals) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const std::vector<TensorInfo> tensors, client->ListTensors());
  std::fputs(TensorsText(tensors, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status TensorDelete(const GlobalOptions& globals, const std::string& name) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_RETURN_IF_ERROR(client->DeleteTensor(name));
  std::fputs(globals.json() ? "{}\n" : ("tensor " + name + " is deleted\n").c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
