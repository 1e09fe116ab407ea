#include "common/checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {
namespace {

absl::Status WriteAll(int fd, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("cannot write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FileError(std::string_view doing, const std::string& path, int error_number) {
  std::string text = absl::StrCat(std::string(doing), " ", path, ": ", std::generic_category().message(error_number));
  if (error_number == ENOENT || error_number == ENOTDIR) return absl::NotFoundError(text);
  if (error_number == EACCES || error_number == EPERM) return absl::PermissionDeniedError(text);
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::UnavailableError(text);
}

absl::StatusOr<int> OpenRegularFile(const std::string& path, int64_t* size) {
  // Non-blocking, so that a named pipe is refused below and not waited for.
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError("cannot open", path, errno);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    absl::Status status = FileError("cannot open", path, errno);
    close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  *size = info.st_size;
  return fd;
}

absl::Status ReadExactly(int fd, const std::string& path, int64_t offset, int64_t size, char* out) {
  while (size > 0) {
    ssize_t got = pread(fd, out, static_cast<size_t>(std::min<int64_t>(size, 1 << 30)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("cannot read", path, errno);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path, " ends at byte ", offset, ", ", size, " bytes before it should"));
    }
    offset += got;
    size -= got;
    out += got;
  }
  return absl::OkStatus();
}

absl::Status WriteExactly(int fd, const std::string& path, int64_t offset, const char* data, int64_t size) {
  while (size > 0) {
    ssize_t written = pwrite(fd, data, static_cast<size_t>(std::min<int64_t>(size, 1 << 30)), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("cannot write", path, errno);
    offset += written;
    size -= written;
    data += written;
  }
  return absl::OkStatus();
}

absl::Status SyncPath(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  absl::Status status;
  if (fsync(fd) != 0) status = FileError("cannot sync", path, errno);
  close(fd);
  return status;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t limit) {
  int64_t size = 0;
  TP_ASSIGN_OR_RETURN(int fd, OpenRegularFile(path, &size));
  if (size > limit) {
    close(fd);
    return absl::ResourceExhaustedError(absl::StrCat(path, " has ", size, " bytes, more than the ", limit, " allowed"));
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  absl::Status status = ReadExactly(fd, path, 0, size, bytes.data());
  close(fd);
  if (!status.ok()) return status;
  return bytes;
}

absl::Status WriteFileAtomically(const std::string& path, const std::vector<std::string_view>& pieces) {
  const std::string partial = absl::StrCat(path, ".partial.", getpid());
  int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot write", path, errno);
  absl::Status status;
  for (std::string_view piece : pieces) {
    status = WriteAll(fd, path, piece);
    if (!status.ok()) break;
  }
  if (close(fd) != 0 && status.ok()) status = FileError("cannot write", path, errno);
  if (status.ok() && rename(partial.c_str(), path.c_str()) != 0) status = FileError("cannot write", path, errno);
  if (!status.ok()) unlink(partial.c_str());
  return status;
}

bool PathExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  std::string text = absolute.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace tp
