// The inside of WorkerRuntime: one executor thread that applies commands in order and runs what stages need done on the
// device between two commands. See worker_runtime.h for what it promises.
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

#include "worker/runtime/stages.h"
#include "worker/runtime/work.h"
#include "worker/runtime/worker_runtime.h"

namespace tp::worker {

class WorkerRuntime::Impl {
 public:
  Impl(std::unique_ptr<Device> device, std::unique_ptr<CollectiveBackend> backend, WorkerRuntimeOptions options,
       const Clock* clock, RuntimeSink* sink);
  ~Impl();

  void Enqueue(Command command);
  void StartStage(Stage stage);
  void AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason);
  void Reset(uint64_t term, bool check_collectives);
  RuntimeUsage Usage() const;
  Stages& stages() { return *stages_; }

 private:
  struct MeshEntry {
    uint64_t epoch = 0;
    std::shared_ptr<Communicator> communicator;
    absl::Status ended;  // why its communicator can't be used any more
  };
  struct DeviceTask {
    const std::function<absl::Status()>* run = nullptr;
    absl::Status status;
    bool done = false;
  };

  struct HeldMemory {
    int64_t packed = 0, plain = 0, cache = 0;
  };

  // Adds what a communicator moved so far.
  static void AddWire(const MeshEntry& mesh, WireCounters* sum);
  static HeldMemory MemoryOf(const std::map<std::string, std::unique_ptr<LoadedModel>>& models);
  void ExecutorLoop();
  // Runs on the executor thread, before queued commands; blocks until done. CANCELLED once the runtime ends.
  absl::Status OnDevice(const std::function<absl::Status()>& run);
  // The executor thread's: checks the number, applies, answers.
  void Process(Command command);
  void Apply(const Command& command, Ack* ack, std::vector<std::string>* streamed);
  absl::Status ApplyCommit(const Commit& commit);
  // Of the programs of the mesh's models; all ranks do it at the same commit. A failure ends the epoch.
  void PrepareGroups(uint64_t mesh_id);
  absl::Status ApplyRelease(const Command& command, const Release& release);
  absl::Status ApplyShareStates(const Command& command, const ShareStates& share);
  absl::Status ApplyCloseMesh(const Command& command);
  WorkOutcome ApplyRun(const Command& command, const Run& run);
  WorkOutcome ApplyDecode(const Command& command, const Decode& decode);
  // Broadcast, Transform, Transfer.
  WorkOutcome ApplyTensorCommand(const Command& command);
  // The communicator for a work command. FAILED_PRECONDITION for another epoch, naming the one expected; ABORTED where
  // the epoch has ended.
  absl::StatusOr<std::shared_ptr<Communicator>> CommunicatorFor(const Command& command) const;
  absl::StatusOr<LoadedModel*> ModelFor(const Command& command, const std::string& name, int rank) const;
  void EndEpochAfter(const Command& command, const WorkOutcome& outcome);
  // Communicators of all meshes and staged ones; makes what is blocked return.
  void AbortAll(const std::string& reason);

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<CollectiveBackend> backend_;
  const WorkerRuntimeOptions options_;
  const Clock* const clock_;
  RuntimeSink* const sink_;
  const std::unique_ptr<WeightFiles> files_;
  const ModelRoot root_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<CollectiveStream> collectives_;  // nullptr where streams are inline
  TensorMemory memory_;
  TensorTable tensors_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // work for the executor, or a task is done
  // Guarded by mutex_:
  std::deque<Command> queue_;
  std::deque<DeviceTask*> tasks_;
  std::map<uint64_t, MeshEntry> meshes_;
  std::map<uint64_t, std::pair<uint64_t, std::string>> aborted_;  // mesh -> the last epoch that was aborted, why
  uint64_t term_ = 0;
  RuntimeUsage usage_;
  WireCounters closed_wire_;  // of communicators that are gone
  int64_t epochs_ended_ = 0;
  bool stopping_ = false;

  std::atomic<bool> check_collectives_ = false;
  std::atomic<uint64_t> progress_ = 0;  // instructions and headers so far

  // The executor thread's:
  std::map<std::string, std::unique_ptr<LoadedModel>> models_;
  HeldMemory held_;  // by models_
  Arena arena_;
  uint64_t completed_ = 0;
  std::map<uint64_t, Ack> answers_;  // of the last commands

  std::unique_ptr<Stages> stages_;
  std::thread executor_;
};

}  // namespace tp::worker
