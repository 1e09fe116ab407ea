// tpctl tensor save, load: safetensors files that the workers write and read by themselves.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "client/tpctl/tensor_arguments.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"

namespace tp::client {

absl::Status TensorSave(const GlobalOptions& globals, const TensorSaveOptions& options) {
  const std::string directory = AbsolutePath(options.directory);  // workers run elsewhere
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const SaveResult result, client->SaveTensors(directory, options.names));
  std::fputs(SaveText(result, directory, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status TensorLoad(const GlobalOptions& globals, const TensorLoadOptions& options) {
  LoadOptions request{.directory = AbsolutePath(options.directory), .mesh = options.mesh};
  request.names = options.names;
  TP_ASSIGN_OR_RETURN(request.placements, ParsePlacementsOption(options.placements));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const LoadResult result, client->LoadTensors(request));
  std::fputs(LoadText(result, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
