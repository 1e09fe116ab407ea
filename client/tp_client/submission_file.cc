#include "client/tp_client/submission_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/submission_file.h"

namespace tp::client {

absl::StatusOr<std::string> ReadSubmissionFile(const std::string& path) {
  TP_ASSIGN_OR_RETURN(const SubmissionFormat format, SubmissionFormatOf(path));
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  if (!file || !(bytes << file.rdbuf())) return absl::NotFoundError(absl::StrCat(path, " can't be read"));
  absl::StatusOr<Submission> submission = ParseSubmission(bytes.str(), format);
  if (!submission.ok()) return Annotate(submission.status(), path);
  std::error_code error;
  ResolveWeightPaths(std::filesystem::absolute(path, error).parent_path().string(), &*submission);
  return SerializeSubmission(*submission, SubmissionFormat::kBinary);
}

}  // namespace tp::client
