// WorkerRuntime: everything that a worker does, without gRPC: runs commands in order on one executor thread that owns
// the device and its communicators, and stages (listen, connect, load, receive, tensors, files) on threads beside it.
// The rpc layer feeds it and sends what it answers. Example:
//   WorkerRuntime runtime(std::move(device), std::move(backend), {.model_root = "/models"}, &clock, sink);
//   runtime.StartStage(stage);   // -> sink.OnStageResult
//   runtime.Enqueue(command);    // -> sink.OnAck, in order
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/program/command.h"
#include "worker/collective/counting_communicator.h"
#include "worker/device/device.h"

namespace tp::worker {

class WeightFiles;

// Bytes that are sent over a data stream: read piece by piece as the stream takes them.
struct DataBlock {
  int64_t size = 0;
  // Bytes [offset, offset + count) to `out`. On any thread, one call at a time; must not outlive the runtime.
  std::function<absl::Status(int64_t offset, int64_t count, char* out)> read;
};
// A block that owns its bytes.
DataBlock OwnedBlock(std::string bytes);

// Where answers go. Called from the runtime's threads, never under its locks. Must not block.
class RuntimeSink {
 public:
  virtual ~RuntimeSink() = default;
  virtual void OnAck(Ack ack) = 0;
  virtual void OnStageResult(StageResult result) = 0;
  // Progress of a load, of tensors or of a save: bytes so far and in all.
  virtual void OnProgress(uint64_t stage_id, int64_t done_bytes, int64_t total_bytes) = 0;
  // Blocks that are sent: streamed ones of a run, in the order of its result, after its Ack; those of a StageSend. The
  // sink opens a data stream for `transfer_id` and sends them one after the other.
  virtual void OnResultData(uint64_t transfer_id, std::vector<DataBlock> blocks) = 0;
  // The sink opens a data stream and calls ReceiveData with what arrives.
  virtual void OnReceiveWanted(uint64_t stage_id, uint64_t transfer_id, int64_t size_bytes) = 0;
  // Nobody waits for this transfer any more: the sink cancels its stream, if there is one.
  virtual void OnTransferDropped(uint64_t transfer_id) = 0;
  // A command ran, with how it ended on this rank and how long it took; before its Ack. `kind`: index of Command::kind.
  virtual void OnCommandDone(size_t /*kind*/, absl::StatusCode /*code*/, absl::Duration /*took*/) {}
};

struct WorkerRuntimeOptions {
  std::string model_root;        // files must lie under it; "" = none are read or written (PERMISSION_DENIED)
  double time_scale = 1;         // multiplies every time limit
  bool graphs = true;            // decode steps run as recorded graphs where the device can
  WeightFiles* files = nullptr;  // where weights are read from instead of model_root (tests); outlives the runtime
  CollectiveCounters* counters = nullptr;  // of the calls of all communicators; outlives the runtime; nullptr = none
};

struct RuntimeUsage {
  uint64_t completed_sequence = 0;
  int64_t used_bytes = 0;
  uint64_t progress = 0;  // grows while a command moves
  // Of used_bytes: states of models, caches, values of steps, named tensors.
  int64_t weight_bytes = 0, cache_bytes = 0, arena_bytes = 0, tensor_bytes = 0;
  int models = 0, meshes = 0;
  size_t queued = 0;         // commands that wait
  int64_t epochs_ended = 0;  // by a failure or an abort, so far
  WireCounters wire;         // of all communicators so far
};

// Thread-safe. Destruction aborts what runs, joins all threads and frees everything.
class WorkerRuntime {
 public:
  WorkerRuntime(std::unique_ptr<Device> device, std::unique_ptr<CollectiveBackend> backend,
                WorkerRuntimeOptions options, const Clock* clock, RuntimeSink* sink);
  ~WorkerRuntime();
  WorkerRuntime(const WorkerRuntime&) = delete;
  WorkerRuntime& operator=(const WorkerRuntime&) = delete;

  // Applies a command with the next sequence number; answers a repeat from its cached status; answers a gap or another
  // term or epoch with FAILED_PRECONDITION naming what it expects.
  void Enqueue(Command command);
  void StartStage(Stage stage);
  void DropStage(uint64_t stage_id);
  // Bytes of a transfer of a StageReceive or of StageTensors, in order, by one thread for each transfer. The last call
  // has `last`, or a failed status. False where nobody waits for it any more.
  bool ReceiveData(uint64_t stage_id, uint64_t transfer_id, std::string bytes, bool last, absl::Status status);
  // Ends an epoch: its communicator's calls return within 100 ms and every later command of it fails. Thread-safe.
  void AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason);
  // Drops meshes, models, tensors, staged work and queued commands, for a new session: expects sequence 1 of `term`.
  // `check_collectives`: communicators agree on each call before its payload.
  void Reset(uint64_t term, bool check_collectives = false);
  RuntimeUsage Usage() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tp::worker
