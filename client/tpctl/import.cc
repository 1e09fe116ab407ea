// tpctl import: a Hugging Face folder becomes a submission file. Offline.
#include <cstdio>

#include "client/tpctl/commands.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/hugging_face.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {

absl::Status Import(const GlobalOptions&, const ImportCommandOptions& options) {
  if (options.plan == "auto") return absl::UnimplementedError("--plan auto is not built yet; --plan standard is");
  if (options.memory_limit != 0) return absl::UnimplementedError("--memory-limit is not built yet");
  ImportOptions import;
  import.degree = options.tp;
  import.sequence_parallel = options.sequence_parallel;
  if (!options.compute_dtype.empty()) {
    TP_ASSIGN_OR_RETURN(import.compute_dtype, ParseDType(options.compute_dtype));
  }
  TP_ASSIGN_OR_RETURN(Submission submission, ImportHuggingFace(options.dir, import));
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
