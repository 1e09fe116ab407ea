// Submissions as files: .pb, .textproto and .json hold the same message. Example:
//   TP_ASSIGN_OR_RETURN(SubmissionFormat format, SubmissionFormatOf("plan.json"));
//   TP_ASSIGN_OR_RETURN(Submission submission, ParseSubmission(bytes, format));
// Pure: reading and writing files is the caller's.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "tp/v1/submission.pb.h"

namespace tp {

enum class SubmissionFormat { kBinary, kText, kJson };

inline constexpr size_t kMaxSubmissionBytes = size_t{64} << 20;

// By the ending: .pb, .textproto (or .pbtxt), .json. INVALID_ARGUMENT naming these otherwise.
absl::StatusOr<SubmissionFormat> SubmissionFormatOf(std::string_view path);

// INVALID_ARGUMENT for what does not parse, for unknown fields in every form (line and column in text, the field's path
// else) and for all that SubmissionFromProto refuses. RESOURCE_EXHAUSTED over kMaxSubmissionBytes.
absl::StatusOr<Submission> ParseSubmission(std::string_view bytes, SubmissionFormat format);
// The plan of a submission's file; the rest may be missing.
struct PlanOfFile {
  ParallelPlan plan;
  std::string sharded_module;  // one that has a sharding of its own, which is no part of the plan; "" for none
};
absl::StatusOr<PlanOfFile> ParsePlan(std::string_view bytes, SubmissionFormat format);
// ParseSubmission without the translation to a value.
absl::StatusOr<v1::Submission> ParseSubmissionMessage(std::string_view bytes, SubmissionFormat format);
// Equal submissions give equal bytes.
std::string SerializeSubmission(const Submission& submission, SubmissionFormat format);
// A submission's file with nothing but the plan.
std::string SerializePlan(const ParallelPlan& plan, SubmissionFormat format);
std::string SerializeSubmissionMessage(const v1::Submission& message, SubmissionFormat format);

// Makes relative paths of weight files those below `folder` (the folder of the submission's file).
void ResolveWeightPaths(const std::string& folder, Submission* submission);

}  // namespace tp
