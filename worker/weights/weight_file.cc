#include "worker/weights/weight_file.h"

#include <utility>

#include "common/base/status.h"
#include "worker/weights/model_root.h"

namespace tp::worker {
namespace {

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

class RootedWeightFiles : public WeightFiles {
 public:
  explicit RootedWeightFiles(std::string root) : root_(std::move(root)) {}

  absl::StatusOr<std::unique_ptr<WeightFile>> Open(const std::string& path) override {
    TP_ASSIGN_OR_RETURN(const std::string resolved, root_.Resolve(path));
    TP_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(resolved));
    return std::make_unique<SafetensorsWeightFile>(std::move(file));
  }

 private:
  const ModelRoot root_;
};

}  // namespace

std::unique_ptr<WeightFiles> CreateRootedWeightFiles(const std::string& root) {
  return std::make_unique<RootedWeightFiles>(root);
}

}  // namespace tp::worker
