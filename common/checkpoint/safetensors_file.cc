#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/json.h"
#include "common/checkpoint/safetensors.h"

namespace tp {

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  int64_t file_size = 0;
  TP_ASSIGN_OR_RETURN(int fd, OpenRegularFile(path, &file_size));
  SafetensorsFile file(path, fd);
  std::string prefix(static_cast<size_t>(std::min<int64_t>(file_size, 8)), '\0');
  TP_RETURN_IF_ERROR(file.ReadRange(0, static_cast<int64_t>(prefix.size()), prefix.data()));
  absl::StatusOr<int64_t> header_size = ParseSafetensorsHeaderSize(prefix, file_size);
  if (!header_size.ok()) return Annotate(header_size.status(), path);
  std::string text(static_cast<size_t>(*header_size), '\0');
  TP_RETURN_IF_ERROR(file.ReadRange(8, *header_size, text.data()));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text, file_size);
  if (!header.ok()) return Annotate(header.status(), path);
  file.header_ = *std::move(header);
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), header_(std::move(other.header_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  header_ = std::move(other.header_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<const SafetensorsTensor*> SafetensorsFile::Get(const std::string& name) const {
  auto it = header_.tensors.find(name);
  if (it != header_.tensors.end()) return &it->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : header_.tensors) names.push_back(known);
  return absl::NotFoundError(absl::StrCat(path_, " has no tensor \"", name, "\"; the nearest names are ",
                                          JoinNames(NearestNames(name, names))));
}

absl::Status SafetensorsFile::ReadRange(int64_t offset, int64_t size, char* out) const {
  return ReadExactly(fd_, path_, offset, size, out);
}

absl::StatusOr<HostTensor> SafetensorsFile::ReadTensor(const std::string& name) const {
  TP_ASSIGN_OR_RETURN(const SafetensorsTensor* info, Get(name));
  HostTensor tensor{info->dtype, info->shape, std::string(static_cast<size_t>(info->end - info->begin), '\0')};
  absl::Status status = ReadRange(info->begin, info->end - info->begin, tensor.bytes.data());
  if (!status.ok()) return Annotate(status, absl::StrCat("tensor \"", name, "\""));
  return tensor;
}

absl::StatusOr<std::map<std::string, HostTensor>> ReadSafetensors(const std::string& path) {
  TP_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::map<std::string, HostTensor> tensors;
  for (const auto& [name, info] : file.header().tensors) {
    TP_ASSIGN_OR_RETURN(tensors[name], file.ReadTensor(name));
  }
  return tensors;
}

absl::StatusOr<std::string> MakeSafetensorsHeader(const std::vector<SafetensorsEntry>& entries,
                                                  std::vector<int64_t>* begins, int64_t* size) {
  std::string header = "{";
  std::set<std::string> names;
  int64_t position = 0;
  begins->clear();
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__") return absl::InvalidArgumentError("a tensor cannot be called __metadata__");
    absl::StatusOr<std::string> quoted = QuoteJson(entry.name);
    if (!quoted.ok()) return Annotate(quoted.status(), "tensor name");
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", *quoted, " comes twice"));
    }
    absl::StatusOr<int64_t> bytes = CheckedBytes(entry.shape, entry.dtype);
    if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat("tensor ", *quoted));
    if (*bytes > std::numeric_limits<int64_t>::max() - kMaxSafetensorsHeader - 16 - position) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", *quoted, ": the file passes 2^63 bytes"));
    }
    begins->push_back(position);
    const int64_t end = position + *bytes;
    absl::StrAppend(&header, header.size() > 1 ? "," : "", *quoted, ":{\"dtype\":\"",
                    std::string(DTypeName(entry.dtype)), "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                    "],\"data_offsets\":[", position, ",", end, "]}");
    position = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(absl::StrCat("the header is over ", kMaxSafetensorsHeader, " bytes"));
  }
  std::string whole;
  for (int i = 0; i < 8; ++i) whole.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i)));
  whole += header;
  for (int64_t& begin : *begins) begin += static_cast<int64_t>(whole.size());
  *size = position + static_cast<int64_t>(whole.size());
  return whole;
}

absl::Status WriteSafetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors) {
  // Large items first, so that every tensor is aligned to its item size.
  std::vector<const std::pair<const std::string, HostTensor>*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return ItemSize(a->second.dtype) > ItemSize(b->second.dtype); });
  std::vector<SafetensorsEntry> entries;
  std::vector<std::string_view> pieces(1);
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    absl::Status valid = ValidateHostTensor(tensor);
    if (!valid.ok()) return Annotate(valid, absl::StrCat(path, ": tensor \"", name, "\""));
    entries.push_back({name, tensor.dtype, tensor.shape});
    pieces.push_back(tensor.bytes);
  }
  std::vector<int64_t> begins;
  int64_t size = 0;
  absl::StatusOr<std::string> first = MakeSafetensorsHeader(entries, &begins, &size);
  if (!first.ok()) return Annotate(first.status(), path);
  pieces[0] = *first;
  return WriteFileAtomically(path, pieces);
}

}  // namespace tp
