// A submit step by step: CreateModel, InitStates and Parallelize. Storage is made once both the mesh and the
// initializers are known, by the load that follows the second of the two; where it fails, the step has not happened.
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

absl::Status AlreadyParallelized(const std::string& model) {
  return absl::FailedPreconditionError(absl::StrCat("model '", model,
                                                    "' has already been parallelized. Module.parallelize() must be "
                                                    "called at most once per instance."));
}

bool Core::Impl::BeginStep(CallId call, const std::string& request_id, const std::string& digest,
                           const std::string& name) {
  if (draining_) {
    Emit(SubmitReply{call, Draining(), name});
    return false;
  }
  RequestIds::Entry entry;
  switch (request_ids_.Begin(request_id, digest, name, &entry)) {
    case RequestIds::State::kNew:
      return true;
    case RequestIds::State::kOther:
      Emit(SubmitReply{
          call, absl::AlreadyExistsError(absl::StrCat("request id '", request_id, "' was used for another request")),
          name});
      return false;
    case RequestIds::State::kFinished:
      Emit(SubmitReply{call, entry.status, entry.name});
      return false;
    case RequestIds::State::kRunning:
      JoinLoad(request_id, call);
      return false;
  }
  return false;
}

void Core::Impl::EndStep(CallId call, const std::string& request_id, const absl::Status& status,
                         const std::string& name) {
  request_ids_.Finish(request_id, status);
  Emit(SubmitReply{call, status, name});
}

absl::StatusOr<ModelState*> Core::Impl::ModelForStep(const std::string& name) {
  const auto it = models_.find(name);
  if (it == models_.end()) return NoSuchModel(name);
  if (it->second.phase == ModelPhase::kDeleting) {
    return absl::FailedPreconditionError(absl::StrCat("model '", name, "' is DELETING"));
  }
  if (loads_.count(name) != 0) return absl::FailedPreconditionError(absl::StrCat("model '", name, "' is LOADING"));
  return &it->second;
}

void Core::Impl::On(CreateModelRequested event) {
  const std::string name = event.submission->name;
  if (!BeginStep(event.call, event.request_id, event.digest, name)) return;
  const absl::Status named = CheckName(name);
  if (named.ok()) {
    ModelState model;
    model.name = name;
    model.resident = NewResident(name);
    model.submission = event.submission;
    models_[name] = std::move(model);
    Changed(name);
  }
  EndStep(event.call, event.request_id, named, name);
}

void Core::Impl::On(InitStatesRequested event) {
  if (!BeginStep(event.call, event.request_id, event.digest, event.name)) return;
  const auto end = [&](const absl::Status& status) { EndStep(event.call, event.request_id, status, event.name); };
  const absl::StatusOr<ModelState*> model = ModelForStep(event.name);
  if (!model.ok()) return end(model.status());
  switch ((*model)->phase) {
    case ModelPhase::kCreated:
      (*model)->phase = ModelPhase::kInitialised;
      Changed(event.name);
      return end(absl::OkStatus());
    case ModelPhase::kParallelized:
      return LoadAfterStep(event.call, event.request_id, **model);
    default:
      return end(absl::FailedPreconditionError(
          absl::StrCat("the states of model '", event.name, "' have already been initialised")));
  }
}

void Core::Impl::On(ParallelizeRequested event) {
  if (!BeginStep(event.call, event.request_id, event.digest, event.name)) return;
  const auto end = [&](const absl::Status& status) { EndStep(event.call, event.request_id, status, event.name); };
  const absl::StatusOr<ModelState*> model = ModelForStep(event.name);
  if (!model.ok()) return end(model.status());
  if ((*model)->phase != ModelPhase::kCreated && (*model)->phase != ModelPhase::kInitialised) {
    return end(AlreadyParallelized(event.name));
  }
  if ((*model)->submission != event.base) {
    return end(absl::AbortedError(absl::StrCat("model '", event.name, "' was made anew meanwhile; try again")));
  }
  ModelState after = **model;
  after.submission = event.submission;
  after.compiled = event.compiled;
  after.blob = std::make_shared<const std::string>(std::move(event.blob));
  // Here too where the load comes later: a mesh that can't be is refused while it can be corrected.
  const absl::Status enough = WorkersFor(event.compiled->mesh).status();
  if (!enough.ok()) return end(enough);
  if (after.phase == ModelPhase::kInitialised) return LoadAfterStep(event.call, event.request_id, std::move(after));
  after.phase = ModelPhase::kParallelized;
  **model = std::move(after);
  Changed(event.name);
  end(absl::OkStatus());
}

void Core::Impl::LoadAfterStep(CallId call, const std::string& request_id, ModelState after) {
  const std::string name = after.name;
  LoadRecord load;
  load.before = std::make_shared<const ModelState>(models_.at(name));
  const absl::Status reserved = Reserve(&after);
  if (!reserved.ok()) return EndStep(call, request_id, reserved, name);
  load.request_id = request_id;
  load.calls.push_back(call);
  load.store_token = ++last_token_;
  Emit(StoreSubmission{load.store_token, name, *after.blob});
  const std::string resident = after.resident;
  models_[name] = std::move(after);
  loads_[resident] = std::move(load);
  Changed(name);
}

}  // namespace tp::server
