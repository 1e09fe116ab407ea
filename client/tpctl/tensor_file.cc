#include "client/tpctl/tensor_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"

namespace tp::client {
namespace {

// Closes with the last copy.
std::shared_ptr<const int> Owned(int fd) {
  return {new int(fd), [](const int* owned) {
            close(*owned);
            delete owned;
          }};
}

// Below this, a system call for each run costs more than mapping the pages.
constexpr int64_t kMappedRunBytes = 4096;

}  // namespace

absl::Status CheckTensorPath(const std::string& path, const std::string& option) {
  if (absl::EndsWith(path, ".npy") || absl::EndsWith(path, ".safetensors")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, " ", path, " is neither .npy nor .safetensors"));
}

absl::StatusOr<TensorReader> TensorReader::Open(const std::string& path, const std::string& name, bool exact) {
  TP_RETURN_IF_ERROR(CheckTensorPath(path, "file"));
  TensorReader reader;
  if (absl::EndsWith(path, ".npy")) {
    int64_t file_size = 0;
    TP_ASSIGN_OR_RETURN(const int fd, OpenRegularFile(path, &file_size));
    const std::shared_ptr<const int> owned = Owned(fd);
    TP_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(fd, path, file_size));
    reader.dtype_ = header.dtype;
    reader.shape_ = header.shape;
    reader.bytes_ = file_size - header.data_begin;
    reader.read_ = [owned, path, begin = header.data_begin](int64_t offset, int64_t size, char* out) {
      return ReadExactly(*owned, path, begin + offset, size, out);
    };
    return reader;
  }
  TP_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  const auto file = std::make_shared<const SafetensorsFile>(std::move(opened));
  const auto& tensors = file->header().tensors;
  auto it = tensors.find(name);
  if (it == tensors.end() && !exact && tensors.size() == 1) it = tensors.begin();
  if (it == tensors.end()) {
    std::vector<std::string> names;
    for (const auto& [key, tensor] : tensors) names.push_back(key);
    return absl::NotFoundError(absl::StrCat(path, " has no tensor '", name, "'; it has ",
                                            JoinNames(NearestNames(name, names, 8)), exact ? "" : " (see --tensor)"));
  }
  reader.dtype_ = it->second.dtype;
  reader.shape_ = it->second.shape;
  reader.bytes_ = it->second.end - it->second.begin;
  reader.read_ = [file, begin = it->second.begin](int64_t offset, int64_t size, char* out) {
    return file->ReadRange(begin + offset, size, out);
  };
  return reader;
}

void ForEachRun(const Shape& global, const TensorBlock& box, int64_t item_size, int64_t begin, int64_t size,
                const std::function<void(int64_t to, int64_t from, int64_t size)>& run) {
  if (size <= 0) return;
  // Dims from `inner` on make one contiguous run.
  int inner = static_cast<int>(global.size());
  int64_t run_bytes = item_size;
  while (inner > 0) {
    --inner;
    run_bytes *= box.shape[inner];
    if (box.shape[inner] != global[inner]) break;
  }
  const Shape strides = RowMajorStrides(global);
  int64_t corner = 0;
  for (size_t i = 0; i < global.size(); ++i) corner += box.offset[i] * strides[i];
  for (int64_t from = 0; from < size;) {
    int64_t index = (begin + from) / run_bytes;
    const int64_t within = (begin + from) % run_bytes;
    int64_t to = corner;
    for (int i = inner; i-- > 0;) {
      to += index % box.shape[i] * strides[i];
      index /= box.shape[i];
    }
    const int64_t length = std::min(run_bytes - within, size - from);
    run(to * item_size + within, from, length);
    from += length;
  }
}

TensorFileSink::TensorFileSink(std::string path, std::string name, std::function<void(int64_t, int64_t)> progress)
    : path_(std::move(path)),
      name_(std::move(name)),
      partial_(absl::StrCat(path_, ".partial.", getpid())),
      progress_(std::move(progress)) {}

TensorFileSink::~TensorFileSink() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(partial_.c_str());
}

absl::Status TensorFileSink::Begin(const TensorInfo& tensor, const std::vector<TensorBlock>& blocks) {
  tensor_ = tensor;
  blocks_ = blocks;
  TP_ASSIGN_OR_RETURN(total_, CheckedBytes(tensor.shape, tensor.dtype));
  std::string header;
  if (absl::EndsWith(path_, ".npy")) {
    TP_ASSIGN_OR_RETURN(header, FormatNpyHeader(tensor.dtype, tensor.shape));
  } else {
    std::vector<int64_t> begins;
    int64_t size = 0;
    TP_ASSIGN_OR_RETURN(header, MakeSafetensorsHeader({{name_, tensor.dtype, tensor.shape}}, &begins, &size));
  }
  data_begin_ = static_cast<int64_t>(header.size());
  fd_ = open(partial_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return FileError("cannot write", path_, errno);
  // Room for all of it first: a full disk is told at once, and mapped pages can't fail later.
  int error = posix_fallocate(fd_, 0, data_begin_ + total_);
  if ((error == EOPNOTSUPP || error == EINVAL) && ftruncate(fd_, data_begin_ + total_) != 0) error = errno;
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) return FileError("cannot write", path_, error);
  return WriteExactly(fd_, path_, 0, header.data(), data_begin_);
}

absl::Status TensorFileSink::Write(size_t block, int64_t offset, std::string_view bytes) {
  const TensorBlock& box = blocks_[block];
  const int64_t size = static_cast<int64_t>(bytes.size()), item = ItemSize(tensor_.dtype);
  int64_t runs = 0, first = 0, last = 0;
  ForEachRun(tensor_.shape, box, item, offset, size, [&](int64_t to, int64_t, int64_t length) {
    if (runs++ == 0) first = to;
    last = to + length;
  });
  absl::Status status;
  if (runs > 1 && size / runs < kMappedRunBytes) {
    status = WriteMapped(first, last, box, offset, bytes);
  } else {
    ForEachRun(tensor_.shape, box, item, offset, size, [&](int64_t to, int64_t from, int64_t length) {
      if (status.ok()) status = WriteExactly(fd_, path_, data_begin_ + to, bytes.data() + from, length);
    });
  }
  done_ += size;
  if (status.ok() && progress_) progress_(done_, total_);
  return status;
}

absl::Status TensorFileSink::WriteMapped(int64_t first, int64_t last, const TensorBlock& box, int64_t offset,
                                         std::string_view bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = (data_begin_ + first) / page * page, length = data_begin_ + last - begin;
  void* map = mmap(nullptr, static_cast<size_t>(length), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, begin);
  if (map == MAP_FAILED) return FileError("cannot map", path_, errno);
  char* base = static_cast<char*>(map) + (data_begin_ - begin);
  ForEachRun(tensor_.shape, box, ItemSize(tensor_.dtype), offset, static_cast<int64_t>(bytes.size()),
             [&](int64_t to, int64_t from, int64_t size) {
               std::memcpy(base + to, bytes.data() + from, static_cast<size_t>(size));
             });
  if (munmap(map, static_cast<size_t>(length)) != 0) return FileError("cannot write", path_, errno);
  return absl::OkStatus();
}

absl::Status TensorFileSink::Commit() {
  if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat("nothing was written to ", path_));
  const int fd = std::exchange(fd_, -1);
  absl::Status status;
  if (close(fd) != 0) status = FileError("cannot write", path_, errno);
  if (status.ok() && rename(partial_.c_str(), path_.c_str()) != 0) status = FileError("cannot write", path_, errno);
  if (!status.ok()) unlink(partial_.c_str());
  return status;
}

}  // namespace tp::client
