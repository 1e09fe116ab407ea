#include "worker/weights/model_root.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

namespace fs = std::filesystem;

// Both normalised and absolute, without a slash at the end but for "/".
bool LiesUnder(const fs::path& path, const fs::path& root) {
  auto p = path.begin();
  for (auto r = root.begin(); r != root.end(); ++r) {
    if (r->empty()) continue;
    if (p == path.end() || *p != *r) return false;
    ++p;
  }
  return true;
}

fs::path WithoutSlash(const fs::path& path) {
  return path.has_filename() || path == path.root_path() ? path : path.parent_path();
}

}  // namespace

absl::StatusOr<std::string> ModelRoot::ResolveWritten(const std::string& path, bool may_be_new) const {
  if (root_.empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "': this worker has no --model-root, so it reads and writes no weights in files"));
  }
  const absl::Status outside =
      absl::PermissionDeniedError(absl::StrCat("'", path, "' is outside --model-root '", root_, "'"));
  std::error_code error;
  const fs::path root = fs::canonical(root_, error);
  if (error) return absl::NotFoundError(absl::StrCat("--model-root '", root_, "': ", error.message()));
  const fs::path given = WithoutSlash(fs::absolute(root_, error).lexically_normal());
  const fs::path written = given / fs::path(path);
  if (!LiesUnder(written.lexically_normal(), given) && !LiesUnder(written.lexically_normal(), root)) return outside;
  fs::path exists = may_be_new ? WithoutSlash(written.lexically_normal()) : written;
  fs::path rest;
  while (may_be_new && fs::symlink_status(exists, error).type() == fs::file_type::not_found &&
         exists != exists.root_path()) {
    rest = rest.empty() ? exists.filename() : exists.filename() / rest;
    exists = exists.parent_path();
  }
  error.clear();
  const fs::path resolved = fs::canonical(exists, error);
  if (error == std::errc::permission_denied) {
    return absl::PermissionDeniedError(absl::StrCat("'", path, "': ", error.message()));
  }
  if (error && may_be_new) {
    return absl::PermissionDeniedError(absl::StrCat("'", path, "': '", exists.string(), "': ", error.message()));
  }
  if (error) return absl::NotFoundError(absl::StrCat("'", path, "': ", error.message()));
  if (!LiesUnder(resolved, root)) return outside;
  return (rest.empty() ? resolved : resolved / rest).string();
}

absl::StatusOr<std::string> ModelRoot::Resolve(const std::string& path) const { return ResolveWritten(path, false); }
absl::StatusOr<std::string> ModelRoot::ResolveNew(const std::string& path) const { return ResolveWritten(path, true); }

}  // namespace tp::worker
