// What the coordinator knows: workers, meshes, epochs, models, calls. Plain values, changed only by Core::Apply
// (core.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/model/model.h"
#include "common/program/command.h"
#include "common/program/compile.h"
#include "server/scheduler/streams.h"

namespace tp::server {

struct CoreOptions {
  uint64_t term = 1;
  std::string version;
  absl::Duration lease = absl::Seconds(3);
  absl::Duration progress_floor = absl::Seconds(4);         // P = max(floor, 20 x usual command)
  absl::Duration first_progress_floor = absl::Seconds(10);  // of the first execution after a load
  absl::Duration stage_progress_limit = absl::Seconds(30);  // of staged work whose bytes stand still
  absl::Duration connect_timeout = absl::Seconds(8);
  double time_scale = 1;                   // multiplies all of these
  int max_queued_requests = 1024;          // forwards and generations that wait or run
  int max_runs_in_flight = 4;              // a model
  int max_sequences = 64;                  // of a model, that decode at once
  int prefill_tokens = 256;                // of all pieces of one Decode together
  int64_t cache_bytes = int64_t{1} << 30;  // largest cache of a model on a worker; at most 16 sequences
  int64_t max_file_bytes = 5'000'000'000;  // of tensors in one file of a save
};

struct WorkerDescription {
  std::string id, incarnation, version, device, host;
  std::string peer = "";           // address that it joins from
  bool same_host = true;           // that is one of the coordinator's own
  int64_t memory_limit_bytes = 0;  // 0 = none
  int64_t pid = 0;
  bool widens_bf16 = false;
  std::string identity;     // which physical device it holds; "" where several workers may share it
  std::string collectives;  // what it exchanges tensors by, with versions: "gloo", "nccl 2.28.9, cuda 13.0"
};

struct WorkerState : WorkerStream {  // with its command stream
  WorkerDescription description;
  uint64_t session = 0;  // counts joins: a process that joins again has lost what it held
  bool healthy = true;
  std::string reason;     // why it is not
  bool draining = false;  // takes nothing new, and leaves once it has no work
  bool let_go = false;    // it was told that it has none
  absl::Time last_heartbeat;
  int64_t used_bytes = 0;
  uint64_t progress = 0;
};

struct MeshState {
  uint64_t id = 0;
  Mesh mesh;
  uint64_t epoch = 1;
  std::vector<std::string> workers;  // by rank
  bool broken = false;
  bool link = false;  // over the workers of two others, for what moves between them
};

enum class NamedMeshPhase { kConnecting, kReady, kBroken };

// A mesh that a client made.
struct NamedMesh {
  std::string name;
  uint64_t mesh_id = 0;
  NamedMeshPhase phase = NamedMeshPhase::kConnecting;
  absl::Status error;     // why it is broken
  bool deleting = false;  // its workers leave it
};

enum class TensorPhase { kCreating, kReady, kLost };

// A named tensor.
struct TensorState {
  std::string name, mesh;  // mesh: its name
  uint64_t mesh_id = 0;
  Mesh axes;
  DType dtype = DType::kF32;
  Shape shape;
  Placements placements;
  uint64_t tensor_id = 0;
  TensorPhase phase = TensorPhase::kCreating;
  absl::Status error;   // why it is lost
  bool moving = false;  // an operation changes it in place
};

enum class ModelPhase { kCreated, kInitialised, kParallelized, kLoading, kReady, kFailed, kDeleting };
std::string_view ModelPhaseName(ModelPhase phase);  // "CREATED", ...

struct ModelRank {
  std::string worker;
  int64_t bytes_read = 0, parameter_bytes = 0;
  int64_t done_bytes = 0, total_bytes = 0;
};
// What a model that replaced another has of it.
struct TakenOver {
  int states = 0;          // whose values were taken over
  int64_t bytes = 0;       // of their blocks on all ranks
  int64_t wire_bytes = 0;  // that moved between workers for them
};
struct ModelState {
  std::string name;
  std::string resident;  // what its workers call it: `name`, or NAME#N of one that replaced another
  ModelPhase phase = ModelPhase::kCreated;
  absl::Status error;
  std::shared_ptr<const Submission> submission;
  std::shared_ptr<const CompiledModel> compiled;  // nullptr until it is parallelized
  std::shared_ptr<const std::string> blob;        // once it is parallelized: what the store keeps
  uint64_t mesh_id = 0;                           // 0 = none yet
  std::vector<ModelRank> ranks;
  int cache_pages = 0;
  TakenOver taken_over;
};

}  // namespace tp::server
