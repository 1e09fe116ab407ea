// tpctl import: a Hugging Face folder becomes a submission file. Offline.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/tpctl/commands.h"
#include "client/tpctl/explain_render.h"
#include "client/tpctl/explain_shapes.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/hugging_face.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {
namespace {

// In place of the standard plan, the one that is found.
absl::Status TakeFoundPlan(const ImportCommandOptions& options, Submission* submission) {
  TP_ASSIGN_OR_RETURN(const auto shapes, ExplainShapes({}, submission->model));
  TP_ASSIGN_OR_RETURN(const AutoPlan found,
                      FindPlan(*submission, {options.sequence_parallel, options.memory_limit, shapes}));
  submission->plan = found.plan;
  for (const std::string& note : found.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  return absl::OkStatus();
}

// The plan must compile for the degree, and keep to the memory limit where there is one (0: none).
absl::Status CheckPlan(const Submission& submission, int64_t limit) {
  TP_ASSIGN_OR_RETURN(const CompiledModel compiled, CompileForward(submission));
  if (limit == 0) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(const auto shapes, ExplainShapes({}, submission.model));
  TP_ASSIGN_OR_RETURN(const Bindings bindings, BindInputs(compiled.program, shapes));
  TP_ASSIGN_OR_RETURN(const std::vector<RankMemory> memory, MemoryOf(compiled, bindings, /*widened=*/false));
  const RankMemory& busiest = Busiest(memory);
  if (TotalBytes(busiest) <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the standard plan needs ", TotalBytes(busiest), " bytes on rank ",
                                                   busiest.rank, ", over the memory limit of ", limit));
}

}  // namespace

absl::Status Import(const GlobalOptions&, const ImportCommandOptions& options) {
  if (options.memory_limit < 0) return absl::InvalidArgumentError("--memory-limit must not be negative");
  ImportOptions import;
  import.degree = options.tp;
  import.sequence_parallel = options.sequence_parallel;
  if (!options.compute_dtype.empty()) {
    TP_ASSIGN_OR_RETURN(import.compute_dtype, ParseDType(options.compute_dtype));
  }
  TP_ASSIGN_OR_RETURN(Submission submission, ImportHuggingFace(options.dir, import));
  if (options.plan == "auto") {
    TP_RETURN_IF_ERROR(TakeFoundPlan(options, &submission));
  } else {
    TP_RETURN_IF_ERROR(CheckPlan(submission, options.memory_limit));
  }
  const std::string out = options.out.empty() ? "-.textproto" : options.out;
  TP_ASSIGN_OR_RETURN(SubmissionFormat format, SubmissionFormatOf(out));
  const std::string bytes = SerializeSubmission(submission, format);
  if (!options.out.empty()) {
    TP_RETURN_IF_ERROR(WriteFileAtomically(options.out, {bytes}));
    std::fprintf(stderr, "wrote %s: model %s for tp=%d\n", options.out.c_str(), submission.name.c_str(), options.tp);
    return absl::OkStatus();
  }
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
