// Workers: join, heartbeats, lease and progress; and what ends with a lost one.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/worker_addresses.h"
#include "server/coordinator/worker_kinds.h"
#include "server/scheduler/choose_workers.h"

namespace tp::server {

void Core::Impl::On(WorkerJoined event) {
  const WorkerDescription& worker = event.worker;
  const auto refuse = [&](absl::Status status) { Emit(RefuseJoin{worker.id, worker.incarnation, std::move(status)}); };
  if (worker.id.empty()) return refuse(absl::InvalidArgumentError("worker id is empty"));
  if (worker.version != options_.version) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("worker '", worker.id, "' has version ", worker.version, ", the coordinator ", options_.version)));
  }
  if (absl::Status advertised = CheckAdvertised(worker); !advertised.ok()) return refuse(std::move(advertised));
  const auto it = workers_.find(worker.id);
  if (it != workers_.end() && it->second.healthy) {
    return refuse(
        absl::AlreadyExistsError(absl::StrCat("worker '", worker.id, "' is already here (process ",
                                              it->second.description.pid, " on ", it->second.description.host, ")")));
  }
  for (const auto& [id, other] : workers_) {
    const std::string& theirs = other.description.collectives;
    if (!other.healthy || LibraryOf(theirs) != LibraryOf(worker.collectives) || theirs == worker.collectives) continue;
    return refuse(
        absl::FailedPreconditionError(absl::StrCat("worker '", worker.id, "' has ", worker.collectives, ", worker '",
                                                   id, "' ", theirs, ": versions must be equal")));
  }
  WorkerState state;
  state.description = worker;
  state.session = ++last_session_;
  state.last_heartbeat = now_;
  state.head_since = state.moved_since = now_;
  workers_[worker.id] = std::move(state);
  ++counts_.workers_joined;
  Emit(SendWelcome{worker.id, options_.term});
  TryRestored();
}

WorkerState* Core::Impl::Live(const std::string& worker, const std::string& incarnation) {
  const auto it = workers_.find(worker);
  if (it == workers_.end() || !it->second.healthy) return nullptr;
  return it->second.description.incarnation == incarnation ? &it->second : nullptr;
}

void Core::Impl::On(WorkerHeartbeat event) {
  WorkerState* worker = Live(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heartbeat = now_;
  worker->used_bytes = event.used_bytes;
  if (event.progress != worker->progress) worker->moved_since = now_;
  worker->progress = event.progress;
  // Nothing is complete that was never sent.
  if (event.completed_sequence < worker->next_sequence) {
    worker->completed_sequence = std::max(worker->completed_sequence, event.completed_sequence);
  }
}

void Core::Impl::On(WorkerLost event) {
  const WorkerState* worker = Live(event.worker, event.incarnation);
  if (worker == nullptr) return;
  if (worker->draining) event.reason = absl::StrCat("it was draining; ", event.reason);
  LoseWorker(event.worker, event.reason);
}

void Core::Impl::On(WorkerDraining event) {
  if (WorkerState* worker = Live(event.worker, event.incarnation)) worker->draining = true;
}

std::set<uint64_t> Core::Impl::MeshesAtWork() {
  std::set<uint64_t> meshes;
  for (const auto& [id, call] : forwards_) meshes.insert(Resident(call.model).mesh_id);
  for (const auto& [id, call] : generates_) meshes.insert(Resident(call.model).mesh_id);
  for (const auto& [resident, load] : loads_) meshes.insert(Resident(resident).mesh_id);
  for (const auto& [id, operation] : operations_) {
    meshes.insert(operation.meshes.begin(), operation.meshes.end());
    for (const uint64_t blocks : operation.uses) {
      const auto it = blocks_.find(blocks);
      if (it != blocks_.end()) meshes.insert(it->second.mesh_id);
    }
  }
  return meshes;
}

void Core::Impl::LetWorkersGo() {
  for (auto& [id, worker] : workers_) {
    if (!worker.healthy || !worker.draining || worker.let_go || !worker.pending.empty()) continue;
    const auto on_it = [&, name = id](const auto& entry) { return entry.second.worker == name; };
    if (std::any_of(stages_.begin(), stages_.end(),
                    [&](const auto& entry) { return on_it(entry) && !entry.second.finished; })) {
      continue;
    }
    bool works = false;
    for (const uint64_t mesh_id : MeshesAtWork()) {
      const auto mesh = meshes_.find(mesh_id);
      if (mesh == meshes_.end()) continue;
      works = works || std::count(mesh->second.workers.begin(), mesh->second.workers.end(), id) > 0;
    }
    if (works) continue;
    worker.let_go = true;
    Emit(LetWorkerGo{id});
  }
}

absl::Status Core::Impl::CheckNotDraining(uint64_t mesh_id) const {
  const auto mesh = meshes_.find(mesh_id);
  if (mesh == meshes_.end()) return absl::OkStatus();
  for (int rank = 0; rank < static_cast<int>(mesh->second.workers.size()); ++rank) {
    if (!AliveRank(mesh_id, rank) || !workers_.at(mesh->second.workers[rank]).draining) continue;
    return absl::UnavailableError(
        absl::StrCat(RankText(mesh_id, rank), " is draining: it stops and takes no new requests"));
  }
  return absl::OkStatus();
}

bool Core::Impl::AliveRank(uint64_t mesh_id, int rank) const {
  const auto mesh = meshes_.find(mesh_id);
  if (mesh == meshes_.end()) return false;
  const auto worker = workers_.find(mesh->second.workers[rank]);
  return worker != workers_.end() && worker->second.healthy &&
         worker->second.session == mesh_records_.at(mesh_id).sessions[rank];
}

std::string Core::Impl::RankText(uint64_t mesh_id, int rank) const {
  const auto mesh = meshes_.find(mesh_id);
  if (mesh == meshes_.end() || rank < 0 || rank >= static_cast<int>(mesh->second.workers.size())) {
    return absl::StrCat("rank ", rank);
  }
  return absl::StrCat("rank ", rank, " (worker ", mesh->second.workers[rank], ")");
}

void Core::Impl::LoseWorker(const std::string& worker, const std::string& reason) {
  WorkerState& state = workers_.at(worker);
  std::vector<std::pair<uint64_t, int>> held;  // mesh, rank
  for (const auto& [id, mesh] : meshes_) {
    for (int rank = 0; rank < static_cast<int>(mesh.workers.size()); ++rank) {
      if (mesh.workers[rank] == worker && AliveRank(id, rank)) held.emplace_back(id, rank);
    }
  }
  ++counts_.workers_lost;
  state.healthy = false;
  state.reason = reason;
  state.used_bytes = 0;
  state.pending.clear();
  Emit(SendFence{worker, state.description.incarnation, reason});
  ledger_.LoseWorker(worker);
  FreedOn(worker);
  for (const auto& [id, rank] : held) {
    if (meshes_.count(id) == 0) continue;
    const std::string cause = absl::StrCat(RankText(id, rank), " was lost: ", reason);
    LoseTensors(id, cause);
    BreakMesh(id, absl::UnavailableError(cause));
  }
  FailStagesOn(worker, reason);
}

void Core::Impl::SendAborts(uint64_t mesh_id, const std::string& reason) {
  const MeshState& mesh = meshes_.at(mesh_id);
  for (int rank = 0; rank < static_cast<int>(mesh.workers.size()); ++rank) {
    if (AliveRank(mesh_id, rank)) Emit(SendAbort{mesh.workers[rank], mesh_id, mesh.epoch, reason});
  }
}

void Core::Impl::BreakMesh(uint64_t mesh_id, const absl::Status& status) {
  MeshState& mesh = meshes_.at(mesh_id);
  if (mesh.broken) return;
  mesh.broken = true;
  ++counts_.epochs_broken;
  MeshRecord& record = mesh_records_.at(mesh_id);
  if (!record.aborting.has_value()) SendAborts(mesh_id, std::string(status.message()));
  record.aborting.reset();
  ForgetCommands(mesh_id);
  // Survivors answer the abort; they get their whole time for it.
  for (int rank = 0; rank < static_cast<int>(mesh.workers.size()); ++rank) {
    if (AliveRank(mesh_id, rank)) workers_.at(mesh.workers[rank]).moved_since = now_;
  }
  std::vector<std::string> residents;
  for (const auto* models : {&models_, &behind_}) {
    for (const auto& [name, model] : *models) {
      if (model.mesh_id == mesh_id) residents.push_back(model.resident);
    }
  }
  for (const std::string& resident : residents) {
    ModelState& model = Resident(resident);
    if (loads_.count(resident) != 0) {
      FailLoad(resident, status);
    } else if (model.phase == ModelPhase::kReady) {
      model.phase = ModelPhase::kFailed;
      model.error = status;
      FailCalls(resident, status);
      Changed(model.name);
    }
  }
  EndOperationsOn(mesh_id, status);
  NamedMeshBroken(mesh_id, status);
  CloseLinks(mesh_id, status);
}

absl::StatusOr<std::vector<std::string>> Core::Impl::WorkersFor(const Mesh& mesh, uint64_t near) const {
  std::map<std::string, int> ranks;
  for (const auto& [id, state] : meshes_) {
    if (state.link || id == near) continue;
    for (int rank = 0; rank < static_cast<int>(state.workers.size()); ++rank) {
      if (AliveRank(id, rank)) ++ranks[state.workers[rank]];
    }
  }
  // A mesh is of one kind of worker, of the kind that has the most, and holds a device once.
  const std::string kind = MostCommonKind(workers_);
  std::map<std::string, WorkerCandidate> devices;
  size_t healthy = 0, others = 0, shared = 0;
  std::vector<std::string> draining;
  for (const auto& [id, worker] : workers_) {
    if (!worker.healthy) continue;
    if (worker.draining) {
      draining.push_back(id);
      continue;
    }
    ++healthy;
    if (worker.description.collectives != kind) {
      ++others;
      continue;
    }
    const bool holds =
        near != 0 && std::count(meshes_.at(near).workers.begin(), meshes_.at(near).workers.end(), id) > 0;
    WorkerCandidate candidate{id, worker.description.host, 2 * ranks[id] + (holds ? 0 : 1)};
    const std::string& identity = worker.description.identity;
    const auto [it, first] = devices.emplace(identity.empty() ? "worker " + id : identity, candidate);
    if (first) continue;
    ++shared;
    if (candidate.ranks < it->second.ranks) it->second = std::move(candidate);
  }
  std::vector<WorkerCandidate> candidates;
  for (auto& [identity, candidate] : devices) candidates.push_back(std::move(candidate));
  std::vector<std::string> chosen = ChooseWorkers(std::move(candidates), mesh.rank_count());
  if (chosen.empty()) {
    std::string text =
        absl::StrCat("mesh ", mesh.ToString(), " needs ", mesh.rank_count(), " workers, ", healthy, " are healthy");
    if (others > 0) absl::StrAppend(&text, ", at most ", healthy - others, " of one kind (", kind, ")");
    if (shared > 0) absl::StrAppend(&text, ", on ", devices.size(), devices.size() == 1 ? " device" : " devices");
    if (!draining.empty()) absl::StrAppend(&text, "; draining: ", absl::StrJoin(draining, ", "));
    return absl::FailedPreconditionError(text);
  }
  TP_RETURN_IF_ERROR(CheckTogether(chosen));
  return chosen;
}

// Workers of two kinds can't exchange tensors, two on one GPU wait for each other, and loopback ends at its host.
absl::Status Core::Impl::CheckTogether(const std::vector<std::string>& workers) const {
  std::map<std::string, std::string> holders;
  for (const std::string& id : workers) {
    const WorkerDescription& worker = workers_.at(id).description;
    if (worker.identity.empty()) continue;
    const auto [it, first] = holders.emplace(worker.identity, id);
    if (first || it->second == id) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("workers '", it->second, "' and '", id, "' are on one GPU: ", worker.device));
  }
  for (const std::string& id : workers) {
    const std::string& first = workers_.at(workers[0]).description.collectives;
    const std::string& other = workers_.at(id).description.collectives;
    if (first == other) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("workers of two kinds in one mesh: '", workers[0], "' has ", first, ", '", id, "' has ", other));
  }
  std::vector<const WorkerDescription*> descriptions;
  for (const std::string& id : workers) descriptions.push_back(&workers_.at(id).description);
  return CheckOneNetwork(descriptions);
}

absl::StatusOr<uint64_t> Core::Impl::ReserveMemory(const std::string& what, const std::vector<std::string>& workers,
                                                   const std::vector<int64_t>& bytes) {
  std::vector<MemoryNeed> needs;
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    needs.push_back({workers[rank], static_cast<int>(rank), bytes[rank],
                     workers_.at(workers[rank]).description.memory_limit_bytes});
  }
  return ledger_.Reserve(what, needs);
}

// A rank whose peer still runs an earlier command, of another mesh perhaps, waits and does not hang.
bool Core::Impl::WaitsForPeers(const WorkerState& worker) const {
  if (worker.pending.empty()) return false;
  const uint64_t order = worker.pending.front().order;
  const auto record = commands_.find(order);
  if (record == commands_.end()) return false;
  return std::any_of(record->second.workers.begin(), record->second.workers.end(), [&](const std::string& peer) {
    const auto it = workers_.find(peer);
    return it != workers_.end() && it->second.healthy && !it->second.pending.empty() &&
           it->second.pending.front().order < order;
  });
}

// A rank that hangs makes its peers hang too. The one whose command is the oldest in the total order goes first, then
// the one that completed least; the others get their whole time again once the mesh is aborted.
void Core::Impl::CheckWorkers() {
  std::vector<std::string> silent;
  for (const auto& [id, worker] : workers_) {
    if (worker.healthy && now_ - worker.last_heartbeat > Scaled(options_.lease)) silent.push_back(id);
  }
  for (const std::string& id : silent) {
    const absl::Duration silence = now_ - workers_.at(id).last_heartbeat;
    LoseWorker(id, absl::StrCat("no heartbeat for ", absl::FormatDuration(silence)));
  }
  for (auto& [id, worker] : workers_) {
    if (WaitsForPeers(worker)) worker.moved_since = now_;
  }
  while (true) {
    const WorkerState* worst = nullptr;
    for (const auto& [id, worker] : workers_) {
      if (!worker.healthy || !Overdue(worker, now_)) continue;
      const auto key = [](const WorkerState& w) {
        return std::make_pair(w.pending.front().order, w.completed_sequence);
      };
      if (worst == nullptr || key(worker) < key(*worst)) worst = &worker;
    }
    if (worst == nullptr) return;
    const std::string id = worst->description.id;
    LoseWorker(id, absl::StrCat("command ", worst->pending.front().sequence, " stands still for ",
                                absl::FormatDuration(now_ - worst->moved_since)));
  }
}

}  // namespace tp::server
