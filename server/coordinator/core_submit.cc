// Submissions: names, request ids, workers, memory, the store.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/load_plan.h"

namespace tp::server {

absl::Status Core::Impl::CheckName(const std::string& name) const {
  const auto good = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  if (name.empty() || name.size() > 128 || !absl::ascii_isalnum(static_cast<unsigned char>(name[0])) ||
      !std::all_of(name.begin(), name.end(), good)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "name '", name.substr(0, 160),
        "': a model's name is 1 to 128 letters, digits, '.', '_' and '-', and begins with a letter or digit"));
  }
  const auto it = models_.find(name);
  if (it == models_.end()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("model '", name, "' exists and is ",
                                               std::string(ModelPhaseName(it->second.phase)),
                                               "; deleting it frees the name"));
}

void Core::Impl::On(SubmitRequested event) {
  const std::string name = event.submission->name;
  const bool restored = event.call == 0;
  const auto refuse = [&](const absl::Status& status) {
    request_ids_.Finish(event.request_id, status);
    if (!restored) Emit(SubmitReply{event.call, status, name});
  };
  if (restored && draining_) return;
  if (!BeginStep(event.call, event.request_id, event.digest, name)) return;
  const absl::Status named = event.replace ? CheckReplace(name) : CheckName(name);
  if (event.dry_run) {
    request_ids_.Forget(event.request_id);
    return Emit(SubmitReply{event.call, named, name});
  }
  if (!named.ok()) return refuse(named);
  ModelState model;
  model.name = name;
  model.resident = NewResident(name);
  model.blob = std::make_shared<const std::string>(event.blob);
  model.submission = event.submission;
  model.compiled = event.compiled;
  LoadRecord load;
  load.request_id = event.request_id;
  load.restored = restored;
  load.replaces = event.replace;
  const std::string resident = model.resident;
  if (event.replace) {
    const absl::Status reserved = Reserve(&model);
    if (!reserved.ok()) return refuse(reserved);
    load.calls.push_back(event.call);
    model.phase = ModelPhase::kLoading;
    behind_[resident] = std::move(model);
    loads_[resident] = std::move(load);
    return StartMoves(resident);
  }
  if (!restored) {
    const absl::Status reserved = Reserve(&model);
    if (!reserved.ok()) return refuse(reserved);
    load.calls.push_back(event.call);
    load.store_token = ++last_token_;
    Emit(StoreSubmission{load.store_token, name, std::move(event.blob)});
  } else {
    load.step = LoadRecord::Step::kWaiting;
    restored_.push_back(resident);
  }
  models_[name] = std::move(model);
  loads_[resident] = std::move(load);
  Changed(name);
  if (restored) TryRestored();
}

void Core::Impl::On(StoreFinished event) {
  for (auto& [name, deletion] : deletions_) {
    if (deletion.erase_token != event.token) continue;
    deletion.erase_token = 0;
    deletion.status =
        Annotate(event.status, absl::StrCat("model '", Resident(name).name, "' is freed, but still in the store"));
    const std::string deleted = name;
    return FinishDeletion(deleted);
  }
  for (const auto& [name, load] : loads_) {
    const bool switching = load.step == LoadRecord::Step::kSwitching;
    if ((load.step != LoadRecord::Step::kStoring && !switching) || load.store_token != event.token) continue;
    const std::string stored = name;
    if (!event.status.ok()) return FailLoad(stored, Annotate(event.status, "storing the submission"));
    return switching ? SwitchTo(stored) : StartStaging(stored);
  }
}

absl::Status Core::Impl::Reserve(ModelState* model) {
  const auto served = models_.find(model->name);
  // One that replaces another goes where that one is; to others where memory does not do for both.
  const uint64_t near = served == models_.end() ? 0 : served->second.mesh_id;
  TP_ASSIGN_OR_RETURN(const std::vector<std::string> chosen, WorkersFor(model->compiled->mesh, near));
  const absl::Status reserved = ReserveOn(model, chosen);
  if (near == 0 || reserved.code() != absl::StatusCode::kResourceExhausted) return reserved;
  TP_ASSIGN_OR_RETURN(const std::vector<std::string> others, WorkersFor(model->compiled->mesh));
  return others != chosen && ReserveOn(model, others).ok() ? absl::OkStatus() : reserved;
}

absl::Status Core::Impl::ReserveOn(ModelState* model, const std::vector<std::string>& chosen) {
  const Mesh& mesh = model->compiled->mesh;
  TP_ASSIGN_OR_RETURN(model->cache_pages, CachePagesFor(*model->submission, *model->compiled, options_.cache_bytes));
  std::vector<int64_t> needs(chosen.size(), 0);
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    const bool widened = workers_.at(chosen[rank]).description.widens_bf16;
    TP_ASSIGN_OR_RETURN(needs[rank],
                        BytesOnRank(*model->submission, *model->compiled, model->cache_pages, rank, widened));
  }
  TP_ASSIGN_OR_RETURN(reserved_[model->resident], ReserveMemory("the model", chosen, needs));
  model->ranks.clear();
  for (const std::string& id : chosen) {
    ModelRank rank;
    rank.worker = id;
    model->ranks.push_back(std::move(rank));
  }
  model->mesh_id = MakeMesh(mesh, chosen);
  return absl::OkStatus();
}

void Core::Impl::JoinLoad(const std::string& request_id, CallId call) {
  for (auto& [resident, load] : loads_) {
    if (load.request_id == request_id) load.calls.push_back(call);
  }
}

void Core::Impl::TryRestored() {
  const std::vector<std::string> names = std::move(restored_);
  restored_.clear();
  for (const std::string& name : names) {
    const absl::Status status = Reserve(&Resident(name));
    if (status.ok()) {
      StartStaging(name);
    } else if (status.code() == absl::StatusCode::kFailedPrecondition) {
      restored_.push_back(name);
    } else {
      FailLoad(name, status);
    }
  }
}

}  // namespace tp::server
