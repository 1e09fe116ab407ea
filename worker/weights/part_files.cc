#include "worker/weights/part_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"

namespace tp::worker {
namespace {

constexpr char kIndex[] = "model.safetensors.index.json";

}  // namespace

PartFiles::PartFiles(std::string folder, const std::string& tag, std::vector<SavedFile> files)
    : folder_(std::move(folder)),
      suffix_(absl::StrCat(".", tag, ".part")),
      files_(std::move(files)),
      open_(files_.size(), -1) {}

PartFiles::~PartFiles() { Close(); }

std::string PartFiles::PartOf(size_t file) const { return absl::StrCat(folder_, "/", files_[file].name, suffix_); }

void PartFiles::Close() {
  for (int& fd : open_) {
    if (fd >= 0) close(std::exchange(fd, -1));
  }
}

absl::Status PartFiles::Open(size_t file) {
  if (open_[file] >= 0) return absl::OkStatus();
  const std::string path = PartOf(file);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return FileError("cannot make the folder", folder_, error.value());
  // Not through a link that someone left there.
  open_[file] = open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (open_[file] < 0) return FileError("cannot write", path, errno);
  return absl::OkStatus();
}

// What is there already stays as it is: a save never mixes with another, and never replaces one.
absl::Status PartFiles::Create() {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!absl::EndsWith(name, ".safetensors") && !absl::EndsWith(name, ".safetensors.index.json")) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(folder_, " holds ", name, " already: save to another folder or remove it first"));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    TP_RETURN_IF_ERROR(
        Write(static_cast<int>(i), 0, files_[i].header.data(), static_cast<int64_t>(files_[i].header.size())));
  }
  return absl::OkStatus();
}

absl::Status PartFiles::Write(int file, int64_t offset, const char* data, int64_t size) {
  if (file < 0 || file >= static_cast<int>(files_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("file ", file, " of ", files_.size()));
  }
  const SavedFile& saved = files_[static_cast<size_t>(file)];
  if (offset < 0 || size < 0 || offset > saved.size_bytes || size > saved.size_bytes - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(saved.name, ": ", size, " bytes at ", offset, " of a file of ", saved.size_bytes, " bytes"));
  }
  TP_RETURN_IF_ERROR(Open(static_cast<size_t>(file)));
  return WriteExactly(open_[static_cast<size_t>(file)], PartOf(static_cast<size_t>(file)), offset, data, size);
}

absl::Status PartFiles::Sync() {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (open_[i] >= 0 && fsync(open_[i]) != 0) return FileError("cannot sync", PartOf(i), errno);
  }
  Close();
  return absl::OkStatus();
}

absl::Status PartFiles::Seal(const std::string& index) {
  Close();
  for (size_t i = 0; i < files_.size(); ++i) {
    struct stat info;
    if (lstat(PartOf(i).c_str(), &info) != 0) return FileError("cannot open", PartOf(i), errno);
    if (!S_ISREG(info.st_mode) || info.st_size != files_[i].size_bytes) {
      return absl::DataLossError(
          absl::StrCat(PartOf(i), ": expected ", files_[i].size_bytes, " bytes, got ", info.st_size));
    }
    TP_RETURN_IF_ERROR(SyncPath(PartOf(i)));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    const std::string path = absl::StrCat(folder_, "/", files_[i].name);
    if (rename(PartOf(i).c_str(), path.c_str()) != 0) return FileError("cannot rename to", path, errno);
  }
  const std::string index_path = absl::StrCat(folder_, "/", kIndex);
  if (!index.empty()) {
    const std::string part = absl::StrCat(index_path, suffix_);
    TP_RETURN_IF_ERROR(WriteFileAtomically(part, {index}));
    TP_RETURN_IF_ERROR(SyncPath(part));
    if (rename(part.c_str(), index_path.c_str()) != 0) return FileError("cannot rename to", index_path, errno);
  }
  return SyncPath(folder_);
}

void PartFiles::Remove() {
  Close();
  for (size_t i = 0; i < files_.size(); ++i) unlink(PartOf(i).c_str());
  unlink(absl::StrCat(folder_, "/", kIndex, suffix_).c_str());
}

}  // namespace tp::worker
