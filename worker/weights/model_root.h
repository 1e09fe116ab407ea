// ModelRoot: the folder that a worker may read weights from and write checkpoints to. A path from outside names a place
// in it only if it does so as written and after its links are resolved. Example:
//   ModelRoot root("/models");  root.Resolve("a/model.safetensors") is "/models/a/model.safetensors";
//   root.Resolve("/etc/passwd") is PERMISSION_DENIED.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tp::worker {

// Immutable; thread-safe. Blocks on the file system.
class ModelRoot {
 public:
  // "": every path is PERMISSION_DENIED.
  explicit ModelRoot(std::string root) : root_(std::move(root)) {}

  // The absolute path without links of what exists at `path`; a relative one starts at the root. PERMISSION_DENIED for
  // a path outside; NOT_FOUND.
  absl::StatusOr<std::string> Resolve(const std::string& path) const;
  // The same for a folder that may not exist yet: its nearest ancestor that exists is resolved. Also PERMISSION_DENIED
  // where a link leads nowhere.
  absl::StatusOr<std::string> ResolveNew(const std::string& path) const;

 private:
  absl::StatusOr<std::string> ResolveWritten(const std::string& path, bool may_be_new) const;
  const std::string root_;
};

}  // namespace tp::worker
