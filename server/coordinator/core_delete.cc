// Deletion, in every phase of a model.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

void Core::Impl::On(DeleteRequested event) {
  const auto refuse = [&](const absl::Status& status) {
    request_ids_.Finish(event.request_id, status);
    Emit(DeleteReply{event.call, status});
  };
  if (draining_) return Emit(DeleteReply{event.call, Draining()});
  RequestIds::Entry entry;
  switch (request_ids_.Begin(event.request_id, absl::StrCat("delete ", event.name), event.name, &entry)) {
    case RequestIds::State::kNew:
      break;
    case RequestIds::State::kOther:
      return Emit(DeleteReply{event.call, absl::AlreadyExistsError(absl::StrCat("request id '", event.request_id,
                                                                                "' was used for another request"))});
    case RequestIds::State::kFinished:
      return Emit(DeleteReply{event.call, entry.status});
    case RequestIds::State::kRunning:
      for (auto& [resident, deletion] : deletions_) {
        const auto& ids = deletion.request_ids;
        if (std::count(ids.begin(), ids.end(), event.request_id) > 0) deletion.calls.push_back(event.call);
      }
      return;
  }
  const auto it = models_.find(event.name);
  if (it == models_.end()) return refuse(NoSuchModel(event.name));
  const std::string name = event.name;
  ModelState& model = it->second;
  if (model.phase == ModelPhase::kDeleting) {
    DeletionRecord& deletion = deletions_.at(model.resident);
    deletion.calls.push_back(event.call);
    deletion.request_ids.push_back(event.request_id);
    return;
  }
  const absl::Status deleted = absl::CancelledError(absl::StrCat("model '", name, "' was deleted"));
  if (const std::string replacement = ReplacementOf(name); !replacement.empty()) FailLoad(replacement, deleted);
  const std::string resident = model.resident;
  bool committed = model.mesh_id != 0;
  if (loads_.count(resident) != 0) {
    const LoadRecord load = loads_.at(resident);
    committed = AbandonLoad(resident);
    ReplySubmit(load, deleted, name);
  }
  FailCalls(resident, deleted);
  DeletionRecord deletion;
  deletion.calls.push_back(event.call);
  deletion.request_ids.push_back(event.request_id);
  deletion.erase_token = ++last_token_;
  Emit(EraseSubmission{deletion.erase_token, name});
  StartFreeing(resident, committed, std::move(deletion));
}

void Core::Impl::StartFreeing(const std::string& resident, bool committed, DeletionRecord deletion) {
  ModelState& model = Resident(resident);
  model.phase = ModelPhase::kDeleting;
  deletion.id = ++last_token_;
  if (model.mesh_id != 0) {
    ForgetCommands(model.mesh_id);  // their results are for nobody
    if (committed) {
      deletion.commands = FreeRanks(model.mesh_id, resident, [this, resident, id = deletion.id] {
        const auto running = deletions_.find(resident);
        if (running == deletions_.end() || running->second.id != id) return;
        --running->second.commands;
        FinishDeletion(resident);
      });
    }
  }
  deletions_[resident] = std::move(deletion);
  Changed(model.name);
  FinishDeletion(resident);
}

void Core::Impl::FinishDeletion(const std::string& resident_view) {
  const std::string resident = resident_view;
  DeletionRecord& record = deletions_.at(resident);
  if (record.commands > 0 || record.erase_token != 0) return;
  const DeletionRecord deletion = std::move(record);
  deletions_.erase(resident);
  const std::string name = Resident(resident).name;
  const uint64_t mesh_id = Resident(resident).mesh_id;
  if (mesh_id != 0) ForgetMesh(mesh_id);
  ForgetReservation(resident);
  if (behind_.erase(resident) == 0) models_.erase(name);
  Changed(name);
  for (const std::string& id : deletion.request_ids) request_ids_.Finish(id, deletion.status);
  for (const CallId call : deletion.calls) Emit(DeleteReply{call, deletion.status});
  TryRestored();
}

void Core::Impl::ForgetReservation(const std::string& model) {
  const auto it = reserved_.find(model);
  if (it == reserved_.end()) return;
  ledger_.Release(it->second);
  reserved_.erase(it);
}

void Core::Impl::ReplySubmit(const LoadRecord& load, const absl::Status& status, const std::string& name) {
  request_ids_.Finish(load.request_id, status);
  for (const CallId call : load.calls) Emit(SubmitReply{call, status, name});
}

}  // namespace tp::server
