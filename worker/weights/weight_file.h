// Where the bytes of weights come from, as an interface: safetensors files under the worker's model root, or in tests a
// source that is slow or fails. Example:
//   auto files = CreateRootedWeightFiles("/models");  auto file = files->Open("/models/a/model.safetensors");
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/safetensors.h"

namespace tp::worker {

// One open file. const calls are thread-safe.
class WeightFile {
 public:
  virtual ~WeightFile() = default;
  // NOT_FOUND with the nearest names. Lives as long as the file.
  virtual absl::StatusOr<const SafetensorsTensor*> Get(const std::string& tensor) const = 0;
  // Reads `size` bytes from `offset` of the file. Blocks. DATA_LOSS where the file has become shorter.
  virtual absl::Status ReadRange(int64_t offset, int64_t size, char* out) const = 0;
};

// Opens files. Thread-safe.
class WeightFiles {
 public:
  virtual ~WeightFiles() = default;
  virtual absl::StatusOr<std::unique_ptr<WeightFile>> Open(const std::string& path) = 0;
};

// Files under `root` only, as ModelRoot (model_root.h) resolves their paths.
std::unique_ptr<WeightFiles> CreateRootedWeightFiles(const std::string& root);

}  // namespace tp::worker
