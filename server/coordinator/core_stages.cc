// Work beside the streams: groups of stages that must all finish, the connecting of a mesh, and one ordered Commit for
// what was staged.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/worker_addresses.h"

namespace tp::server {

uint64_t Core::Impl::OpenGroup(std::string what, Done done) {
  const uint64_t id = ++last_group_;
  StageGroup group;
  group.what = std::move(what);
  group.done = std::move(done);
  groups_[id] = std::move(group);
  return id;
}

uint64_t Core::Impl::AddStage(uint64_t group, uint64_t mesh_id, int rank, decltype(Stage::kind) what) {
  StageRecord record;
  record.group = group;
  record.worker = meshes_.at(mesh_id).workers[rank];
  record.session = mesh_records_.at(mesh_id).sessions[rank];
  record.rank = rank;
  record.label = RankText(mesh_id, rank);
  record.last_change = now_;
  const uint64_t id = ++last_stage_;
  Emit(SendStage{record.worker, Stage{id, options_.term, std::move(what)}});
  stages_[id] = std::move(record);
  StageGroup& members = groups_.at(group);
  members.stages.push_back(id);
  ++members.missing;
  return id;
}

void Core::Impl::DropGroup(uint64_t group) {
  const auto it = groups_.find(group);
  if (it == groups_.end()) return;
  for (const uint64_t id : it->second.stages) {
    const StageRecord& stage = stages_.at(id);
    const auto worker = workers_.find(stage.worker);
    if (worker != workers_.end() && worker->second.healthy && worker->second.session == stage.session) {
      Emit(SendDrop{stage.worker, id});
    }
  }
  ForgetGroup(group);
}

void Core::Impl::ForgetGroup(uint64_t group) {
  const auto it = groups_.find(group);
  if (it == groups_.end()) return;
  for (const uint64_t id : it->second.stages) stages_.erase(id);
  groups_.erase(it);
}

uint64_t Core::Impl::MakeMesh(const Mesh& mesh, const std::vector<std::string>& workers) {
  MeshState state;
  state.id = ++last_mesh_;
  ++counts_.epochs;
  state.mesh = mesh;
  state.workers = workers;
  MeshRecord record;
  for (const std::string& id : workers) record.sessions.push_back(workers_.at(id).session);
  const uint64_t id = state.id;
  mesh_records_[id] = std::move(record);
  meshes_[id] = std::move(state);
  return id;
}

void Core::Impl::Connect(uint64_t mesh_id, Done done) {
  if (absl::Status together = CheckTogether(meshes_.at(mesh_id).workers); !together.ok()) return done(together);
  const int ranks = static_cast<int>(meshes_.at(mesh_id).workers.size());
  const uint64_t epoch = meshes_.at(mesh_id).epoch;
  const uint64_t group = OpenGroup("connecting", nullptr);
  MeshRecord& record = mesh_records_.at(mesh_id);
  record.connect = group;
  record.addresses.assign(ranks, "");
  groups_.at(group).each = [this, mesh_id](const StageRecord& stage, const StageResult& result) {
    if (!result.address.empty()) mesh_records_.at(mesh_id).addresses[stage.rank] = result.address;
  };
  groups_.at(group).done = [this, mesh_id, group, ranks, epoch, done = std::move(done)](const absl::Status& status) {
    if (!status.ok()) return done(status);
    // All listen: the second half. Ranks know their peers by address only.
    groups_.at(group).done = [this, mesh_id, done](const absl::Status& connected) {
      if (connected.ok()) return done(connected);
      const std::vector<std::string>& workers = meshes_.at(mesh_id).workers;
      std::vector<std::string> hosts;
      for (const std::string& id : workers) hosts.push_back(workers_.at(id).description.host);
      const std::string names = NamesOfAddresses(std::string(connected.message()), workers, hosts);
      if (names.empty()) return done(connected);
      done(absl::Status(connected.code(), absl::StrCat(std::string(connected.message()), "; ", names)));
    };
    for (int rank = 0; rank < ranks; ++rank) {
      AddStage(group, mesh_id, rank,
               StageConnect{mesh_id, epoch, mesh_records_.at(mesh_id).addresses, options_.connect_timeout});
    }
  };
  for (int rank = 0; rank < ranks; ++rank) AddStage(group, mesh_id, rank, StageListen{mesh_id, epoch, rank, ranks});
}

void Core::Impl::CommitGroups(uint64_t mesh_id, std::vector<uint64_t> groups, Done done) {
  // The communicator before what uses it.
  const uint64_t connect = mesh_records_.at(mesh_id).connect;
  if (connect != 0) groups.insert(groups.begin(), connect);
  std::vector<Commit> commits(meshes_.at(mesh_id).workers.size());
  for (const uint64_t group : groups) {
    for (const uint64_t id : groups_.at(group).stages) commits[stages_.at(id).rank].stage_ids.push_back(id);
  }
  AppendOptions options;
  options.commits = true;
  Append(
      mesh_id, options, [&](int rank) { return commits[rank]; },
      [this, mesh_id, connect, done = std::move(done)](const CommandRecord&, const absl::Status& status) {
        if (status.ok() && connect != 0) {
          ForgetGroup(connect);
          mesh_records_.at(mesh_id).connect = 0;
        }
        done(status);
      });
}

void Core::Impl::ForgetMesh(uint64_t mesh_id) {
  ForgetCommands(mesh_id);
  const auto record = mesh_records_.find(mesh_id);
  if (record != mesh_records_.end() && record->second.connect != 0) DropGroup(record->second.connect);
  meshes_.erase(mesh_id);
  mesh_records_.erase(mesh_id);
}

void Core::Impl::On(StageProgressed event) {
  const auto it = stages_.find(event.stage_id);
  if (it == stages_.end() || it->second.finished || it->second.worker != event.worker) return;
  WorkerState* worker = Live(event.worker, event.incarnation);
  if (worker == nullptr || worker->session != it->second.session) return;
  StageRecord& stage = it->second;
  if (stage.done_bytes == event.done_bytes) return;
  stage.done_bytes = event.done_bytes;
  stage.last_change = now_;
  const StageGroup& group = groups_.at(stage.group);
  if (group.progressed) group.progressed(stage, event.done_bytes, event.total_bytes);
}

void Core::Impl::On(StageFinished event) {
  const auto it = stages_.find(event.result.stage_id);
  if (it == stages_.end() || it->second.finished || it->second.worker != event.worker) return;
  WorkerState* worker = Live(event.worker, event.incarnation);
  if (worker == nullptr || worker->session != it->second.session) return;
  event.result.status = Annotate(event.result.status, it->second.label);
  FinishStage(event.result.stage_id, event.result);
}

void Core::Impl::FinishStage(uint64_t stage_id, const StageResult& result) {
  StageRecord& stage = stages_.at(stage_id);
  stage.finished = true;
  StageGroup& group = groups_.at(stage.group);
  --group.missing;
  if (!group.done) return;  // has failed already
  if (result.status.ok() && group.each) group.each(stage, result);
  if (result.status.ok() && group.missing > 0) return;
  std::exchange(group.done, nullptr)(result.status);  // which may end the group
}

void Core::Impl::FailStagesOn(const std::string& worker, const std::string& reason) {
  std::vector<uint64_t> lost;
  for (const auto& [id, stage] : stages_) {
    if (stage.worker == worker && !stage.finished) lost.push_back(id);
  }
  for (const uint64_t id : lost) {
    const auto it = stages_.find(id);
    if (it == stages_.end()) continue;  // went with another one
    StageResult result;
    result.stage_id = id;
    result.status = absl::UnavailableError(absl::StrCat(it->second.label, " was lost: ", reason));
    FinishStage(id, result);
  }
}

void Core::Impl::CheckStages() {
  std::vector<uint64_t> still;
  for (const auto& [id, stage] : stages_) {
    if (!stage.finished && now_ - stage.last_change > Scaled(options_.stage_progress_limit)) still.push_back(id);
  }
  for (const uint64_t id : still) {
    const auto it = stages_.find(id);
    if (it == stages_.end()) continue;  // went with another one
    StageResult result;
    result.stage_id = id;
    result.status = absl::DeadlineExceededError(absl::StrCat(it->second.label, ": ", groups_.at(it->second.group).what,
                                                             " stands still for ",
                                                             absl::FormatDuration(now_ - it->second.last_change)));
    FinishStage(id, result);
  }
}

}  // namespace tp::server
