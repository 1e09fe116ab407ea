// tpctl submit: sends a submission and waits until the model is READY.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "client/tpctl/commands.h"
#include "client/tpctl/progress.h"
#include "client/tpctl/render.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {
absl::StatusOr<Submission> ReadSubmission(const std::string& file, const std::string& mesh) {
  TP_ASSIGN_OR_RETURN(SubmissionFormat format, SubmissionFormatOf(file));
  TP_ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(file, kMaxSubmissionBytes));
  absl::StatusOr<Submission> parsed = ParseSubmission(bytes, format);
  if (!parsed.ok()) return Annotate(parsed.status(), file);
  Submission submission = *std::move(parsed);
  std::error_code error;
  ResolveWeightPaths(std::filesystem::absolute(file, error).parent_path().string(), &submission);
  if (!mesh.empty()) {
    TP_ASSIGN_OR_RETURN(Mesh parsed_mesh, Mesh::Parse(mesh));
    submission.plan.mesh = parsed_mesh.axes();
  }
  return submission;
}

absl::Status SubmitFile(const GlobalOptions& globals, const SubmitFileOptions& options) {
  TP_ASSIGN_OR_RETURN(Submission submission, ReadSubmission(options.file, options.mesh));
  if (!options.name.empty()) submission.name = options.name;
  const std::string bytes = SerializeSubmission(submission, SubmissionFormat::kBinary);
  TP_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, ConnectTo(globals));

  std::atomic<bool> done = false;
  absl::StatusOr<SubmitResult> result = absl::UnknownError("not sent");
  {
    ProgressBar bar((options.replace ? "replacing " : "loading ") + submission.name);
    std::thread sender([&] {
      result = client->Submit(bytes, {.dry_run = options.dry_run, .replace = options.replace});
      done = true;
    });
    while (!done) {  // the bar only; the answer is the sender's
      absl::StatusOr<ModelDescription> model = client->GetModel(submission.name, false);
      if (model.ok() && !options.replace) bar.Update(model->summary.loaded_bytes, model->summary.total_bytes);
      for (int i = 0; i < 10 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    sender.join();
  }
  TP_RETURN_IF_ERROR(result.status());
  std::fputs(SubmitText(*result, options.dry_run, globals.json()).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace tp::client
