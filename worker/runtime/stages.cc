#include "worker/runtime/stages.h"

#include "common/base/status.h"
#include "worker/collective/checking_communicator.h"

namespace tp::worker {
namespace {

constexpr size_t kMaxThreads = 8;
constexpr int64_t kProgressBytes = 1 << 20;

// Its result is all that it makes.
bool LeavesNothing(const Stage& stage) {
  return std::holds_alternative<StageSend>(stage.kind) || std::holds_alternative<StageInspect>(stage.kind) ||
         std::holds_alternative<StageSeal>(stage.kind);
}

}  // namespace

Stages::~Stages() {
  Clear();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void Stages::Start(Stage stage) {
  auto entry = std::make_shared<Entry>();
  entry->stage = std::move(stage);
  const uint64_t id = entry->stage.stage_id;
  const bool needs_thread =
      !std::holds_alternative<StageReceive>(entry->stage.kind) && !std::holds_alternative<StageSend>(entry->stage.kind);
  bool added = false;
  {
    const std::lock_guard lock(mutex_);
    added = entries_.emplace(id, entry).second;
    if (added && needs_thread) {
      queue_.push_back(entry);
      if (idle_ < queue_.size() && threads_.size() < kMaxThreads) threads_.emplace_back([this] { Work(); });
    }
  }
  wake_.notify_one();
  if (!added) {
    options_.sink->OnStageResult(PlainResult(id, absl::AlreadyExistsError(absl::StrCat("stage ", id, " is known"))));
  } else if (const auto* receive = std::get_if<StageReceive>(&entry->stage.kind)) {
    options_.sink->OnReceiveWanted(id, receive->transfer_id, receive->size_bytes);
  } else if (const auto* send = std::get_if<StageSend>(&entry->stage.kind)) {
    Send(entry, *send);
  }
}

void Stages::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    --idle_;
    if (stopping_) return;
    const EntryPtr entry = queue_.front();
    queue_.pop_front();
    lock.unlock();
    RunStage(entry);
    lock.lock();
  }
}

void Stages::RunStage(const EntryPtr& entry) {
  StageResult result;
  if (entry->cancelled) {
    result.status = absl::CancelledError("the stage was dropped");
  } else if (const auto* listen = std::get_if<StageListen>(&entry->stage.kind)) {
    result = Listen(entry, *listen);
  } else if (const auto* connect = std::get_if<StageConnect>(&entry->stage.kind)) {
    result = Connect(entry, *connect);
  } else if (const auto* load = std::get_if<StageLoad>(&entry->stage.kind)) {
    result = Load(entry, *load);
  } else if (const auto* tensors = std::get_if<StageTensors>(&entry->stage.kind)) {
    return MakeTensors(entry, *tensors);
  } else if (const auto* inspect = std::get_if<StageInspect>(&entry->stage.kind)) {
    result = Inspect(*inspect);
  } else if (const auto* save = std::get_if<StageSave>(&entry->stage.kind)) {
    result = Save(entry, *save);
  } else if (const auto* seal = std::get_if<StageSeal>(&entry->stage.kind)) {
    result = Seal(*seal);
  }
  Finish(entry, std::move(result));
}

StageResult Stages::Listen(const EntryPtr& entry, const StageListen& listen) {
  StageResult result;
  absl::StatusOr<std::unique_ptr<Connector>> connector = options_.backend.Listen(listen.rank, listen.size);
  result.status = connector.status();
  if (!connector.ok()) return result;
  std::shared_ptr<Connector> kept = *std::move(connector);
  result.address = kept->Address();
  const std::lock_guard lock(mutex_);
  if (entry->cancelled) {
    result.status = absl::CancelledError("the stage was dropped");
    return result;
  }
  entry->connector = kept;
  std::swap(connectors_[{listen.mesh_id, listen.epoch}], kept);  // an older one goes with `kept`
  return result;
}

StageResult Stages::Connect(const EntryPtr& entry, const StageConnect& connect) {
  StageResult result;
  std::shared_ptr<Connector> connector;
  {
    const std::lock_guard lock(mutex_);
    const auto it = connectors_.find({connect.mesh_id, connect.epoch});
    if (it != connectors_.end() && !entry->cancelled) {
      connector = it->second;
      connectors_.erase(it);
      for (auto& [id, other] : entries_) {
        if (other->connector == connector) other->connector.reset();  // the listen's
      }
      entry->connector = connector;
    }
  }
  if (connector == nullptr) {
    result.status = absl::FailedPreconditionError(
        absl::StrCat("mesh ", connect.mesh_id, " epoch ", connect.epoch, ": connect without a listen"));
    return result;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      connector->Connect(connect.addresses, options_.clock->Now() + connect.timeout * options_.time_scale);
  result.status = communicator.status();
  if (!communicator.ok()) return result;
  if (options_.check_collectives) communicator = CreateCheckingCommunicator(*std::move(communicator));
  if (options_.counters != nullptr) {
    communicator = CreateCountingCommunicator(*std::move(communicator), options_.counters);
  }
  const std::lock_guard lock(mutex_);
  entry->staged.mesh_id = connect.mesh_id;
  entry->staged.epoch = connect.epoch;
  entry->staged.communicator = *std::move(communicator);
  return result;
}

StageResult Stages::Load(const EntryPtr& entry, const StageLoad& load) {
  StageResult result;
  const uint64_t id = entry->stage.stage_id;
  int64_t reported = 0;
  const LoadEnvironment environment{options_.files,
                                    options_.device,
                                    options_.stream,
                                    options_.tensors,
                                    options_.memory,
                                    options_.on_device,
                                    &entry->cancelled,
                                    [this, id, &reported](int64_t done, int64_t total) {
                                      if (done < total && done - reported < kProgressBytes) return;
                                      reported = done;
                                      options_.sink->OnProgress(id, done, total);
                                    }};
  absl::StatusOr<std::unique_ptr<LoadedModel>> model = LoadModel(load, environment);
  result.status = model.status();
  if (!model.ok()) return result;
  result.bytes_read = (*model)->bytes_read;
  result.parameter_bytes = (*model)->parameter_bytes;
  const std::lock_guard lock(mutex_);
  entry->staged.mesh_id = load.mesh_id;
  entry->staged.epoch = load.epoch;
  entry->staged.model = *std::move(model);
  return result;
}

void Stages::Finish(const EntryPtr& entry, StageResult result) {
  Staged dropped;  // freed outside the lock, as are these
  std::shared_ptr<Connector> connector;
  std::shared_ptr<TensorStaging> staging;
  std::shared_ptr<PartFiles> parts;
  const uint64_t id = entry->stage.stage_id;
  bool answered = false;
  {
    const std::lock_guard lock(mutex_);
    if (entry->finished) return;
    if (entry->cancelled && result.status.ok()) result.status = absl::CancelledError("the stage was dropped");
    entry->finished = true;
    entry->status = result.status;
    if (std::holds_alternative<StageConnect>(entry->stage.kind)) std::swap(connector, entry->connector);
    std::swap(staging, entry->staging);
    if (!result.status.ok()) {
      std::swap(dropped, entry->staged);
      std::swap(parts, entry->parts);
    }
    answered = std::exchange(entry->answered, true);
    // What leaves nothing behind is forgotten.
    const auto it = LeavesNothing(entry->stage) ? entries_.find(id) : entries_.end();
    if (it != entries_.end() && it->second == entry) entries_.erase(it);
  }
  if (!result.status.ok() && staging != nullptr) DropTransfers(staging->transfers());
  if (parts != nullptr) parts->Remove();
  // Before the answer, so that nothing is held once it is known.
  staging.reset();
  dropped = {};
  if (answered) return;
  result.stage_id = id;
  options_.sink->OnStageResult(std::move(result));
}

void Stages::DropTransfers(const std::vector<TensorStaging::Transfer>& transfers) {
  for (const TensorStaging::Transfer& transfer : transfers) options_.sink->OnTransferDropped(transfer.id);
}

void Stages::Cancel(const EntryPtr& entry) {
  std::shared_ptr<Connector> connector;
  std::shared_ptr<PartFiles> parts;
  Staged dropped;
  bool finished = false;
  bool receives = false;
  {
    const std::lock_guard lock(mutex_);
    entry->cancelled = true;
    connector = entry->connector;
    finished = entry->finished;
    receives = entry->staging != nullptr || std::holds_alternative<StageReceive>(entry->stage.kind);
    if (finished) {
      std::swap(dropped, entry->staged);
      std::swap(parts, entry->parts);
    }
    for (auto it = connectors_.begin(); it != connectors_.end();) {
      it = it->second == connector ? connectors_.erase(it) : std::next(it);
    }
  }
  if (connector != nullptr && !finished) connector->Abort();
  if (parts != nullptr) parts->Remove();
  if (finished || !receives) return;
  // No thread of ours works on it.
  if (const auto* receive = std::get_if<StageReceive>(&entry->stage.kind)) {
    options_.sink->OnTransferDropped(receive->transfer_id);
  }
  Finish(entry, PlainResult(0, absl::CancelledError("the stage was dropped")));
}

void Stages::Drop(uint64_t id) {
  EntryPtr entry;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(id);
    if (it == entries_.end()) return;
    entry = it->second;
    entries_.erase(it);
  }
  Cancel(entry);
}

void Stages::Clear() {
  std::vector<EntryPtr> entries;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, entry] : entries_) {
      entry->answered = true;  // no result
      entries.push_back(entry);
    }
    entries_.clear();
    queue_.clear();
  }
  for (const EntryPtr& entry : entries) Cancel(entry);
}

bool Stages::Receive(uint64_t id, uint64_t transfer_id, std::string bytes, bool last, absl::Status status) {
  EntryPtr entry;
  std::shared_ptr<TensorStaging> staging;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(id);
    if (it == entries_.end() || it->second->finished) return false;
    entry = it->second;
    staging = entry->staging;
    const auto* receive = std::get_if<StageReceive>(&entry->stage.kind);
    if (staging == nullptr && (receive == nullptr || receive->transfer_id != transfer_id)) return false;
    if (receive != nullptr) {
      entry->bytes += bytes;
      const auto size = static_cast<int64_t>(entry->bytes.size());
      if (status.ok() && (size > receive->size_bytes || (last && size != receive->size_bytes))) {
        status = absl::InvalidArgumentError(
            absl::StrCat("transfer ", transfer_id, ": expected ", receive->size_bytes, " bytes, got ", size));
      }
      if (!status.ok()) entry->bytes = {};
    }
  }
  bool complete = last;
  if (staging != nullptr && status.ok()) status = staging->Receive(transfer_id, bytes, last, &complete);
  if (status.ok() && !complete) return true;
  StageResult result = PlainResult(id, std::move(status));
  if (staging != nullptr) result.bytes_read = staging->bytes_read();
  if (staging != nullptr && result.status.ok()) {
    const std::lock_guard lock(mutex_);
    if (!entry->cancelled) entry->staged.tensors = staging->tensors();
  }
  staging.reset();
  Finish(entry, std::move(result));
  return true;
}

void Stages::AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason) {
  std::vector<std::shared_ptr<Connector>> connectors;
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      const auto* connect = std::get_if<StageConnect>(&entry->stage.kind);
      if (connect == nullptr || connect->mesh_id != mesh_id || connect->epoch != epoch) continue;
      if (entry->connector != nullptr && !entry->finished) connectors.push_back(entry->connector);
      if (entry->staged.communicator != nullptr) communicators.push_back(entry->staged.communicator);
    }
    const auto it = connectors_.find({mesh_id, epoch});
    if (it != connectors_.end()) {
      connectors.push_back(it->second);
      connectors_.erase(it);
    }
  }
  for (const auto& connector : connectors) connector->Abort();
  for (const auto& communicator : communicators) communicator->Abort(reason);
}

absl::Status Stages::CheckFinished(const std::vector<uint64_t>& ids) const {
  const std::lock_guard lock(mutex_);
  for (uint64_t id : ids) {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return absl::FailedPreconditionError(absl::StrCat("stage ", id, " is unknown"));
    if (!it->second->finished) return absl::FailedPreconditionError(absl::StrCat("stage ", id, " is under way"));
    if (!it->second->status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("stage ", id, " failed: ", std::string(it->second->status.message())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Staged> Stages::Take(uint64_t id) {
  TP_RETURN_IF_ERROR(CheckFinished({id}));
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end()) return absl::FailedPreconditionError(absl::StrCat("stage ", id, " is unknown"));
  Staged staged = std::move(it->second->staged);
  if (!std::holds_alternative<StageReceive>(it->second->stage.kind)) entries_.erase(it);
  return staged;
}

absl::StatusOr<std::string> Stages::TakeBytes(uint64_t id) {
  TP_RETURN_IF_ERROR(CheckFinished({id}));
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || !std::holds_alternative<StageReceive>(it->second->stage.kind)) {
    return absl::FailedPreconditionError(absl::StrCat("stage ", id, " is no receive"));
  }
  std::string bytes = std::move(it->second->bytes);
  entries_.erase(it);
  return bytes;
}

}  // namespace tp::worker
