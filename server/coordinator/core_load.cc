// Loading: listen, connect and load beside the streams, then one ordered Commit; and its undoing.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/load_plan.h"

namespace tp::server {

void Core::Impl::StartStaging(const std::string& name) {  // here and below: what its workers call it
  ModelState& model = Resident(name);
  LoadRecord& load = loads_.at(name);
  const MeshState& mesh = meshes_.at(model.mesh_id);
  load.step = LoadRecord::Step::kStaging;
  model.phase = ModelPhase::kLoading;
  const std::string resident = name;  // may live in what a failure erases
  // Dropped with the load, so the model is there whenever one of these is called.
  Connect(mesh.id, [this, name](const absl::Status& status) {
    if (!status.ok()) return FailLoad(name, status);
    loads_.at(name).connected = true;
    CommitLoad(name);
  });
  if (loads_.count(resident) == 0) return;  // its workers can't form a mesh
  load.group = OpenGroup("loading", [this, name](const absl::Status& status) {
    if (!status.ok()) return FailLoad(name, status);
    loads_.at(name).loaded = true;
    CommitLoad(name);
  });
  StageGroup& group = groups_.at(load.group);
  group.each = [this, name](const StageRecord& stage, const StageResult& result) {
    ModelRank& rank = Resident(name).ranks[stage.rank];
    rank.bytes_read = rank.done_bytes = rank.total_bytes = result.bytes_read;
    rank.parameter_bytes = result.parameter_bytes;
    Changed(Resident(name).name);
  };
  group.progressed = [this, name](const StageRecord& stage, int64_t done_bytes, int64_t total_bytes) {
    ModelRank& rank = Resident(name).ranks[stage.rank];
    rank.done_bytes = done_bytes;
    rank.total_bytes = total_bytes;
    Changed(Resident(name).name);
  };
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
  what.states = load.moves == nullptr ? StatesToLoad(compiled) : load.moves->states;
  what.seed = model.submission->seed;
  what.cache_pages = model.cache_pages;
  for (int rank = 0; rank < mesh.mesh.rank_count(); ++rank) {
    what.rank = rank;
    AddStage(load.group, mesh.id, rank, what);
  }
  Changed(model.name);
}

void Core::Impl::CommitLoad(const std::string& name) {
  LoadRecord& load = loads_.at(name);
  if (!load.connected || !load.loaded) return;
  load.step = LoadRecord::Step::kCommitting;
  CommitGroups(Resident(name).mesh_id, {load.group},
               [this, name](const absl::Status& status) { OnLoadCommitted(name, status); });
}

void Core::Impl::OnLoadCommitted(const std::string& name, const absl::Status& status) {
  if (loads_.count(name) == 0) return;
  if (!status.ok()) return FailLoad(name, status);
  ForgetGroup(loads_.at(name).group);
  if (loads_.at(name).replaces) return StoreReplacement(name);
  PublishLoad(name);
}

void Core::Impl::PublishLoad(const std::string& name) {
  ModelState& model = Resident(name);
  model.phase = ModelPhase::kReady;
  model.error = absl::OkStatus();
  ModelWork work;
  if (model.cache_pages > 0) {
    ComposerOptions composer;
    composer.model = name;
    composer.max_sequences = options_.max_sequences;
    composer.prefill_tokens = options_.prefill_tokens;
    composer.cache_pages = model.cache_pages;
    for (std::vector<int>& ranks : ReplicasOf(*model.compiled)) {
      work.replicas.push_back({std::move(ranks), DecodeComposer(composer)});
    }
  }
  work_[name] = std::move(work);
  const LoadRecord load = std::move(loads_.at(name));
  loads_.erase(name);
  Changed(model.name);
  ReplySubmit(load, absl::OkStatus(), model.name);
}

bool Core::Impl::AbandonLoad(const std::string& name) {
  const LoadRecord::Step step = loads_.at(name).step;
  const bool committed = step == LoadRecord::Step::kCommitting || step == LoadRecord::Step::kSwitching;
  const uint64_t group = loads_.at(name).group;
  const uint64_t moves = loads_.at(name).moves == nullptr ? 0 : loads_.at(name).moves->operation;
  loads_.erase(name);
  restored_.erase(std::remove(restored_.begin(), restored_.end(), name), restored_.end());
  DropGroup(group);
  EndOperation(moves, absl::CancelledError("the load ended"));
  const auto mesh = mesh_records_.find(Resident(name).mesh_id);
  if (mesh != mesh_records_.end()) DropGroup(std::exchange(mesh->second.connect, 0));
  return committed;
}

void Core::Impl::FailLoad(const std::string& name_view, const absl::Status& status_view) {
  const std::string resident = name_view;  // may live in what is erased here
  const absl::Status status = status_view;
  const LoadRecord load = loads_.at(resident);
  const bool committed = AbandonLoad(resident);
  ModelState& model = Resident(resident);
  const std::string name = model.name;
  if (model.mesh_id != 0) {
    CloseLinks(model.mesh_id, status);
    if (committed) FreeRanks(model.mesh_id, resident, nullptr);
    ForgetMesh(model.mesh_id);
  }
  ForgetReservation(resident);
  if (load.replaces) {  // the old one serves on
    if (load.step == LoadRecord::Step::kSwitching) {
      Emit(StoreSubmission{++last_token_, name, *models_.at(name).blob});
    }
    behind_.erase(resident);
  } else if (load.before != nullptr) {  // the step may be repeated
    Emit(EraseSubmission{++last_token_, name});
    model = *load.before;
  } else if (load.restored) {  // stays, with its error, until a user deletes it
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

}  // namespace tp::server
