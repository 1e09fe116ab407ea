#include "client/tpctl/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tp::client {
namespace {

absl::Status ErrnoStatus(int error, const std::string& path) { return absl::ErrnoToStatus(error, path); }

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder, not a file"));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno, path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (file.bad()) return absl::DataLossError(absl::StrCat("can't read ", path));
  return std::move(bytes).str();
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  const std::string temporary = path + ".tmp";
  errno = 0;
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  if (!file) return ErrnoStatus(errno, path);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int saved = errno;
    std::remove(temporary.c_str());
    return ErrnoStatus(saved == 0 ? EIO : saved, path);
  }
  return absl::OkStatus();
}

}  // namespace tp::client
