#include "common/checkpoint/npy.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"

namespace tp {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMaxHeader = 1 << 20;  // a shape of some numbers; numpy itself warns above 10,000

struct TypeCode {
  const char* code;
  DType dtype;
};
constexpr TypeCode kTypeCodes[] = {{"<f4", DType::kF32}, {"<f8", DType::kF64}, {"<f2", DType::kF16},
                                   {"<i8", DType::kI64}, {"<i4", DType::kI32}, {"|u1", DType::kU8},
                                   {"|b1", DType::kBool}};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a valid .npy file: ", what));
}

// Reads the header's Python dictionary: text, True and False, tuples of whole numbers.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  // Skips space, then `c` where it is next.
  bool Take(char c) {
    SkipSpace();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> Text() {
    SkipSpace();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  // "()", "(3,)", "(2, 3)". Numbers may end in Python 2's L.
  std::optional<Shape> Tuple() {
    if (!Take('(')) return std::nullopt;
    Shape shape;
    while (!Take(')')) {
      SkipSpace();
      size_t digits = 0;
      while (digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9') ++digits;
      int64_t value = 0;
      if (digits == 0 || !absl::SimpleAtoi(absl::string_view(text_.data(), digits), &value)) return std::nullopt;
      text_.remove_prefix(digits);
      Take('L');
      shape.push_back(value);
      if (Take(',')) continue;
      // (3) is a number in brackets, not a tuple.
      if (shape.size() == 1 || !Take(')')) return std::nullopt;
      break;
    }
    return shape;
  }
  bool AtEnd() {
    SkipSpace();
    return text_.empty();
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n' || text_.front() == '\t'))
      text_.remove_prefix(1);
  }
  std::string_view text_;
};

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<Shape> shape;
};

absl::StatusOr<Header> ParseHeader(std::string_view text) {
  HeaderReader reader(text);
  Header header;
  if (!reader.Take('{')) return Malformed("the header is not a dictionary");
  while (!reader.Take('}')) {
    std::optional<std::string> key = reader.Text();
    if (!key.has_value() || !reader.Take(':')) return Malformed("the header has an entry without a name");
    bool valid = false;
    if (*key == "descr" && !header.descr.has_value()) {
      header.descr = reader.Text();
      if (!header.descr.has_value()) return absl::UnimplementedError("npy: arrays of structures are not built");
      valid = true;
    } else if (*key == "fortran_order" && !header.fortran_order.has_value()) {
      if (reader.TakeWord("True")) header.fortran_order = true;
      if (reader.TakeWord("False")) header.fortran_order = false;
      valid = header.fortran_order.has_value();
    } else if (*key == "shape" && !header.shape.has_value()) {
      header.shape = reader.Tuple();
      valid = header.shape.has_value();
    }
    if (!valid) return Malformed(absl::StrCat("header entry '", *key, "' is unknown, repeated or malformed"));
    if (reader.Take(',')) continue;
    if (!reader.Take('}')) return Malformed("the header does not end");
    break;
  }
  if (!reader.AtEnd()) return Malformed("text follows the header's dictionary");
  if (!header.descr.has_value()) return Malformed("the header lacks 'descr'");
  if (!header.fortran_order.has_value()) return Malformed("the header lacks 'fortran_order'");
  if (!header.shape.has_value()) return Malformed("the header lacks 'shape'");
  return header;
}

absl::StatusOr<DType> DTypeOfCode(const std::string& code) {
  std::vector<std::string> known;
  for (const TypeCode& type : kTypeCodes) {
    if (code == type.code) return type.dtype;
    known.push_back(type.code);
  }
  if (!code.empty() && code.front() == '>') {
    return absl::UnimplementedError(absl::StrCat("npy: big endian arrays ('", code, "') are not built"));
  }
  return absl::UnimplementedError(
      absl::StrCat("npy: element type '", code, "' is not built; known are ", absl::StrJoin(known, ", ")));
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes, int64_t file_size) {
  if (bytes.substr(0, kMagic.size()) != kMagic || bytes.size() < 10)
    return Malformed("it does not begin with \\x93NUMPY");
  const int major = static_cast<unsigned char>(bytes[6]), minor = static_cast<unsigned char>(bytes[7]);
  if ((major != 1 && major != 2) || minor != 0) {
    return absl::UnimplementedError(
        absl::StrCat("npy: version ", major, ".", minor, " is not built; known are 1.0 and 2.0"));
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  bytes.remove_prefix(8);
  if (bytes.size() < length_bytes) return Malformed("it ends within the header's length");
  int64_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(length_bytes);
  if (length > kMaxHeader) return Malformed(absl::StrCat("header length ", length, " is over ", kMaxHeader));
  if (length > static_cast<int64_t>(bytes.size())) {
    return Malformed(absl::StrCat("header length ", length, " passes the end of the file"));
  }
  TP_ASSIGN_OR_RETURN(Header header, ParseHeader(bytes.substr(0, static_cast<size_t>(length))));
  NpyHeader result{.data_begin = 8 + static_cast<int64_t>(length_bytes) + length};
  TP_ASSIGN_OR_RETURN(result.dtype, DTypeOfCode(*header.descr));
  if (*header.fortran_order) {
    return absl::UnimplementedError("npy: Fortran order is not built; save numpy.ascontiguousarray(x)");
  }
  result.shape = *std::move(header.shape);
  TP_ASSIGN_OR_RETURN(const int64_t size, CheckedBytes(result.shape, result.dtype));
  if (size != file_size - result.data_begin) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", size, " bytes for ",
                                                   std::string(DTypeName(result.dtype)), ShapeText(result.shape),
                                                   ", got ", file_size - result.data_begin));
  }
  return result;
}

absl::StatusOr<std::string> FormatNpyHeader(DType dtype, absl::Span<const int64_t> shape) {
  const char* code = nullptr;
  for (const TypeCode& type : kTypeCodes) {
    if (type.dtype == dtype) code = type.code;
  }
  if (code == nullptr) {
    return absl::UnimplementedError(absl::StrCat("npy: numpy has no element type for ", std::string(DTypeName(dtype)),
                                                 "; write a .safetensors file"));
  }
  std::string header = absl::StrCat("{'descr': '", code, "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  // Magic, version, length and header end at a multiple of 64, and the header ends in a newline.
  const size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((64 - unpadded % 64) % 64, ' ');
  header += '\n';
  if (header.size() > std::numeric_limits<uint16_t>::max()) return Malformed("the shape has too many dims");
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

absl::StatusOr<HostTensor> ParseNpy(std::string_view bytes) {
  TP_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyHeader(bytes, static_cast<int64_t>(bytes.size())));
  return HostTensor{header.dtype, std::move(header.shape),
                    std::string(bytes.substr(static_cast<size_t>(header.data_begin)))};
}

absl::StatusOr<std::string> FormatNpy(const HostTensor& tensor) {
  TP_RETURN_IF_ERROR(ValidateHostTensor(tensor));
  TP_ASSIGN_OR_RETURN(const std::string header, FormatNpyHeader(tensor.dtype, tensor.shape));
  return header + tensor.bytes;
}

absl::StatusOr<NpyHeader> ReadNpyHeader(int fd, const std::string& path, int64_t file_size) {
  std::string prefix(static_cast<size_t>(std::min(file_size, kMaxHeader + 12)), '\0');
  TP_RETURN_IF_ERROR(ReadExactly(fd, path, 0, static_cast<int64_t>(prefix.size()), prefix.data()));
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(prefix, file_size);
  if (!header.ok()) return Annotate(header.status(), path);
  return header;
}

absl::StatusOr<HostTensor> ReadNpy(const std::string& path) {
  TP_ASSIGN_OR_RETURN(std::string bytes, ReadWholeFile(path, std::numeric_limits<int64_t>::max()));
  absl::StatusOr<HostTensor> tensor = ParseNpy(bytes);
  if (!tensor.ok()) return Annotate(tensor.status(), path);
  return tensor;
}

absl::Status WriteNpy(const std::string& path, const HostTensor& tensor) {
  absl::StatusOr<std::string> bytes = FormatNpy(tensor);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return WriteFileAtomically(path, {*bytes});
}

}  // namespace tp
