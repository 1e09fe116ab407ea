// A model on this rank: its states on the device, both programs' executors, cache pages and sequences. Belongs to
// (model, rank) and outlives epochs. Loading runs on a stage thread; what touches the device goes through `on_device`.
// Example: `auto model = LoadModel(stage_load, environment);`
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/program/command.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/kv_cache.h"
#include "worker/runtime/step_graphs.h"
#include "worker/runtime/tensor_table.h"
#include "worker/weights/weight_file.h"

namespace tp::worker {

struct LoadedModel {
  std::string name;
  uint64_t mesh_id = 0;
  int rank = 0;
  uint64_t fingerprint = 0;  // first 8 bytes of both programs'
  StateTable states;
  std::vector<std::unique_ptr<DeviceBuffer>> cache_buffers;
  std::vector<PagedCache> caches;
  std::unique_ptr<ProgramExecutor> forward;
  std::unique_ptr<ProgramExecutor> step;   // nullptr: does not generate
  std::unique_ptr<ProgramExecutor> other;  // the last one that came with a run; nullptr: none
  std::string other_fingerprint;
  std::unique_ptr<SequenceTable> sequences;
  StepGraphs graphs;            // of `step`
  int64_t bytes_read = 0;       // of files, headers apart
  int64_t parameter_bytes = 0;  // of this rank's blocks in their dtypes; tied states once
  int64_t device_bytes = 0;     // packed weights and cache; TensorMemory counts the plain states
};

struct LoadEnvironment {
  WeightFiles& files;
  Device& device;
  Stream& stream;
  TensorTable& tensors;  // where states with a tensor_id are taken from
  TensorMemory& memory;  // of plain states
  // Runs a function on the thread that owns the device and waits for it; CANCELLED where that thread is ending.
  std::function<absl::Status(const std::function<absl::Status()>&)> on_device;
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

// Blocks on files and on_device. INTERNAL where the programs' fingerprint is not load.fingerprint ("fingerprint
// mismatch ..."); INVALID_ARGUMENT for a rank outside the mesh, programs that do not validate, aliases or tensors that
// do not fit; NOT_FOUND for a tensor that is not there; errors of WeightLoader, Device and ProgramExecutor::Create. A
// load that fails frees all it took.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const StageLoad& load, const LoadEnvironment& environment);

}  // namespace tp::worker
