// Client: the coordinator's API as C++ calls on plain values. Example:
//   auto client = tp::client::Connect({.server = "127.0.0.1:7050"});
//   auto result = client->Forward("mlp", {{"x", MakeHostTensor<float>({1, 8}, values)}});
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/tp_client/tensors.h"
#include "common/base/tls_files.h"
#include "common/layout/placement.h"
#include "common/mesh/mesh.h"
#include "common/model/model.h"
#include "common/program/memory.h"
#include "common/tensor/dim.h"
#include "common/tensor/host_tensor.h"

namespace tp::client {

struct ClientOptions {
  std::string server;                                 // HOST:PORT
  absl::Duration timeout = absl::InfiniteDuration();  // of each call
  TlsFiles tls = {};                                  // plain text where none is named; see CheckTls
};

struct ModelSummary {
  std::string name, state, error, fingerprint;  // state: "READY", ...
  Mesh mesh = {};
  int64_t parameter_bytes = 0, loaded_bytes = 0, total_bytes = 0;
};
struct LocalBlock {
  int rank = 0;
  Shape shape, offset;
};
struct ParameterDescription {
  std::string name;
  Shape shape = {};
  DType dtype = DType::kF32;
  Placements placements = {};
  std::vector<LocalBlock> local = {};
  bool buffer = false;
};
struct ModuleDescription {
  std::string path, kind, style;
  std::vector<std::string> inputs, outputs;
};
struct ModelWorker {
  std::string id;
  int rank = 0;
  int64_t bytes_read = 0, parameter_bytes = 0;
};
struct InputType {
  std::string name;
  DType dtype = DType::kF32;
  SymShape shape = {};
};
struct ModelDescription {
  ModelSummary summary;
  std::vector<ParameterDescription> parameters;
  std::vector<ModuleDescription> modules;
  std::vector<ModelWorker> workers;
  std::vector<InputType> inputs;
  bool generates = false;
  std::string submission;  // serialized tp.v1.Submission, where asked for
};
struct WorkerInfo {
  std::string id, host, device, reason, version;
  bool healthy = false;
  int64_t memory_limit_bytes = 0, used_bytes = 0, pid = 0;
  std::vector<std::string> models = {};
  std::vector<int> ranks = {};  // of the models, in the same order
  std::vector<std::string> meshes = {};
  std::vector<int> mesh_ranks = {};  // in the meshes, in the same order
};
struct StatusInfo {
  std::string version;
  int64_t term = 0, uptime_ms = 0;
  int workers_healthy = 0, workers = 0, models_ready = 0, models = 0, requests = 0, meshes = 0, tensors = 0;
};
struct SubmitOptions {
  std::string name = {};            // in place of the submission's, where not empty
  std::vector<MeshAxis> mesh = {};  // in place of the plan's, where not empty
  bool dry_run = false;
  bool replace = false;  // the READY model of its name, which serves until then
};
// What a model that replaced another has of it.
struct TakenOver {
  int states = 0;          // whose values were taken over
  int64_t bytes = 0;       // of their blocks on all ranks
  int64_t wire_bytes = 0;  // that moved between workers for them
  int64_t bytes_read = 0;  // of files, for the others
};
struct SubmitResult {
  ModelSummary model;
  std::vector<std::string> warnings;
  std::optional<TakenOver> taken_over = {};  // of one that replaced a model
};
struct ParallelizeOptions {
  bool own_plan = true;  // the plan of the created submission; else `plan`
  ParallelPlan plan = {};
  std::vector<MeshAxis> mesh = {};  // in place of the plan's, where not empty
};
struct NamedTensor {
  std::string name;
  HostTensor tensor;
};
// An input of a forward, in one of three forms: a full tensor, blocks of ranks, or a named tensor.
struct InputShard {
  int rank = 0;
  HostTensor tensor = {};  // its block
};
struct ForwardInput {
  std::string name;
  HostTensor full = {};                    // where neither of the others is given
  std::vector<InputShard> shards = {};     // of one dtype, one for each rank that holds any element
  NamedPlacements placements = {};         // of the shards; an axis that is not named is R
  std::optional<Shape> global_shape = {};  // of the shards; absent: inferred, which needs equal ones
  std::string ref = {};                    // name of a tensor on a mesh of the model's axes and workers
};
struct ForwardRequest {
  std::string model;
  std::vector<ForwardInput> inputs = {};
  bool output_shards = false;   // the answer is each rank's block of every output, in place of the global tensors
  bool module_outputs = false;  // outputs of every module too, after the model's (ForwardHeader.module_outputs)
};
struct OutputShard {
  int rank = 0;
  Shape offset = {};  // global, of its first element
  HostTensor tensor = {};
};
struct OutputShards {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};  // global
  Placements placements = {};
  std::vector<OutputShard> shards = {};  // by rank, copies and empty ones included
};
struct ForwardResult {
  std::vector<NamedTensor> outputs;           // full global tensors
  std::vector<OutputShards> output_shards;    // in place of them, where asked for
  Mesh mesh;                                  // of the model
  std::vector<CollectiveRecord> collectives;  // as counted in the run; "(input x)": for an input that was redistributed
  int64_t wire_bytes = 0, duration_us = 0;
};
struct GenerateOptions {
  std::string model;
  std::string prompt;  // text, where token_ids is empty and use_ids is false
  bool use_ids = false;
  std::vector<int64_t> token_ids;
  int max_new_tokens = 0;
  bool ignore_eos = false;
  double temperature = 0, top_p = 0;
  int top_k = 0;
  uint64_t seed = 0;
};
struct GenerateChunk {
  std::vector<int64_t> token_ids;
  std::string text;
  std::string finish_reason;  // of the last one
};

// Thread-safe. Every call blocks until it is answered or `timeout` has passed (DEADLINE_EXCEEDED); errors are those of
// proto/tp/v1/coordinator.proto, UNAVAILABLE naming the address where nobody answers.
class Client : public TensorClient {
 public:
  // `submission`: serialized tp.v1.Submission.
  virtual absl::StatusOr<SubmitResult> Submit(const std::string& submission, const SubmitOptions& options) = 0;
  // The steps of a submit, one by one. `name` replaces the submission's where it is not empty.
  virtual absl::StatusOr<ModelSummary> CreateModel(const std::string& submission, const std::string& name) = 0;
  virtual absl::StatusOr<ModelSummary> InitStates(const std::string& name, bool buffers_on_cpu) = 0;
  virtual absl::StatusOr<SubmitResult> Parallelize(const std::string& name, const ParallelizeOptions& options) = 0;
  virtual absl::StatusOr<std::vector<ModelSummary>> ListModels() = 0;
  virtual absl::StatusOr<ModelDescription> GetModel(const std::string& name, bool include_submission) = 0;
  virtual absl::Status DeleteModel(const std::string& name) = 0;
  // Calls `on_change` with every state until it returns false or the model is gone.
  virtual absl::Status WatchModel(const std::string& name,
                                  const std::function<bool(const ModelSummary&)>& on_change) = 0;
  virtual absl::StatusOr<ForwardResult> Forward(const ForwardRequest& request) = 0;
  // Full tensors in and out.
  absl::StatusOr<ForwardResult> Forward(const std::string& model, std::vector<NamedTensor> inputs,
                                        bool module_outputs = false) {
    ForwardRequest request{.model = model, .module_outputs = module_outputs};
    for (NamedTensor& input : inputs) request.inputs.push_back({std::move(input.name), std::move(input.tensor)});
    return Forward(request);
  }
  // Calls `on_chunk` with tokens as they come; stops the generation where it returns false (CANCELLED).
  virtual absl::Status Generate(const GenerateOptions& options,
                                const std::function<bool(const GenerateChunk&)>& on_chunk) = 0;
  virtual absl::StatusOr<std::vector<WorkerInfo>> ListWorkers() = 0;
  virtual absl::StatusOr<StatusInfo> GetStatus() = 0;
};

// Does not connect yet; the first call does.
std::unique_ptr<Client> Connect(const ClientOptions& options);

}  // namespace tp::client
