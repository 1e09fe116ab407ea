// tpctl tensor redistribute: another layout, or another mesh; prints the steps with their bytes, planned and counted.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "client/tpctl/tensor_arguments.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status TensorRedistribute(const GlobalOptions& globals, const TensorRedistributeOptions& options) {
  RedistributeOptions request{.name = options.name, .mesh = options.mesh, .placements = {}, .as = options.as};
  TP_ASSIGN_OR_RETURN(request.placements, ParsePlacementsOption(options.placements));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const RedistributeResult result, client->RedistributeTensor(request));
  std::fputs(RedistributeText(result, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
