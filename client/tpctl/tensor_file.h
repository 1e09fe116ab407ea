// Tensors in .npy and .safetensors files, a piece at a time: nothing here holds more than its caller's buffer. Example:
//   TP_ASSIGN_OR_RETURN(TensorReader in, TensorReader::Open("w.npy", "w", false));
//   in.Read(0, 1 << 20, buffer);
//   TensorFileSink out("w.safetensors", "w", nullptr);
//   client->GetTensor("w", false, &out);  out.Commit();
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tp_client/tensors.h"

namespace tp::client {

// A file name that these classes know. INVALID_ARGUMENT otherwise, with `option` in front.
absl::Status CheckTensorPath(const std::string& path, const std::string& option);

// One tensor of an open file. Move-only.
class TensorReader {
 public:
  // Of a safetensors file the tensor `name`, or, unless `exact`, its only one. NOT_FOUND with the nearest names;
  // errors of the files' readers, which name the path.
  static absl::StatusOr<TensorReader> Open(const std::string& path, const std::string& name, bool exact);
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t bytes() const { return bytes_; }
  // `size` bytes at `offset` of the tensor. DATA_LOSS where the file has become shorter.
  absl::Status Read(int64_t offset, int64_t size, char* out) const { return read_(offset, size, out); }

 private:
  DType dtype_ = DType::kF32;
  Shape shape_;
  int64_t bytes_ = 0;
  std::function<absl::Status(int64_t offset, int64_t size, char* out)> read_;
};

// Where the bytes [begin, begin + size) of a row-major box go in the row-major tensor around it: `run` is called with
// the offset in the tensor, the offset from `begin` and the size of each contiguous run, in order. All in bytes. Pure.
void ForEachRun(const Shape& global, const TensorBlock& box, int64_t item_size, int64_t begin, int64_t size,
                const std::function<void(int64_t to, int64_t from, int64_t size)>& run);

// Writes a streamed tensor to a file, each piece at its place. The file appears under its name when Commit is called;
// without it nothing is left. Thread-compatible.
class TensorFileSink : public TensorSink {
 public:
  // `name`: of the tensor in a safetensors file. `progress` is told of bytes done and in all.
  TensorFileSink(std::string path, std::string name, std::function<void(int64_t, int64_t)> progress);
  ~TensorFileSink() override;
  TensorFileSink(const TensorFileSink&) = delete;
  TensorFileSink& operator=(const TensorFileSink&) = delete;

  // UNIMPLEMENTED for BF16 as .npy; RESOURCE_EXHAUSTED where there is no room for the whole file.
  absl::Status Begin(const TensorInfo& tensor, const std::vector<TensorBlock>& blocks) override;
  absl::Status Write(size_t block, int64_t offset, std::string_view bytes) override;
  absl::Status Commit();
  const TensorInfo& tensor() const { return tensor_; }
  int64_t tensor_bytes() const { return total_; }

 private:
  absl::Status WriteMapped(int64_t first, int64_t last, const TensorBlock& box, int64_t offset, std::string_view bytes);
  const std::string path_, name_, partial_;
  const std::function<void(int64_t, int64_t)> progress_;
  int fd_ = -1;
  int64_t data_begin_ = 0, total_ = 0, done_ = 0;  // bytes
  TensorInfo tensor_;
  std::vector<TensorBlock> blocks_;
};

}  // namespace tp::client
