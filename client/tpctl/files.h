// Whole files, for the command line.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tp::client {

// NOT_FOUND, PERMISSION_DENIED or INVALID_ARGUMENT (a folder) naming the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// Written beside it and renamed, so that a failure leaves the old file.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

}  // namespace tp::client
