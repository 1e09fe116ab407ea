// A submission's file as the bytes that Client::Submit takes. Example:
//   TP_ASSIGN_OR_RETURN(std::string submission, ReadSubmissionFile("deploy/demo/mlp.textproto"));
//   client->Submit(submission, {});
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tp::client {

// Of a .pb, .textproto or .json file the serialized tp.v1.Submission; relative paths of weights become those of the
// file's folder. NOT_FOUND; INVALID_ARGUMENT naming the file and the place in it.
absl::StatusOr<std::string> ReadSubmissionFile(const std::string& path);

}  // namespace tp::client
