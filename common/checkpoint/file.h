// Plain files with errors as statuses: what checkpoints and .npy files are read and written with.
// Example: TP_ASSIGN_OR_RETURN(std::string text, ReadWholeFile("/m/config.json", 1 << 20));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tp {

// `errno` value as a status that names the path: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (no room,
// quota), else UNAVAILABLE.
absl::Status FileError(std::string_view doing, const std::string& path, int error_number);

// A descriptor for reading; the caller closes it. INVALID_ARGUMENT for what is not a regular file. Sets its size in
// bytes.
absl::StatusOr<int> OpenRegularFile(const std::string& path, int64_t* size);
// Reads exactly `size` bytes at `offset`; DATA_LOSS where the file ends before.
absl::Status ReadExactly(int fd, const std::string& path, int64_t offset, int64_t size, char* out);
// Writes `size` bytes at `offset` of a descriptor that is open for writing. Errors of FileError.
absl::Status WriteExactly(int fd, const std::string& path, int64_t offset, const char* data, int64_t size);
// Waits until a file's bytes, or a folder's entries, are on the disk.
absl::Status SyncPath(const std::string& path);

// The whole file. RESOURCE_EXHAUSTED where it is longer than `limit` bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t limit);
// Writes the pieces, one after the other, to a file next to `path` and renames it, so that a reader never sees half of
// it.
absl::Status WriteFileAtomically(const std::string& path, const std::vector<std::string_view>& pieces);

// Whether something exists at `path` (links are followed).
bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);
// Absolute and normalised ("/a/b" for "../b" in /a/c); links are kept.
std::string AbsolutePath(const std::string& path);

}  // namespace tp
