// Client: the coordinator's API as C++ calls on plain values. Example:
//   auto client = tp::client::Connect({.server = "127.0.0.1:7050"});
//   auto result = client->Forward("mlp", {{"x", MakeHostTensor<float>({1, 8}, values)}});
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/tp_client/tensors.h"
#include "common/layout/placement.h"
#include "common/mesh/mesh.h"
#include "common/program/memory.h"
#include "common/tensor/dim.h"
#include "common/tensor/host_tensor.h"

namespace tp::client {

struct ClientOptions {
  std::string server;                                 // HOST:PORT
  absl::Duration timeout = absl::InfiniteDuration();  // of each call
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
};
struct SubmitResult {
  ModelSummary model;
  std::vector<std::string> warnings;
};
struct NamedTensor {
  std::string name;
  HostTensor tensor;
};
struct ForwardResult {
  std::vector<NamedTensor> outputs;           // full global tensors
  std::vector<CollectiveRecord> collectives;  // as counted in the run
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
  virtual absl::StatusOr<std::vector<ModelSummary>> ListModels() = 0;
  virtual absl::StatusOr<ModelDescription> GetModel(const std::string& name, bool include_submission) = 0;
  virtual absl::Status DeleteModel(const std::string& name) = 0;
  // Calls `on_change` with every state until it returns false or the model is gone.
  virtual absl::Status WatchModel(const std::string& name,
                                  const std::function<bool(const ModelSummary&)>& on_change) = 0;
  virtual absl::StatusOr<ForwardResult> Forward(const std::string& model, const std::vector<NamedTensor>& inputs) = 0;
  // Calls `on_chunk` with tokens as they come; stops the generation where it returns false (CANCELLED).
  virtual absl::Status Generate(const GenerateOptions& options,
                                const std::function<bool(const GenerateChunk&)>& on_chunk) = 0;
  virtual absl::StatusOr<std::vector<WorkerInfo>> ListWorkers() = 0;
  virtual absl::StatusOr<StatusInfo> GetStatus() = 0;
};

// Does not connect yet; the first call does.
std::unique_ptr<Client> Connect(const ClientOptions& options);

}  // namespace tp::client
