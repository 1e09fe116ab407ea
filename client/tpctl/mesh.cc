// tpctl mesh create, list, delete: named meshes.
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/tensor_render.h"
#include "common/base/status.h"

namespace tp::client {

absl::Status MeshCreate(const GlobalOptions& globals, const MeshCreateOptions& options) {
  TP_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Parse(options.axes));
  std::vector<std::string> workers;
  if (!options.workers.empty()) workers = absl::StrSplit(options.workers, ',');
  for (std::string& worker : workers) {
    absl::StripAsciiWhitespace(&worker);
    if (worker.empty()) return absl::InvalidArgumentError("--workers '" + options.workers + "' has an empty id");
  }
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const MeshInfo created, client->CreateMesh(options.name, mesh, workers));
  std::fputs(MeshText(created, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status MeshList(const GlobalOptions& globals) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const std::vector<MeshInfo> meshes, client->ListMeshes());
  std::fputs(MeshesText(meshes, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status MeshDelete(const GlobalOptions& globals, const std::string& name) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_RETURN_IF_ERROR(client->DeleteMesh(name));
  std::fputs(globals.json() ? "{}\n" : ("mesh " + name + " is deleted\n").c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
