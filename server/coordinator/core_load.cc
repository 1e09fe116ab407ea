// Loading: listen, connect and load beside the streams, then one ordered Commit; and its undoing.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/load_plan.h"

namespace tp::server {

uint64_t Core::Impl::SendStageTo(uint64_t mesh_id, int rank, StageRecord::Kind kind, const std::string& model,
                                 CallId call, decltype(Stage::kind) what) {
  StageRecord record;
  record.kind = kind;
  record.worker = meshes_.at(mesh_id).workers[rank];
  record.session = mesh_records_.at(mesh_id).sessions[rank];
  record.rank = rank;
  record.model = model;
  record.call = call;
  record.last_change = now_;
  const uint64_t id = ++last_stage_;
  Emit(SendStage{record.worker, Stage{id, options_.term, std::move(what)}});
  stages_[id] = std::move(record);
  return id;
}

void Core::Impl::StartStaging(const std::string& name) {
  ModelState& model = models_.at(name);
  LoadRecord& load = loads_.at(name);
  const MeshState& mesh = meshes_.at(model.mesh_id);
  load.step = LoadRecord::Step::kStaging;
  model.phase = ModelPhase::kLoading;
  const int ranks = mesh.mesh.rank_count();
  load.addresses.assign(ranks, "");
  for (int rank = 0; rank < ranks; ++rank) {
    load.stages.push_back(
        SendStageTo(mesh.id, rank, StageRecord::Kind::kListen, name, 0, StageListen{mesh.id, mesh.epoch, rank, ranks}));
  }
  const CompiledModel& compiled = *model.compiled;
  StageLoad what;
  what.model = name;
  what.mesh_id = mesh.id;
  what.epoch = mesh.epoch;
  // The compiled model outlives its programs' users.
  what.program = std::shared_ptr<const ForwardProgram>(model.compiled, &compiled.program);
  if (compiled.step_program.has_value()) {
    what.step_program = std::shared_ptr<const ForwardProgram>(model.compiled, &*compiled.step_program);
  }
  what.fingerprint = compiled.fingerprint;
  what.states = StatesToLoad(compiled);
  what.seed = model.submission->seed;
  what.cache_pages = model.cache_pages;
  for (int rank = 0; rank < ranks; ++rank) {
    what.rank = rank;
    load.stages.push_back(SendStageTo(mesh.id, rank, StageRecord::Kind::kLoad, name, 0, what));
  }
  Changed(name);
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
  if (stage.kind != StageRecord::Kind::kLoad) return;
  ModelRank& rank = models_.at(stage.model).ranks[stage.rank];
  rank.done_bytes = event.done_bytes;
  rank.total_bytes = event.total_bytes;
  Changed(stage.model);
}

void Core::Impl::On(StageFinished event) {
  const auto it = stages_.find(event.result.stage_id);
  if (it == stages_.end() || it->second.finished || it->second.worker != event.worker) return;
  WorkerState* worker = Live(event.worker, event.incarnation);
  if (worker == nullptr || worker->session != it->second.session) return;
  it->second.finished = true;
  if (it->second.kind == StageRecord::Kind::kReceive) {
    const StageRecord stage = it->second;
    return ReceiveFinished(stage, event.result);
  }
  LoadStageFinished(&it->second, event.result);
}

void Core::Impl::LoadStageFinished(StageRecord* stage, const StageResult& result) {
  const std::string name = stage->model;
  ModelState& model = models_.at(name);
  LoadRecord& load = loads_.at(name);
  const uint64_t mesh_id = model.mesh_id;
  if (!result.status.ok()) return FailLoad(name, Annotate(result.status, RankText(mesh_id, stage->rank)));
  const int ranks = static_cast<int>(load.addresses.size());
  if (stage->kind == StageRecord::Kind::kListen) {
    load.addresses[stage->rank] = result.address;
    ++load.listening;
  } else if (stage->kind == StageRecord::Kind::kLoad) {
    ModelRank& rank = model.ranks[stage->rank];
    rank.bytes_read = rank.done_bytes = rank.total_bytes = result.bytes_read;
    rank.parameter_bytes = result.parameter_bytes;
    Changed(name);
  }
  const uint64_t epoch = meshes_.at(mesh_id).epoch;
  if (load.listening == ranks && !load.connecting) {
    load.connecting = true;
    for (int rank = 0; rank < ranks; ++rank) {
      load.stages.push_back(SendStageTo(mesh_id, rank, StageRecord::Kind::kConnect, name, 0,
                                        StageConnect{mesh_id, epoch, load.addresses, options_.connect_timeout}));
    }
  }
  if (!load.connecting) return;
  for (const uint64_t id : load.stages) {
    if (!stages_.at(id).finished) return;
  }
  load.step = LoadRecord::Step::kCommitting;
  std::vector<Commit> commits(ranks);
  for (const uint64_t id : load.stages) {
    // In the order of their sending but for the loads, which come last: the communicator before the model that uses it.
    const StageRecord& staged = stages_.at(id);
    if (staged.kind != StageRecord::Kind::kLoad) commits[staged.rank].stage_ids.push_back(id);
  }
  for (const uint64_t id : load.stages) {
    const StageRecord& staged = stages_.at(id);
    if (staged.kind == StageRecord::Kind::kLoad) commits[staged.rank].stage_ids.push_back(id);
  }
  Append(mesh_id, CommandRecord::Purpose::kCommit, CommandClass::kControl, name, 0,
         [&](int rank) { return commits[rank]; });
}

void Core::Impl::OnCommitted(const CommandRecord& record, const absl::Status& status) {
  const std::string name = record.model;
  if (loads_.count(name) == 0) return;
  if (!status.ok()) return FailLoad(name, status);
  ModelState& model = models_.at(name);
  model.phase = ModelPhase::kReady;
  model.error = absl::OkStatus();
  ModelWork work;
  if (model.cache_pages > 0) {
    ComposerOptions composer;
    composer.model = name;
    composer.max_sequences = options_.max_sequences;
    composer.prefill_tokens = options_.prefill_tokens;
    composer.cache_pages = model.cache_pages;
    work.composer.emplace(std::move(composer));
  }
  work_[name] = std::move(work);
  LoadRecord load = std::move(loads_.at(name));
  loads_.erase(name);
  for (const uint64_t id : load.stages) stages_.erase(id);
  Changed(name);
  ReplySubmit(load, absl::OkStatus(), name);
}

void Core::Impl::ReplySubmit(const LoadRecord& load, const absl::Status& status, const std::string& name) {
  request_ids_.Finish(load.request_id, status);
  for (const CallId call : load.calls) Emit(SubmitReply{call, status, name});
}

void Core::Impl::DropStages(const std::vector<uint64_t>& stages) {
  for (const uint64_t id : stages) {
    const auto it = stages_.find(id);
    if (it == stages_.end()) continue;
    const auto worker = workers_.find(it->second.worker);
    if (worker != workers_.end() && worker->second.healthy && worker->second.session == it->second.session) {
      Emit(SendDrop{it->second.worker, id});
    }
    stages_.erase(it);
  }
}

void Core::Impl::ForgetMesh(uint64_t mesh_id) {
  ForgetCommands(mesh_id);
  meshes_.erase(mesh_id);
  mesh_records_.erase(mesh_id);
}

bool Core::Impl::AbandonLoad(const std::string& name) {
  const bool committed = loads_.at(name).step == LoadRecord::Step::kCommitting;
  const std::vector<uint64_t> stages = std::move(loads_.at(name).stages);
  loads_.erase(name);
  restored_.erase(std::remove(restored_.begin(), restored_.end(), name), restored_.end());
  DropStages(stages);
  return committed;
}

void Core::Impl::FailLoad(const std::string& name_view, const absl::Status& status_view) {
  const std::string name = name_view;  // may live in what is erased here
  const absl::Status status = status_view;
  const LoadRecord load = loads_.at(name);
  const bool committed = AbandonLoad(name);
  ModelState& model = models_.at(name);
  if (model.mesh_id != 0) {
    if (committed) FreeRanks(model.mesh_id, name, 0);
    ForgetMesh(model.mesh_id);
  }
  reserved_.erase(name);
  if (load.restored) {  // stays, with its error, until a user deletes it
    model.phase = ModelPhase::kFailed;
    model.error = status;
    model.mesh_id = 0;
    model.ranks.clear();
  } else {
    Emit(EraseSubmission{++last_token_, name});
    models_.erase(name);
  }
  Changed(name);
  ReplySubmit(load, status, name);
}

void Core::Impl::CheckStages() {
  std::vector<uint64_t> still;
  for (const auto& [id, stage] : stages_) {
    if (!stage.finished && now_ - stage.last_change > Scaled(options_.stage_progress_limit)) still.push_back(id);
  }
  for (const uint64_t id : still) {
    const auto it = stages_.find(id);
    if (it == stages_.end()) continue;  // went with another one
    const StageRecord stage = it->second;
    StageResult result;
    result.stage_id = id;
    result.status = absl::DeadlineExceededError(
        absl::StrCat(stage.kind == StageRecord::Kind::kReceive ? "receiving an input" : "loading", " stands still for ",
                     absl::FormatDuration(now_ - stage.last_change)));
    if (stage.kind == StageRecord::Kind::kReceive) {
      ReceiveFinished(stage, result);
    } else {
      LoadStageFinished(&it->second, result);
    }
  }
}

}  // namespace tp::server
