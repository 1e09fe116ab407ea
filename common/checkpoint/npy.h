// numpy's .npy files: one array each, whole or as a header and a place where the bytes begin. Little endian, C order;
// F32, F64, F16, I64, I32, U8 and BOOL (numpy has no BF16). Source: numpy.lib.format, "Format Version 1.0" and "2.0".
// Example:
//   TP_ASSIGN_OR_RETURN(HostTensor x, ReadNpy("x.npy"));
//   TP_RETURN_IF_ERROR(WriteNpy("y.npy", y));
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/tensor/host_tensor.h"

namespace tp {

struct NpyHeader {
  DType dtype = DType::kF32;
  Shape shape = {};
  int64_t data_begin = 0;  // offset of the first element in the file
};

// The header at the beginning of a file of `file_size` bytes; `bytes` are its first ones, at least to the header's end
// (1 MiB and 12 bytes, or the whole file). Errors of ParseNpy.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes, int64_t file_size);
// What stands before the elements, as numpy.save writes it. UNIMPLEMENTED for BF16.
absl::StatusOr<std::string> FormatNpyHeader(DType dtype, absl::Span<const int64_t> shape);
// Of an open file; errors name the path.
absl::StatusOr<NpyHeader> ReadNpyHeader(int fd, const std::string& path, int64_t file_size);

// The array in the bytes of a whole file. INVALID_ARGUMENT for bytes that are no .npy file and "expected N bytes, got
// M"; UNIMPLEMENTED, naming it, for another version, Fortran order, big endian and other element types.
absl::StatusOr<HostTensor> ParseNpy(std::string_view bytes);
// The file's bytes, as numpy.save writes them (version 1.0). UNIMPLEMENTED for BF16; INVALID_ARGUMENT for bytes that do
// not fit the shape.
absl::StatusOr<std::string> FormatNpy(const HostTensor& tensor);

// The same for files; errors name the path.
absl::StatusOr<HostTensor> ReadNpy(const std::string& path);
absl::Status WriteNpy(const std::string& path, const HostTensor& tensor);

}  // namespace tp
