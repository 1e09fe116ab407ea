#include "worker/weights/weight_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

namespace fs = std::filesystem;

class SafetensorsWeightFile : public WeightFile {
 public:
  explicit SafetensorsWeightFile(SafetensorsFile file) : file_(std::move(file)) {}
  absl::StatusOr<const SafetensorsTensor*> Get(const std::string& tensor) const override { return file_.Get(tensor); }
  absl::Status ReadRange(int64_t offset, int64_t size, char* out) const override {
    return file_.ReadRange(offset, size, out);
  }

 private:
  const SafetensorsFile file_;
};

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

class RootedWeightFiles : public WeightFiles {
 public:
  explicit RootedWeightFiles(std::string root) : root_(std::move(root)) {}

  absl::StatusOr<std::unique_ptr<WeightFile>> Open(const std::string& path) override {
    if (root_.empty()) {
      return absl::PermissionDeniedError(
          absl::StrCat("'", path, "': this worker has no --model-root, so it reads no weights from files"));
    }
    std::error_code error;
    const fs::path root = fs::canonical(root_, error);
    if (error) return absl::NotFoundError(absl::StrCat("--model-root '", root_, "': ", error.message()));
    const fs::path written = root_given() / fs::path(path);
    if (!LiesUnder(written.lexically_normal(), root_given()) && !LiesUnder(written.lexically_normal(), root)) {
      return Outside(path);
    }
    const fs::path resolved = fs::canonical(written, error);
    if (error == std::errc::permission_denied) {
      return absl::PermissionDeniedError(absl::StrCat("'", path, "': ", error.message()));
    }
    if (error) return absl::NotFoundError(absl::StrCat("'", path, "': ", error.message()));
    if (!LiesUnder(resolved, root)) return Outside(path);
    TP_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(resolved.string()));
    return std::make_unique<SafetensorsWeightFile>(std::move(file));
  }

 private:
  fs::path root_given() const {
    std::error_code error;
    fs::path root = fs::absolute(root_, error).lexically_normal();
    return root.has_filename() || root == root.root_path() ? root : root.parent_path();
  }
  absl::Status Outside(const std::string& path) const {
    return absl::PermissionDeniedError(absl::StrCat("'", path, "' is outside --model-root '", root_, "'"));
  }
  const std::string root_;
};

}  // namespace

std::unique_ptr<WeightFiles> CreateRootedWeightFiles(const std::string& root) {
  return std::make_unique<RootedWeightFiles>(root);
}

}  // namespace tp::worker
