// The command queue: order, repeats, the executor thread, aborting and resetting. commands.cc applies the commands.
#include "worker/runtime/worker_runtime.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "worker/runtime/runtime_impl.h"

namespace tp::worker {
namespace {

constexpr size_t kAnswersKept = 64;

}  // namespace

DataBlock OwnedBlock(std::string bytes) {
  const auto owned = std::make_shared<const std::string>(std::move(bytes));
  return {static_cast<int64_t>(owned->size()), [owned](int64_t offset, int64_t count, char* out) {
            std::memcpy(out, owned->data() + offset, static_cast<size_t>(count));
            return absl::OkStatus();
          }};
}

WorkerRuntime::Impl::Impl(std::unique_ptr<Device> device, std::unique_ptr<CollectiveBackend> backend,
                          WorkerRuntimeOptions options, const Clock* clock, RuntimeSink* sink)
    : device_(std::move(device)),
      backend_(std::move(backend)),
      options_(std::move(options)),
      clock_(clock),
      sink_(sink),
      files_(CreateRootedWeightFiles(options_.model_root)),
      root_(options_.model_root),
      stream_(device_->CreateStream()),
      collectives_(CollectiveStream::Create(*device_)),
      memory_(*device_) {
  stages_ = std::make_unique<Stages>(
      StagesOptions{*device_, *stream_, *backend_, options_.files == nullptr ? *files_ : *options_.files, root_,
                    tensors_, memory_, [this](const std::function<absl::Status()>& run) { return OnDevice(run); },
                    clock_, sink_, options_.time_scale, check_collectives_, options_.counters});
  executor_ = std::thread([this] { ExecutorLoop(); });
}

WorkerRuntime::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  wake_.notify_all();
  AbortAll("the worker ends");
  executor_.join();
  stages_.reset();
}

void WorkerRuntime::Impl::Enqueue(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(command));
  }
  wake_.notify_all();
}

void WorkerRuntime::Impl::StartStage(Stage stage) {
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    if (stage.term != term_) {
      status = absl::FailedPreconditionError(absl::StrCat("stage of term ", stage.term, ", expected ", term_));
    }
  }
  if (!status.ok()) return sink_->OnStageResult(PlainResult(stage.stage_id, std::move(status)));
  stages_->Start(std::move(stage));
}

absl::Status WorkerRuntime::Impl::OnDevice(const std::function<absl::Status()>& run) {
  DeviceTask task{&run, absl::OkStatus(), false};
  std::unique_lock lock(mutex_);
  if (stopping_) return absl::CancelledError("the worker ends");
  tasks_.push_back(&task);
  wake_.notify_all();
  wake_.wait(lock, [&] { return task.done; });
  return task.status;
}

void WorkerRuntime::Impl::ExecutorLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty() || !queue_.empty(); });
    if (!tasks_.empty()) {
      DeviceTask* const task = tasks_.front();
      tasks_.pop_front();
      if (stopping_) {
        task->status = absl::CancelledError("the worker ends");
      } else {
        lock.unlock();
        task->status = (*task->run)();
        lock.lock();
      }
      task->done = true;
      wake_.notify_all();
      continue;
    }
    if (stopping_) return;
    Command command = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Process(std::move(command));
    lock.lock();
  }
}

WorkerRuntime::Impl::HeldMemory WorkerRuntime::Impl::MemoryOf(
    const std::map<std::string, std::unique_ptr<LoadedModel>>& models) {
  HeldMemory held;
  std::set<const DeviceBuffer*> plain;  // tied states share theirs
  for (const auto& [name, model] : models) {
    int64_t cache = 0;
    for (const auto& buffer : model->cache_buffers) cache += buffer->size();
    held.cache += cache;
    held.packed += model->device_bytes - cache;
    for (const auto& [path, state] : model->states) {
      if (state.plain != nullptr && plain.insert(state.plain.get()).second) held.plain += state.plain->size();
    }
  }
  return held;
}

void WorkerRuntime::Impl::Process(Command command) {
  Ack ack;
  ack.sequence = command.sequence;
  ack.order = command.order;
  uint64_t term = 0;
  {
    const std::lock_guard lock(mutex_);
    term = term_;
  }
  if (command.term != term || command.sequence > completed_ + 1 || command.sequence == 0) {
    ack.status =
        absl::FailedPreconditionError(absl::StrCat("expected sequence ", completed_ + 1, " of term ", term,
                                                   ", got sequence ", command.sequence, " of term ", command.term));
    return sink_->OnAck(std::move(ack));
  }
  if (command.sequence <= completed_) {
    const auto answer = answers_.find(command.sequence);
    if (answer != answers_.end()) return sink_->OnAck(answer->second);
    ack.status = absl::FailedPreconditionError(
        absl::StrCat("sequence ", command.sequence, " was answered long ago, expected ", completed_ + 1));
    return sink_->OnAck(std::move(ack));
  }
  const absl::Time began = clock_->Now();
  std::vector<std::string> streamed;
  Apply(command, &ack, &streamed);
  const absl::Duration took = clock_->Now() - began;
  ack.run.duration_us = ack.decode.duration_us = absl::ToInt64Microseconds(took);
  completed_ = command.sequence;
  answers_[completed_] = ack;
  if (answers_.size() > kAnswersKept) answers_.erase(answers_.begin());
  if (!std::holds_alternative<Run>(command.kind) && !std::holds_alternative<Decode>(command.kind)) {
    held_ = MemoryOf(models_);
  }
  {
    const std::lock_guard lock(mutex_);
    usage_.completed_sequence = completed_;
    usage_.used_bytes = arena_.size() + held_.packed + held_.cache;
    usage_.models = static_cast<int>(models_.size());
    usage_.weight_bytes = held_.packed + held_.plain;
    usage_.cache_bytes = held_.cache;
    usage_.arena_bytes = arena_.size();
    usage_.tensor_bytes = -held_.plain;  // Usage() adds what TensorMemory counts
  }
  sink_->OnCommandDone(command.kind.index(), ack.status.code(), took);
  // Before the answer: whoever has it knows that its bytes are on their way.
  if (!streamed.empty()) {
    std::vector<DataBlock> blocks;
    for (std::string& bytes : streamed) blocks.push_back(OwnedBlock(std::move(bytes)));
    sink_->OnResultData(std::get<Run>(command.kind).transfer_id, std::move(blocks));
  }
  sink_->OnAck(std::move(ack));
}

void WorkerRuntime::Impl::AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    auto& aborted = aborted_[mesh_id];
    if (aborted.first <= epoch) aborted = {epoch, reason};
    const auto it = meshes_.find(mesh_id);
    if (it != meshes_.end() && it->second.epoch == epoch) {
      communicator = it->second.communicator;
      if (it->second.ended.ok()) ++epochs_ended_;
      it->second.ended = absl::AbortedError(absl::StrCat("epoch ", epoch, " was aborted: ", reason));
    }
  }
  if (communicator != nullptr) communicator->Abort(reason);
  stages_->AbortEpoch(mesh_id, epoch, reason);
}

void WorkerRuntime::Impl::AbortAll(const std::string& reason) {
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, mesh] : meshes_) {
      communicators.push_back(mesh.communicator);
      mesh.ended = absl::AbortedError(reason);
    }
  }
  for (const auto& communicator : communicators) communicator->Abort(reason);
  stages_->Clear();
}

void WorkerRuntime::Impl::Reset(uint64_t term, bool check_collectives) {
  {
    const std::lock_guard lock(mutex_);
    queue_.clear();
  }
  AbortAll("a new session begins");
  // Between two commands; what it does can't fail.
  OnDevice([this, term, check_collectives] {
    models_.clear();
    tensors_.Clear();
    arena_.Free();
    answers_.clear();
    completed_ = 0;
    std::map<uint64_t, MeshEntry> meshes;  // freed outside the lock
    const std::lock_guard lock(mutex_);
    for (const auto& [id, mesh] : meshes_) AddWire(mesh, &closed_wire_);
    meshes.swap(meshes_);
    aborted_.clear();
    term_ = term;
    check_collectives_ = check_collectives;
    usage_ = {};
    held_ = {};
    return absl::OkStatus();
  }).IgnoreError();
  stages_->Clear();  // what a stage thread had under way
}

void WorkerRuntime::Impl::AddWire(const MeshEntry& mesh, WireCounters* sum) {
  if (mesh.communicator == nullptr) return;
  const WireCounters wire = mesh.communicator->wire();
  sum->bytes_sent += wire.bytes_sent;
  sum->bytes_received += wire.bytes_received;
}

RuntimeUsage WorkerRuntime::Impl::Usage() const {
  const std::lock_guard lock(mutex_);
  RuntimeUsage usage = usage_;
  // A call that moves much is progress while its bytes come.
  usage.wire = closed_wire_;
  for (const auto& [id, mesh] : meshes_) AddWire(mesh, &usage.wire);
  usage.progress = progress_ + static_cast<uint64_t>(usage.wire.bytes_sent + usage.wire.bytes_received);
  usage.used_bytes += memory_.bytes();
  usage.tensor_bytes = std::max<int64_t>(0, usage.tensor_bytes + memory_.bytes());
  usage.meshes = static_cast<int>(meshes_.size());
  usage.queued = queue_.size();
  usage.epochs_ended = epochs_ended_;
  return usage;
}

WorkerRuntime::WorkerRuntime(std::unique_ptr<Device> device, std::unique_ptr<CollectiveBackend> backend,
                             WorkerRuntimeOptions options, const Clock* clock, RuntimeSink* sink)
    : impl_(std::make_unique<Impl>(std::move(device), std::move(backend), std::move(options), clock, sink)) {}
WorkerRuntime::~WorkerRuntime() = default;
void WorkerRuntime::Enqueue(Command command) { impl_->Enqueue(std::move(command)); }
void WorkerRuntime::StartStage(Stage stage) { impl_->StartStage(std::move(stage)); }
void WorkerRuntime::DropStage(uint64_t stage_id) { impl_->stages().Drop(stage_id); }
bool WorkerRuntime::ReceiveData(uint64_t stage_id, uint64_t transfer_id, std::string bytes, bool last,
                                absl::Status status) {
  return impl_->stages().Receive(stage_id, transfer_id, std::move(bytes), last, std::move(status));
}
void WorkerRuntime::AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason) {
  impl_->AbortEpoch(mesh_id, epoch, reason);
}
void WorkerRuntime::Reset(uint64_t term, bool check_collectives) { impl_->Reset(term, check_collectives); }
RuntimeUsage WorkerRuntime::Usage() const { return impl_->Usage(); }

}  // namespace tp::worker
