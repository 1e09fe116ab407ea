// The commands of tpctl, one a file. Each returns the status of the request; main.cc prints a failed one as
// "tpctl: CODE: text" and exits 1. Results go to stdout, progress and notes to stderr.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tp_client/client.h"
#include "common/model/model.h"

namespace tp::client {

struct GlobalOptions {
  std::string server;          // "" = TPCTL_SERVER, else the endpoint of the default folder
  double timeout_seconds = 0;  // 0 = none
  TlsFiles tls;                // plain text where none is named
  std::string output_format = "table";
  bool json() const { return output_format == "json"; }
};

// --- Local clusters.
struct LocalOptions {
  std::string dir;  // "" = DefaultDir()
  int workers = 2;
  int threads = 0;  // 0 = max(1, cores / workers)
  std::string model_root = "/";
  std::string device = "cpu";  // "cuda": worker i on GPU i
  std::vector<std::string> coordinator_flags, worker_flags;
};
absl::Status LocalUp(const GlobalOptions& globals, const LocalOptions& options);
absl::Status LocalDown(const GlobalOptions& globals, const LocalOptions& options);
// $XDG_STATE_HOME/tensorplane, else ~/.local/state/tensorplane.
std::string DefaultDir();

// --- Files.
struct ImportCommandOptions {
  std::string dir;
  int tp = 1;
  std::string plan = "standard";
  bool sequence_parallel = false;
  int64_t memory_limit = 0;
  std::string compute_dtype;  // "" = unset
  std::string out;
};
absl::Status Import(const GlobalOptions& globals, const ImportCommandOptions& options);

struct ExplainOptions {
  std::string file;
  std::string mesh;
  std::vector<std::string> shapes;  // "ids=1x16"
  std::string against;              // another submission; "" = none
  std::string plan;                 // "auto"; "" = the file's
  bool sequence_parallel = false;
  int64_t memory_limit = 0;
};
absl::Status Explain(const GlobalOptions& globals, const ExplainOptions& options);

// Reads a submission (.pb, .textproto, .json); relative weight paths become those of the file's folder. `mesh` ("tp=2")
// replaces the plan's axes where not empty.
absl::StatusOr<Submission> ReadSubmission(const std::string& file, const std::string& mesh);

// --- Models.
struct SubmitFileOptions {
  std::string file, name, mesh;
  bool dry_run = false, replace = false;
};
absl::Status SubmitFile(const GlobalOptions& globals, const SubmitFileOptions& options);
// The steps of a submit, one by one.
struct ModelCreateOptions {
  std::string file, name;
};
absl::Status ModelCreate(const GlobalOptions& globals, const ModelCreateOptions& options);
struct ModelInitOptions {
  std::string name, buffer_device = "device";
};
absl::Status ModelInit(const GlobalOptions& globals, const ModelInitOptions& options);
struct ModelParallelizeOptions {
  std::string name, file, mesh;  // file: "" = the plan that the model was created with
};
absl::Status ModelParallelize(const GlobalOptions& globals, const ModelParallelizeOptions& options);
absl::Status ListModels(const GlobalOptions& globals);
absl::Status Describe(const GlobalOptions& globals, const std::string& model);
absl::Status Delete(const GlobalOptions& globals, const std::string& model);

struct ForwardOptions {
  std::string model;
  std::vector<std::string> inputs;            // "NAME=FILE", "NAME=1,2,3", "NAME=@TENSOR"
  std::vector<std::string> input_shards;      // "NAME:RANK=FILE"
  std::vector<std::string> input_placements;  // "NAME:tp=S(1)"
  std::string output, output_form = "full";
};
absl::Status Forward(const GlobalOptions& globals, const ForwardOptions& options);

struct GenerateCommandOptions {
  GenerateOptions generate;
  std::string prompt_ids;
  bool has_prompt = false, has_prompt_ids = false;
};
absl::Status Generate(const GlobalOptions& globals, const GenerateCommandOptions& options);

struct VerifyOptions {
  std::string model;
  std::vector<std::string> inputs;
  std::optional<double> tolerance;  // absent: DefaultTolerance of verify_compare.h
};
absl::Status Verify(const GlobalOptions& globals, const VerifyOptions& options);

// --- Meshes and tensors.
struct MeshCreateOptions {
  std::string name, axes;  // "dp=2,tp=2"
  std::string workers;     // "a,b,..." by rank; "" = chosen
};
absl::Status MeshCreate(const GlobalOptions& globals, const MeshCreateOptions& options);
absl::Status MeshList(const GlobalOptions& globals);
absl::Status MeshDelete(const GlobalOptions& globals, const std::string& name);

struct TensorPutOptions {
  std::string name, file, mesh, placements;
  std::string tensor;               // name in a safetensors file; "" = `name`, else its only one
  std::vector<std::string> locals;  // "RANK=FILE", in place of `file`
  std::string global_shape;         // "5x3", with locals
  bool has_global_shape = false;
  std::string src_data_rank;  // "N", "none"; "" = 0
};
absl::Status TensorPut(const GlobalOptions& globals, const TensorPutOptions& options);

struct TensorCreateOptions {
  std::string name, init, shape, dtype = "F32", mesh, placements;
  uint64_t seed = 0;
};
absl::Status TensorCreate(const GlobalOptions& globals, const TensorCreateOptions& options);

struct TensorRedistributeOptions {
  std::string name, mesh, placements, as;
};
absl::Status TensorRedistribute(const GlobalOptions& globals, const TensorRedistributeOptions& options);

struct TensorGetOptions {
  std::string name, output;
};
absl::Status TensorGet(const GlobalOptions& globals, const TensorGetOptions& options);

struct TensorShardsOptions {
  std::string name;
  bool values = false;
};
absl::Status TensorShards(const GlobalOptions& globals, const TensorShardsOptions& options);
absl::Status TensorList(const GlobalOptions& globals);
absl::Status TensorDelete(const GlobalOptions& globals, const std::string& name);

struct TensorSaveOptions {
  std::string directory;
  std::vector<std::string> names;
};
absl::Status TensorSave(const GlobalOptions& globals, const TensorSaveOptions& options);
struct TensorLoadOptions {
  std::string directory, mesh, placements;
  std::vector<std::string> names;  // empty: all
};
absl::Status TensorLoad(const GlobalOptions& globals, const TensorLoadOptions& options);

// --- The service.
absl::Status ListWorkers(const GlobalOptions& globals);
absl::Status Status(const GlobalOptions& globals);
absl::Status Version(const GlobalOptions& globals);

// The client of the globals' server. FAILED_PRECONDITION where none is named anywhere.
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const GlobalOptions& globals);
absl::StatusOr<std::string> ServerAddress(const GlobalOptions& globals);

}  // namespace tp::client
