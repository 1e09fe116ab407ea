#include "server/coordinator/core.h"

#include <utility>

#include "common/base/names.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

std::string_view ModelPhaseName(ModelPhase phase) {
  switch (phase) {
    case ModelPhase::kCreated:
      return "CREATED";
    case ModelPhase::kInitialised:
      return "INITIALISED";
    case ModelPhase::kParallelized:
      return "PARALLELIZED";
    case ModelPhase::kLoading:
      return "LOADING";
    case ModelPhase::kReady:
      return "READY";
    case ModelPhase::kFailed:
      return "FAILED";
    case ModelPhase::kDeleting:
      return "DELETING";
  }
  return "UNKNOWN";
}

Core::Core(CoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Core::~Core() = default;
std::vector<Action> Core::Apply(Event event, absl::Time now) { return impl_->Apply(std::move(event), now); }
const CoreOptions& Core::options() const { return impl_->options_; }
const std::map<std::string, WorkerState>& Core::workers() const { return impl_->workers_; }
const std::map<std::string, ModelState>& Core::models() const { return impl_->models_; }
const std::map<uint64_t, MeshState>& Core::meshes() const { return impl_->meshes_; }
const std::map<std::string, NamedMesh>& Core::named_meshes() const { return impl_->named_meshes_; }
const std::map<std::string, TensorState>& Core::tensors() const { return impl_->tensors_; }
int64_t Core::reserved_bytes(const std::string& worker) const { return impl_->ledger_.Held(worker); }
int Core::running_calls() const { return impl_->RunningCalls(); }
CoreNumbers Core::numbers() const { return impl_->CountAll(); }

Core::Impl::Impl(CoreOptions options)
    : options_(std::move(options)),
      order_(ProgressLimits{options_.progress_floor, options_.first_progress_floor, options_.time_scale}) {}

std::vector<Action> Core::Impl::Apply(Event event, absl::Time now) {
  now_ = now;
  actions_.clear();
  std::visit([this](auto&& what) { On(std::move(what)); }, std::move(event));
  FreeReplaced();
  LetWorkersGo();
  return std::move(actions_);
}

int Core::Impl::RunningCalls() const {
  size_t count = forwards_.size() + generates_.size();
  for (const auto& [name, load] : loads_) count += load.calls.size();
  for (const auto& [name, deletion] : deletions_) count += deletion.calls.size();
  for (const auto& [id, operation] : operations_) count += operation.calls.size();
  return static_cast<int>(count);
}

void Core::Impl::On(Tick) {
  CheckWorkers();
  CheckAborting();
  CheckStages();
  CheckDeadlines();
}

absl::Status Core::Impl::Draining() {
  return absl::UnavailableError("the coordinator is draining: it stops and takes no new requests");
}

void Core::Impl::On(DrainRequested) { draining_ = true; }

void Core::Impl::On(CallCancelled event) {
  const absl::Status cancelled = absl::CancelledError("cancelled by the client");
  const auto forward = forwards_.find(event.call);
  if (forward != forwards_.end()) {
    const std::string model = forward->second.model;
    FailForward(event.call, cancelled);
    return PumpForwards(model);
  }
  if (generates_.count(event.call) != 0) return FailGenerate(event.call, cancelled);
  if (const uint64_t operation = OperationOf(event.call); operation != 0) return CancelOperation(operation, event.call);
  for (auto& [name, load] : loads_) {
    for (size_t i = 0; i < load.calls.size(); ++i) {
      if (load.calls[i] != event.call) continue;
      // Nobody else waits for it: it is undone, unless it is about to switch.
      if (load.calls.size() == 1 && load.step != LoadRecord::Step::kSwitching) {
        const std::string model = name;
        return FailLoad(model, cancelled);
      }
      load.calls.erase(load.calls.begin() + static_cast<std::ptrdiff_t>(i));
      return Emit(SubmitReply{event.call, cancelled, Resident(name).name});
    }
  }
  for (auto& [name, deletion] : deletions_) {  // a deletion goes on, whoever waits
    for (size_t i = 0; i < deletion.calls.size(); ++i) {
      if (deletion.calls[i] != event.call) continue;
      deletion.calls.erase(deletion.calls.begin() + static_cast<std::ptrdiff_t>(i));
      return Emit(DeleteReply{event.call, cancelled});
    }
  }
}

absl::Status Core::Impl::NoSuchModel(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [known, model] : models_) names.push_back(known);
  if (names.empty()) return absl::NotFoundError(absl::StrCat("no model '", Cut(name, 128), "'; there are none"));
  return absl::NotFoundError(
      absl::StrCat("no model '", Cut(name, 128), "'; nearest: ", JoinNames(NearestNames(name, names))));
}

absl::StatusOr<ModelState*> Core::Impl::ReadyModel(const std::string& name) {
  if (draining_) return Draining();
  const auto it = models_.find(name);
  if (it == models_.end()) return NoSuchModel(name);
  ModelState& model = it->second;
  if (model.phase == ModelPhase::kReady) {
    // An epoch that is about to end takes nothing in.
    const auto mesh = mesh_records_.find(model.mesh_id);
    if (mesh != mesh_records_.end() && mesh->second.aborting.has_value()) {
      return absl::UnavailableError(absl::StrCat("model '", name, "': ", std::string(mesh->second.cause.message())));
    }
    TP_RETURN_IF_ERROR(Annotate(CheckNotDraining(model.mesh_id), absl::StrCat("model '", name, "'")));
    return &model;
  }
  const std::string state = absl::StrCat("model '", name, "' is ", std::string(ModelPhaseName(model.phase)));
  if (model.phase == ModelPhase::kFailed && model.error.code() == absl::StatusCode::kUnavailable) {
    return Annotate(model.error, state);
  }
  if (model.phase == ModelPhase::kFailed) {
    return absl::FailedPreconditionError(absl::StrCat(state, ": ", std::string(model.error.message())));
  }
  return absl::FailedPreconditionError(absl::StrCat(state, ", not READY"));
}

absl::Status Core::Impl::CheckQueue() const {
  if (static_cast<int>(forwards_.size() + generates_.size()) < options_.max_queued_requests) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("max_queued_requests: ", options_.max_queued_requests,
                                                   " forwards and generations wait or run already"));
}

}  // namespace tp::server
