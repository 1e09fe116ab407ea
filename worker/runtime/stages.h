// Work beside the command stream: listening, connecting, loading, receiving, tensors and their files, on a few threads.
// What it makes waits here until a Commit (or a Run's input) takes it. Example:
//   stages.Start(stage);  ...  TP_ASSIGN_OR_RETURN(Staged staged, stages.Take(stage_id));
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/runtime/loaded_model.h"
#include "worker/runtime/tensor_staging.h"
#include "worker/runtime/worker_runtime.h"
#include "worker/weights/model_root.h"
#include "worker/weights/part_files.h"

namespace tp::worker {

// What a finished stage made; by kind, one field or none is set.
struct Staged {
  uint64_t mesh_id = 0, epoch = 0;
  std::shared_ptr<Communicator> communicator;  // of a connect
  std::unique_ptr<LoadedModel> model;          // of a load
  std::vector<HeldTensorPtr> tensors;          // of tensors
};

// The result of a stage that made nothing to tell.
inline StageResult PlainResult(uint64_t stage_id, absl::Status status) {
  StageResult result;
  result.stage_id = stage_id;
  result.status = std::move(status);
  return result;
}

struct StagesOptions {
  Device& device;
  Stream& stream;
  CollectiveBackend& backend;
  WeightFiles& files;
  const ModelRoot& root;
  TensorTable& tensors;
  TensorMemory& memory;
  std::function<absl::Status(const std::function<absl::Status()>&)> on_device;
  const Clock* clock;
  RuntimeSink* sink;
  double time_scale;
  const std::atomic<bool>& check_collectives;  // of communicators that connect
  CollectiveCounters* counters = nullptr;      // of their calls
};

// Thread-safe. Never calls the sink or a connector under its lock.
class Stages {
 public:
  explicit Stages(StagesOptions options) : options_(std::move(options)) {}
  // Cancels what runs and joins the threads; on_device must not block any more.
  ~Stages();
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  // Answers with OnStageResult, once: ALREADY_EXISTS for an id in use.
  void Start(Stage stage);
  // Cancels it (the result is CANCELLED) or throws away what it made.
  void Drop(uint64_t id);
  // False where nobody waits for the transfer.
  bool Receive(uint64_t id, uint64_t transfer_id, std::string bytes, bool last, absl::Status status);
  // Stops connecting for the epoch and aborts its communicators that wait for a commit.
  void AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason);
  // Drops all, without results.
  void Clear();

  // FAILED_PRECONDITION naming a stage that is unknown, under way or failed.
  absl::Status CheckFinished(const std::vector<uint64_t>& ids) const;
  // Of a finished stage; it is forgotten, but for a receive, whose bytes TakeBytes gives.
  absl::StatusOr<Staged> Take(uint64_t id);
  absl::StatusOr<std::string> TakeBytes(uint64_t id);

 private:
  struct Entry {
    Stage stage;
    std::atomic<bool> cancelled{false};
    bool finished = false;
    bool answered = false;  // its result was sent or is being sent
    absl::Status status;
    Staged staged;
    std::string bytes;
    std::shared_ptr<Connector> connector;    // of a listen or a connect
    std::shared_ptr<TensorStaging> staging;  // of tensors whose bytes arrive
    std::shared_ptr<PartFiles> parts;        // of a save that made files
  };
  using EntryPtr = std::shared_ptr<Entry>;

  void Work();
  void RunStage(const EntryPtr& entry);
  StageResult Listen(const EntryPtr& entry, const StageListen& listen);
  StageResult Connect(const EntryPtr& entry, const StageConnect& connect);
  StageResult Load(const EntryPtr& entry, const StageLoad& load);
  // Finishes where nothing is to be received.
  void MakeTensors(const EntryPtr& entry, const StageTensors& tensors);
  // Answers first, then gives the sink what to send.
  void Send(const EntryPtr& entry, const StageSend& send);
  StageResult Inspect(const StageInspect& inspect);
  StageResult Save(const EntryPtr& entry, const StageSave& save);
  StageResult Seal(const StageSeal& seal);
  void DropTransfers(const std::vector<TensorStaging::Transfer>& transfers);
  // Keeps the outcome and sends the result, unless that was done.
  void Finish(const EntryPtr& entry, StageResult result);
  void Cancel(const EntryPtr& entry);

  const StagesOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_:
  std::map<uint64_t, EntryPtr> entries_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Connector>> connectors_;  // of listens, by (mesh, epoch)
  std::deque<EntryPtr> queue_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace tp::worker
