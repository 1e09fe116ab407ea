// tpctl model create, init, parallelize: the steps of a submit, one by one.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {

absl::Status ModelCreate(const GlobalOptions& globals, const ModelCreateOptions& options) {
  TP_ASSIGN_OR_RETURN(Submission submission, ReadSubmission(options.file, ""));
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  const std::string bytes = SerializeSubmission(submission, SubmissionFormat::kBinary);
  TP_ASSIGN_OR_RETURN(const ModelSummary model, client->CreateModel(bytes, options.name));
  std::fputs(StepText(model, {}, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status ModelInit(const GlobalOptions& globals, const ModelInitOptions& options) {
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const ModelSummary model, client->InitStates(options.name, options.buffer_device == "cpu"));
  std::fputs(StepText(model, {}, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status ModelParallelize(const GlobalOptions& globals, const ModelParallelizeOptions& options) {
  ParallelizeOptions parallelize;
  if (!options.file.empty()) {
    TP_ASSIGN_OR_RETURN(const SubmissionFormat format, SubmissionFormatOf(options.file));
    TP_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(options.file, kMaxSubmissionBytes));
    absl::StatusOr<PlanOfFile> plan = ParsePlan(bytes, format);
    if (!plan.ok()) return Annotate(plan.status(), options.file);
    parallelize.own_plan = false;
    if (!plan->sharded_module.empty()) {
      std::fprintf(stderr, "note: only the plan of %s is taken; the sharding that %s has in it is not\n",
                   options.file.c_str(), plan->sharded_module.c_str());
    }
    parallelize.plan = std::move(plan->plan);
  }
  if (!options.mesh.empty()) {
    TP_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Parse(options.mesh));
    parallelize.mesh = mesh.axes();
  }
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));
  TP_ASSIGN_OR_RETURN(const SubmitResult result, client->Parallelize(options.name, parallelize));
  std::fputs(StepText(result.model, result.warnings, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
