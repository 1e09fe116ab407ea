// Named meshes: made of chosen or given workers, connected, broken, deleted.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {
namespace {

absl::Status CheckMeshName(const std::string& name) {
  const auto good = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  if (!name.empty() && name.size() <= 128 && absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
      std::all_of(name.begin(), name.end(), good)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "name: '", name.substr(0, 160),
      "': a mesh's name is 1 to 128 letters, digits, '.', '_' and '-', and begins with a letter or digit"));
}

// The given workers: as many as ranks, distinct, known and healthy.
absl::Status CheckGiven(const Mesh& mesh, const std::vector<std::string>& given,
                        const std::map<std::string, WorkerState>& workers) {
  if (static_cast<int>(given.size()) != mesh.rank_count()) {
    return absl::InvalidArgumentError(absl::StrCat("workers: ", given.size(), " are given, mesh ", mesh.ToString(),
                                                   " has ", mesh.rank_count(), " ranks"));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string field = absl::StrCat("workers[", i, "]: ");
    if (std::count(given.begin(), given.end(), given[i]) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "'", given[i].substr(0, 128), "' is given twice; a worker holds one rank of a mesh"));
    }
    const auto worker = workers.find(given[i]);
    if (worker == workers.end()) {
      std::vector<std::string> names;
      for (const auto& [id, state] : workers) names.push_back(id);
      return absl::NotFoundError(absl::StrCat(field, "no worker '", given[i].substr(0, 128),
                                              "'; nearest: ", JoinNames(NearestNames(given[i].substr(0, 128), names))));
    }
    if (!worker->second.healthy) {
      return absl::FailedPreconditionError(
          absl::StrCat(field, "worker '", given[i], "' is not healthy: ", worker->second.reason));
    }
    if (worker->second.draining) {
      return absl::UnavailableError(absl::StrCat(field, "worker '", given[i], "' is draining: it stops"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void Core::Impl::On(CreateMeshRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("creation of mesh '", event.name, "'"));
  if (operation == 0) return;
  const absl::Status status = StartMesh(operation, event);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartMesh(uint64_t operation, const CreateMeshRequested& event) {
  TP_RETURN_IF_ERROR(CheckMeshName(event.name));
  if (named_meshes_.count(event.name) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("mesh '", event.name, "' exists; deleting it frees the name"));
  }
  // Too few are the same refusal, whoever chooses.
  std::vector<std::string> workers = event.workers;
  if (workers.empty()) {
    TP_ASSIGN_OR_RETURN(workers, WorkersFor(event.mesh));
  } else {
    TP_RETURN_IF_ERROR(CheckGiven(event.mesh, workers, workers_));
  }
  const std::string name = event.name;
  const uint64_t mesh_id = MakeMesh(event.mesh, workers);
  NamedMesh mesh;
  mesh.name = name;
  mesh.mesh_id = mesh_id;
  named_meshes_[name] = std::move(mesh);
  Operation& running = operations_.at(operation);
  running.meshes.insert(mesh_id);
  running.undo = [this, name, mesh_id] {
    named_meshes_.erase(name);
    FreeRanks(mesh_id, "", nullptr);
    ForgetMesh(mesh_id);
    TryRestored();
  };
  Connect(mesh_id, Then(operation, [this, operation, name, mesh_id] {
            CommitGroups(mesh_id, {}, Then(operation, [this, operation, name] {
                           named_meshes_.at(name).phase = NamedMeshPhase::kReady;
                           operations_.at(operation).reply.mesh = name;
                           EndOperation(operation, absl::OkStatus());
                           return absl::OkStatus();
                         }));
            return absl::OkStatus();
          }));
  return absl::OkStatus();
}

absl::StatusOr<NamedMesh*> Core::Impl::FindMesh(const std::string& name, const std::string& field) {
  const auto it = named_meshes_.find(name);
  if (it != named_meshes_.end()) return &it->second;
  std::vector<std::string> names;
  for (const auto& [known, mesh] : named_meshes_) names.push_back(known);
  return absl::NotFoundError(
      absl::StrCat(field, ": no mesh '", name.substr(0, 128), "'; ",
                   names.empty() ? "there are none"
                                 : absl::StrCat("nearest: ", JoinNames(NearestNames(name.substr(0, 128), names)))));
}

absl::Status Core::Impl::CheckUsable(const NamedMesh& mesh) const {
  const auto refuse = [&](const std::string& text) {
    return absl::FailedPreconditionError(absl::StrCat("mesh '", mesh.name, "' ", text));
  };
  if (mesh.deleting) return refuse("is being deleted");
  if (mesh.phase == NamedMeshPhase::kConnecting) return refuse("is CONNECTING, not READY");
  if (mesh.phase == NamedMeshPhase::kBroken) {
    return refuse(absl::StrCat("is BROKEN and can only be deleted: ", std::string(mesh.error.message())));
  }
  const MeshRecord& record = mesh_records_.at(mesh.mesh_id);
  if (record.aborting.has_value()) {  // an epoch that is about to end takes nothing in
    return absl::UnavailableError(absl::StrCat("mesh '", mesh.name, "': ", std::string(record.cause.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedMesh*> Core::Impl::ReadyMesh(const std::string& name, const std::string& field) {
  TP_ASSIGN_OR_RETURN(NamedMesh * mesh, FindMesh(name, field));
  TP_RETURN_IF_ERROR(CheckUsable(*mesh));
  TP_RETURN_IF_ERROR(Annotate(CheckNotDraining(mesh->mesh_id), absl::StrCat("mesh '", name, "'")));
  return mesh;
}

void Core::Impl::On(DeleteMeshRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("deletion of mesh '", event.name, "'"));
  if (operation == 0) return;
  const absl::Status status = StartMeshDeletion(operation, event.name);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartMeshDeletion(uint64_t operation, const std::string& name) {
  TP_ASSIGN_OR_RETURN(NamedMesh * mesh, FindMesh(name, "name"));
  const auto refuse = [&](const std::string& text) {
    return absl::FailedPreconditionError(absl::StrCat("mesh '", name, "' ", text));
  };
  if (mesh->deleting) return refuse("is being deleted");
  std::vector<std::string> tensors;
  for (const auto& [known, tensor] : tensors_) {
    if (tensor.mesh_id == mesh->mesh_id) tensors.push_back(known);
  }
  if (!tensors.empty()) {
    const size_t count = tensors.size();
    tensors.resize(std::min<size_t>(count, 5));
    return refuse(absl::StrCat("holds ", count, count == 1 ? " tensor" : " tensors", "; delete first: ",
                               absl::StrJoin(tensors, ", "), count > tensors.size() ? ", ..." : ""));
  }
  const uint64_t mesh_id = mesh->mesh_id;
  const absl::Status in_use = MeshInUse(mesh_id, operation);
  if (!in_use.ok()) return Annotate(in_use, absl::StrCat("mesh '", name, "'"));
  mesh->deleting = true;
  operations_.at(operation).goes_on = true;
  CloseLinks(mesh_id, absl::CancelledError(absl::StrCat("mesh '", name, "' was deleted")));
  const auto finish = [this, operation, name, mesh_id] {
    if (named_meshes_.count(name) == 0 || named_meshes_.at(name).mesh_id != mesh_id) return;
    named_meshes_.erase(name);
    ForgetMesh(mesh_id);
    EndOperation(operation, absl::OkStatus());
    TryRestored();
  };
  if (FreeRanks(mesh_id, "", finish) == 0) finish();
  return absl::OkStatus();
}

void Core::Impl::NamedMeshBroken(uint64_t mesh_id, const absl::Status& status) {
  for (auto& [name, mesh] : named_meshes_) {
    if (mesh.mesh_id != mesh_id) continue;
    mesh.phase = NamedMeshPhase::kBroken;
    mesh.error = status;
  }
}

}  // namespace tp::server
