// The commands of tpctl, one a file. Each returns the status of the request; main.cc prints a failed one as
// "tpctl: CODE: text" and exits 1. Results go to stdout, progress and notes to stderr.
#pragma once

#include <cstdint>
#include <memory>
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
  std::string output_format = "table";
  bool json() const { return output_format == "json"; }
};

// --- Local clusters.
struct LocalOptions {
  std::string dir;  // "" = DefaultDir()
  int workers = 2;
  int threads = 0;  // 0 = max(1, cores / workers)
  std::string model_root = "/";
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
  std::string against, plan;
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
absl::Status ListModels(const GlobalOptions& globals);
absl::Status Describe(const GlobalOptions& globals, const std::string& model);
absl::Status Delete(const GlobalOptions& globals, const std::string& model);

struct ForwardOptions {
  std::string model;
  std::vector<std::string> inputs;  // "NAME=FILE", "NAME=1,2,3", "NAME=@TENSOR"
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
  double tolerance = 1e-4;
};
absl::Status Verify(const GlobalOptions& globals, const VerifyOptions& options);

// --- The service.
absl::Status ListWorkers(const GlobalOptions& globals);
absl::Status Status(const GlobalOptions& globals);
absl::Status Version(const GlobalOptions& globals);

// The client of the globals' server. FAILED_PRECONDITION where none is named anywhere.
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const GlobalOptions& globals);
absl::StatusOr<std::string> ServerAddress(const GlobalOptions& globals);

}  // namespace tp::client
