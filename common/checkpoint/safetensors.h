// Safetensors files: 8 bytes with the length of a JSON header (little endian), the header, the tensors' bytes without a
// gap. Parsing the header is pure and trusts nothing; the file class reads byte ranges, so that a rank reads its own
// slice only. Source: https://github.com/huggingface/safetensors, "Format". Example:
//   TP_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open("/m/model.safetensors"));
//   TP_ASSIGN_OR_RETURN(const SafetensorsTensor* t, file.Get("lm_head.weight"));
//   file.ReadRange(t->begin, t->end - t->begin, buffer);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"
#include "common/tensor/host_tensor.h"
#include "common/tensor/shape.h"

namespace tp {

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t begin = 0;  // offset of the first byte in the file (not in the data section)
  int64_t end = 0;    // one past the last; end - begin == product(shape) x item size
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // offset of the data section in the file
};

// Length of the header, from the first bytes of a file (all of them where it has fewer than 8). INVALID_ARGUMENT for
// fewer than 8 bytes, a length over kMaxSafetensorsHeader or one that passes the file's end. Messages do not name the
// file: callers annotate.
absl::StatusOr<int64_t> ParseSafetensorsHeaderSize(std::string_view first_bytes, int64_t file_size);

// Parses the header's JSON text. INVALID_ARGUMENT, naming the tensor, for text that is not a JSON object in UTF-8,
// repeated names, unknown fields or dtypes, negative or overflowing shapes, bytes that do not fit the shape, holes,
// overlaps, and a last end that is not the end of the file. The header {} alone is legal, shape [] is a scalar, a 0 in
// a shape is legal.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view header, int64_t file_size);

// An open file. Move-only; const calls are thread-safe. The header is read at opening, nothing else.
class SafetensorsFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE (I/O), INVALID_ARGUMENT (not a regular file, or a header that is
  // refused); each names the path.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // NOT_FOUND with the nearest names otherwise. The pointer lives as long as this file.
  absl::StatusOr<const SafetensorsTensor*> Get(const std::string& name) const;
  // Reads `size` bytes from `offset` of the file into `out`. Blocks on the disk. DATA_LOSS where the file has become
  // shorter, UNAVAILABLE for other I/O errors.
  absl::Status ReadRange(int64_t offset, int64_t size, char* out) const;
  absl::StatusOr<HostTensor> ReadTensor(const std::string& name) const;

 private:
  SafetensorsFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
  SafetensorsHeader header_;
};

// All tensors of a small file, by name. Errors of Open and ReadTensor.
absl::StatusOr<std::map<std::string, HostTensor>> ReadSafetensors(const std::string& path);

// A tensor that is to be written.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};
// The first bytes of a file that holds these tensors in this order without a gap: the length and the header, padded to
// a multiple of 8. `begins` gets the offset of each tensor's first byte in the file, `size` the file's size.
// INVALID_ARGUMENT for a name that is "__metadata__", is not UTF-8 or comes twice, for sizes that overflow and for a
// header over kMaxSafetensorsHeader. Pure.
absl::StatusOr<std::string> MakeSafetensorsHeader(const std::vector<SafetensorsEntry>& entries,
                                                  std::vector<int64_t>* begins, int64_t* size);

// Writes tensors to `path`, by way of a file next to it that is renamed at the end, so that a reader never sees half of
// it. INVALID_ARGUMENT for bytes that do not fit a shape and for a name that is "__metadata__" or not UTF-8;
// UNAVAILABLE for I/O.
absl::Status WriteSafetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors);

}  // namespace tp
