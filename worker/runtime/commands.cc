// What each command does, on the executor thread.
#include <set>
#include <utility>

#include "common/base/status.h"
#include "worker/runtime/mesh_groups.h"
#include "worker/runtime/runtime_impl.h"
#include "worker/runtime/share_states.h"
#include "worker/runtime/tensor_commands.h"

namespace tp::worker {
namespace {

WorkOutcome Refused(absl::Status status) {
  WorkOutcome outcome;
  outcome.status = std::move(status);
  return outcome;
}

}  // namespace

void WorkerRuntime::Impl::Apply(const Command& command, Ack* ack, std::vector<std::string>* streamed) {
  ack->failed_rank = -1;
  if (const auto* commit = std::get_if<Commit>(&command.kind)) {
    ack->status = ApplyCommit(*commit);
  } else if (const auto* release = std::get_if<Release>(&command.kind)) {
    ack->status = ApplyRelease(command, *release);
  } else if (std::holds_alternative<CloseMesh>(command.kind)) {
    ack->status = ApplyCloseMesh(command);
  } else if (const auto* drop = std::get_if<DropTensors>(&command.kind)) {
    tensors_.Drop(drop->tensor_ids);
  } else if (const auto* share = std::get_if<ShareStates>(&command.kind)) {
    ack->status = ApplyShareStates(command, *share);
  } else {
    WorkOutcome outcome;
    if (const auto* run = std::get_if<Run>(&command.kind)) {
      outcome = ApplyRun(command, *run);
    } else if (const auto* decode = std::get_if<Decode>(&command.kind)) {
      outcome = ApplyDecode(command, *decode);
    } else {
      outcome = ApplyTensorCommand(command);
    }
    EndEpochAfter(command, outcome);
    ack->status = std::move(outcome.status);
    ack->failed_rank = outcome.failed_rank;
    ack->run = std::move(outcome.run);
    ack->decode = std::move(outcome.decode);
    *streamed = std::move(outcome.streamed);
  }
}

absl::Status WorkerRuntime::Impl::ApplyCommit(const Commit& commit) {
  TP_RETURN_IF_ERROR(stages_->CheckFinished(commit.stage_ids));
  std::set<uint64_t> meshes;  // with a new model or communicator
  for (uint64_t id : commit.stage_ids) {
    TP_ASSIGN_OR_RETURN(Staged staged, stages_->Take(id));
    if (staged.model != nullptr) {
      meshes.insert(staged.model->mesh_id);
      models_[staged.model->name] = std::move(staged.model);
      continue;
    }
    TP_RETURN_IF_ERROR(tensors_.Publish(staged.tensors));
    if (staged.communicator == nullptr) continue;  // a listen, tensors, a save
    std::shared_ptr<Communicator> replaced;
    {
      const std::lock_guard lock(mutex_);
      const auto aborted = aborted_.find(staged.mesh_id);
      if (aborted != aborted_.end() && aborted->second.first >= staged.epoch) {
        return absl::AbortedError(absl::StrCat("epoch ", staged.epoch, " was aborted: ", aborted->second.second));
      }
      MeshEntry& mesh = meshes_[staged.mesh_id];
      if (mesh.epoch > staged.epoch) {
        return absl::FailedPreconditionError(absl::StrCat("commit of epoch ", staged.epoch, " of mesh ", staged.mesh_id,
                                                          ", expected ", mesh.epoch, " or later"));
      }
      AddWire(mesh, &closed_wire_);
      replaced = std::exchange(mesh.communicator, std::move(staged.communicator));
      mesh.epoch = staged.epoch;
      mesh.ended = absl::OkStatus();
      meshes.insert(staged.mesh_id);
    }
    // Where the old epoch broke off, ranks may differ in their sequences.
    for (auto& [name, model] : models_) {
      if (model->mesh_id == staged.mesh_id) {
        model->graphs.Clear();
        model->sequences = std::make_unique<SequenceTable>(model->sequences->pool().page_count());
      }
    }
  }
  for (const uint64_t mesh_id : meshes) PrepareGroups(mesh_id);
  return absl::OkStatus();
}

void WorkerRuntime::Impl::PrepareGroups(uint64_t mesh_id) {
  std::shared_ptr<Communicator> communicator;
  uint64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = meshes_.find(mesh_id);
    if (it == meshes_.end() || !it->second.ended.ok()) return;
    communicator = it->second.communicator;
    epoch = it->second.epoch;
  }
  if (communicator == nullptr) return;
  std::vector<std::vector<std::vector<int>>> partitions;
  for (const auto& entry : models_) {
    const LoadedModel& model = *entry.second;
    if (model.mesh_id != mesh_id) continue;
    for (const ProgramExecutor* executor : {model.forward.get(), model.step.get()}) {
      if (executor == nullptr || executor->program().mesh.rank_count() != communicator->size()) continue;
      for (auto& partition : GroupsOf(executor->program())) partitions.push_back(std::move(partition));
    }
  }
  if (partitions.empty()) return;
  // Peers may still run earlier commands, as before a command's first header.
  Pace pace(*clock_, absl::ZeroDuration(), progress_);
  const absl::Status status = communicator->PrepareGroups(partitions, pace.OpeningDeadline());
  if (status.ok()) return;
  const std::lock_guard lock(mutex_);
  const auto it = meshes_.find(mesh_id);
  if (it == meshes_.end() || it->second.epoch != epoch || !it->second.ended.ok()) return;
  ++epochs_ended_;
  it->second.ended = absl::AbortedError(
      absl::StrCat("epoch ", epoch, " ended where its groups were prepared: ", std::string(status.message())));
}

absl::Status WorkerRuntime::Impl::ApplyRelease(const Command& command, const Release& release) {
  const auto it = models_.find(release.model);
  if (it == models_.end()) return absl::OkStatus();
  if (it->second->mesh_id != command.mesh_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("model '", release.model, "' is on mesh ", it->second->mesh_id, ", not ", command.mesh_id));
  }
  models_.erase(it);
  return absl::OkStatus();
}

absl::Status WorkerRuntime::Impl::ApplyShareStates(const Command& command, const ShareStates& share) {
  const auto it = models_.find(share.model);
  if (it == models_.end() || it->second->mesh_id != command.mesh_id) {
    return absl::NotFoundError(absl::StrCat("model '", share.model, "' is not on mesh ", command.mesh_id, " here"));
  }
  return ShareStatesOf(*it->second, share, {*device_, *stream_, tensors_, memory_});
}

absl::Status WorkerRuntime::Impl::ApplyCloseMesh(const Command& command) {
  for (auto& [name, model] : models_) {
    if (model->mesh_id == command.mesh_id) model->graphs.Clear();
  }
  MeshEntry closed;  // freed outside the lock
  const std::lock_guard lock(mutex_);
  const auto it = meshes_.find(command.mesh_id);
  if (it == meshes_.end()) return absl::OkStatus();
  if (it->second.epoch != command.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("mesh ", command.mesh_id, ": expected epoch ", it->second.epoch, ", got ", command.epoch));
  }
  AddWire(it->second, &closed_wire_);
  std::swap(closed, it->second);
  meshes_.erase(it);
  aborted_.erase(command.mesh_id);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Communicator>> WorkerRuntime::Impl::CommunicatorFor(const Command& command) const {
  const std::lock_guard lock(mutex_);
  const auto it = meshes_.find(command.mesh_id);
  if (it == meshes_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("mesh ", command.mesh_id, " is not connected, got epoch ", command.epoch));
  }
  if (it->second.epoch != command.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("mesh ", command.mesh_id, ": expected epoch ", it->second.epoch, ", got ", command.epoch));
  }
  TP_RETURN_IF_ERROR(it->second.ended);
  return it->second.communicator;
}

absl::StatusOr<LoadedModel*> WorkerRuntime::Impl::ModelFor(const Command& command, const std::string& name,
                                                           int rank) const {
  const auto it = models_.find(name);
  if (it == models_.end()) return absl::NotFoundError(absl::StrCat("model '", name, "' is not loaded on rank ", rank));
  if (it->second->mesh_id != command.mesh_id || it->second->rank != rank) {
    return absl::FailedPreconditionError(absl::StrCat("model '", name, "' is rank ", it->second->rank, " of mesh ",
                                                      it->second->mesh_id, ", not rank ", rank, " of mesh ",
                                                      command.mesh_id));
  }
  return it->second.get();
}

WorkOutcome WorkerRuntime::Impl::ApplyRun(const Command& command, const Run& run) {
  const absl::StatusOr<std::shared_ptr<Communicator>> communicator = CommunicatorFor(command);
  if (!communicator.ok()) return Refused(communicator.status());
  const absl::StatusOr<LoadedModel*> model = ModelFor(command, run.model, (*communicator)->rank());
  absl::Status refused = model.status();
  std::deque<std::string> staged;  // keeps its strings in place
  std::vector<RunBlock> inputs;
  const auto note = [&](const RunInput& input, const absl::Status& status) {
    if (!status.ok() && refused.ok()) refused = Annotate(status, absl::StrCat("input '", input.name, "'"));
  };
  for (const RunInput& input : run.inputs) {
    if (input.tensor_id != 0) {
      absl::StatusOr<HeldTensorPtr> tensor = tensors_.Get(input.tensor_id);
      note(input, tensor.status());
      inputs.push_back({{}, tensor.ok() ? *std::move(tensor) : nullptr});
      continue;
    }
    if (input.stage_id == 0) {
      inputs.push_back({input.data, nullptr});
      continue;
    }
    absl::StatusOr<std::string> bytes = stages_->TakeBytes(input.stage_id);
    note(input, bytes.status());
    staged.push_back(bytes.ok() ? *std::move(bytes) : std::string());
    inputs.push_back({staged.back(), nullptr});
  }
  Pace pace(*clock_, command.timeout * options_.time_scale, progress_);
  return ExecuteRun(
      {*device_, *stream_, **communicator, arena_, pace, command.epoch, command.order, collectives_.get()},
      model.ok() ? *model : nullptr, run, inputs, refused);
}

WorkOutcome WorkerRuntime::Impl::ApplyDecode(const Command& command, const Decode& decode) {
  const absl::StatusOr<std::shared_ptr<Communicator>> communicator = CommunicatorFor(command);
  if (!communicator.ok()) return Refused(communicator.status());
  const absl::StatusOr<LoadedModel*> model = ModelFor(command, decode.model, (*communicator)->rank());
  Pace pace(*clock_, command.timeout * options_.time_scale, progress_);
  return ExecuteDecode({*device_, *stream_, **communicator, arena_, pace, command.epoch, command.order,
                        collectives_.get(), options_.graphs, options_.counters},
                       model.ok() ? *model : nullptr, decode, model.status());
}

WorkOutcome WorkerRuntime::Impl::ApplyTensorCommand(const Command& command) {
  const absl::StatusOr<std::shared_ptr<Communicator>> communicator = CommunicatorFor(command);
  if (!communicator.ok()) return Refused(communicator.status());
  Pace pace(*clock_, command.timeout * options_.time_scale, progress_);
  const TensorWork work{{*device_, *stream_, **communicator, arena_, pace, command.epoch, command.order},
                        command.mesh_id,
                        tensors_,
                        memory_};
  if (const auto* broadcast = std::get_if<Broadcast>(&command.kind)) return ExecuteBroadcast(work, *broadcast);
  if (const auto* transform = std::get_if<Transform>(&command.kind)) return ExecuteTransform(work, *transform);
  return ExecuteTransfer(work, std::get<tp::Transfer>(command.kind));
}

void WorkerRuntime::Impl::EndEpochAfter(const Command& command, const WorkOutcome& outcome) {
  if (!outcome.transport) return;
  const std::lock_guard lock(mutex_);
  const auto it = meshes_.find(command.mesh_id);
  if (it == meshes_.end() || it->second.epoch != command.epoch || !it->second.ended.ok()) return;
  ++epochs_ended_;
  it->second.ended = absl::AbortedError(absl::StrCat("epoch ", command.epoch, " ended with command ", command.order,
                                                     ": ", std::string(outcome.status.message())));
}

}  // namespace tp::worker
