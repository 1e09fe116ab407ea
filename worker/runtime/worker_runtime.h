// WorkerRuntime: everything that a worker does, without gRPC: runs commands in order on one executor thread that owns
// the device and its communicators, and stages (listen, connect, load, receive) on threads beside it. The rpc layer
// feeds it and sends what it answers. Example:
//   WorkerRuntime runtime(std::move(device), std::move(backend), {.model_root = "/models"}, &clock, sink);
//   runtime.StartStage(stage);   // -> sink.OnStageResult
//   runtime.Enqueue(command);    // -> sink.OnAck, in order
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/program/command.h"
#include "worker/collective/communicator.h"
#include "worker/device/device.h"

namespace tp::worker {

class WeightFiles;

// Where answers go. Called from the runtime's threads, never under its locks. Must not block.
class RuntimeSink {
 public:
  virtual ~RuntimeSink() = default;
  virtual void OnAck(Ack ack) = 0;
  virtual void OnStageResult(StageResult result) = 0;
  // Progress of a load: bytes read so far and in all.
  virtual void OnProgress(uint64_t stage_id, int64_t done_bytes, int64_t total_bytes) = 0;
  // Streamed blocks of a run, in the order of its result, after its Ack; each is one string of a block's bytes. The
  // sink opens a data stream for `transfer_id`.
  virtual void OnResultData(uint64_t transfer_id, std::vector<std::string> blocks) = 0;
  // The sink opens a data stream and calls ReceiveData with what arrives.
  virtual void OnReceiveWanted(uint64_t stage_id, uint64_t transfer_id, int64_t size_bytes) = 0;
};

struct WorkerRuntimeOptions {
  std::string model_root;        // weights must lie under it; "" = no weights from files (PERMISSION_DENIED)
  double time_scale = 1;         // multiplies every time limit
  WeightFiles* files = nullptr;  // where weights are read from instead of model_root (tests); outlives the runtime
};

struct RuntimeUsage {
  uint64_t completed_sequence = 0;
  int64_t used_bytes = 0;
  uint64_t progress = 0;  // grows while a command moves
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
  // Bytes of a StageReceive, in order. The last call has `last`, or a failed status.
  void ReceiveData(uint64_t stage_id, std::string bytes, bool last, absl::Status status);
  // Ends an epoch: its communicator's calls return within 100 ms and every later command of it fails. Thread-safe.
  void AbortEpoch(uint64_t mesh_id, uint64_t epoch, const std::string& reason);
  // Drops meshes, models, staged work and queued commands, for a new session: expects sequence 1 of `term`.
  void Reset(uint64_t term);
  RuntimeUsage Usage() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tp::worker
