// The files of a checkpoint while several ranks write it: NAME.TAG.part in its folder, each rank with its own byte
// runs, until the save is sealed. Example:
//   PartFiles files("/m/ckpt", "s7", {{"model.safetensors", header, size}});
//   files.Create();  files.Write(0, offset, data, size);  files.Sync();  files.Seal(index);
// `files` are common/program/command.h's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/program/command.h"

namespace tp::worker {

// Thread-compatible; blocks on the disk. Errors name the file: RESOURCE_EXHAUSTED (no room), PERMISSION_DENIED,
// NOT_FOUND, UNAVAILABLE.
class PartFiles {
 public:
  // `folder` is resolved already (ModelRoot::ResolveNew). Touches nothing.
  PartFiles(std::string folder, const std::string& tag, std::vector<SavedFile> files);
  ~PartFiles();
  PartFiles(const PartFiles&) = delete;
  PartFiles& operator=(const PartFiles&) = delete;

  // Makes the folder, and writes the headers.
  absl::Status Create();
  // Writes bytes of file `file`. INVALID_ARGUMENT for what lies outside its size. Makes the folder and the file where
  // they are missing, so that ranks need no order.
  absl::Status Write(int file, int64_t offset, const char* data, int64_t size);
  // Puts what was written here on the disk and closes the files.
  absl::Status Sync();
  // DATA_LOSS where a file has another size than it should, before any is renamed; syncs and renames all, then `index`
  // (model.safetensors.index.json; none where empty), then syncs the folder.
  absl::Status Seal(const std::string& index);
  // Removes the parts that are there.
  void Remove();

 private:
  std::string PartOf(size_t file) const;
  absl::Status Open(size_t file);
  void Close();

  const std::string folder_, suffix_;
  const std::vector<SavedFile> files_;
  std::vector<int> open_;  // descriptors by file; -1
};

}  // namespace tp::worker
