#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/checkpoint/json.h"

namespace tp {
namespace {

constexpr char kMetadata[] = "__metadata__";

absl::Status TensorError(const std::string& name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", what));
}

absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const Json& json, int64_t data_size) {
  const Json::Object* fields = json.object();
  if (fields == nullptr) return TensorError(name, "its entry is not an object");
  for (const auto& [field, unused] : *fields) {
    if (field != "dtype" && field != "shape" && field != "data_offsets") {
      return TensorError(name, absl::StrCat("unknown field \"", field, "\"; known are dtype, shape, data_offsets"));
    }
  }
  SafetensorsTensor tensor;
  tensor.name = name;

  const Json* dtype = json.Find("dtype");
  if (dtype == nullptr || dtype->text() == nullptr) return TensorError(name, "dtype is missing or not text");
  absl::StatusOr<DType> parsed_dtype = ParseDType(*dtype->text());
  if (!parsed_dtype.ok()) return TensorError(name, parsed_dtype.status().message());
  tensor.dtype = *parsed_dtype;

  const Json* shape = json.Find("shape");
  if (shape == nullptr || shape->array() == nullptr) return TensorError(name, "shape is missing or not a list");
  for (const Json& dim : *shape->array()) {
    std::optional<int64_t> size = dim.integer();
    if (!size.has_value() || *size < 0) {
      return TensorError(name, "shape has a dim that is not a whole number from 0 to 2^63 - 1");
    }
    tensor.shape.push_back(*size);
  }
  absl::StatusOr<int64_t> bytes = CheckedBytes(tensor.shape, tensor.dtype);
  if (!bytes.ok()) return TensorError(name, bytes.status().message());

  const Json* offsets = json.Find("data_offsets");
  if (offsets == nullptr || offsets->array() == nullptr || offsets->array()->size() != 2) {
    return TensorError(name, "data_offsets is missing or not a list of two numbers");
  }
  std::optional<int64_t> begin = (*offsets->array())[0].integer();
  std::optional<int64_t> end = (*offsets->array())[1].integer();
  if (!begin.has_value() || !end.has_value() || *begin < 0 || *end < *begin) {
    return TensorError(name, "data_offsets are not two ascending whole numbers");
  }
  if (*end > data_size) {
    return TensorError(name, absl::StrCat("ends at byte ", *end, " of the data, which has ", data_size, " bytes"));
  }
  if (*end - *begin != *bytes) {
    return TensorError(name, absl::StrCat("expected ", *bytes, " bytes for ", std::string(DTypeName(tensor.dtype)),
                                          ShapeText(tensor.shape), ", got ", *end - *begin));
  }
  tensor.begin = *begin;
  tensor.end = *end;
  return tensor;
}

// The tensors, in the order of their offsets, must cover the data section exactly. Offsets are still relative to it.
absl::Status CheckCoverage(const std::map<std::string, SafetensorsTensor>& tensors, int64_t data_size) {
  std::vector<const SafetensorsTensor*> order;
  order.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  int64_t position = 0;
  const SafetensorsTensor* previous = nullptr;
  for (const SafetensorsTensor* tensor : order) {
    if (tensor->begin > position) {
      return TensorError(tensor->name, absl::StrCat("starts at byte ", tensor->begin,
                                                    " of the data, which leaves a hole from ", position));
    }
    if (tensor->begin < position) {
      return TensorError(tensor->name, absl::StrCat("starts at byte ", tensor->begin,
                                                    " of the data and overlaps tensor \"", previous->name, "\""));
    }
    position = tensor->end;
    previous = tensor;
  }
  if (position == data_size) return absl::OkStatus();
  std::string last = previous == nullptr ? "no tensor" : absl::StrCat("the last tensor \"", previous->name, "\"");
  return absl::InvalidArgumentError(
      absl::StrCat("the data has ", data_size, " bytes, but ", last, " ends at ", position));
}

}  // namespace

absl::StatusOr<int64_t> ParseSafetensorsHeaderSize(std::string_view first_bytes, int64_t file_size) {
  if (file_size < 8 || first_bytes.size() < 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a safetensors file: ", file_size, " bytes, fewer than the 8 of the header's length"));
  }
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(first_bytes[i]);
  if (size > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a safetensors file: header length ", size, " is over ", kMaxSafetensorsHeader));
  }
  if (static_cast<int64_t>(size) > file_size - 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("header length ", size, " passes the end of the file of ", file_size, " bytes"));
  }
  return static_cast<int64_t>(size);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view header, int64_t file_size) {
  const int64_t data_begin = 8 + static_cast<int64_t>(header.size());
  if (file_size < data_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("header of ", header.size(), " bytes passes the end of the file of ", file_size, " bytes"));
  }
  if (header.empty() || header.front() != '{') {
    return absl::InvalidArgumentError("the header is not a JSON object: it does not start with {");
  }
  absl::StatusOr<Json> json = ParseJson(header);
  if (!json.ok()) return Annotate(json.status(), "header");
  SafetensorsHeader result;
  result.data_begin = data_begin;
  const int64_t data_size = file_size - data_begin;
  for (const auto& [name, entry] : *json->object()) {
    if (name == kMetadata) {
      const Json::Object* metadata = entry.object();
      if (metadata == nullptr) return absl::InvalidArgumentError("header: __metadata__ is not an object");
      for (const auto& [key, value] : *metadata) {
        if (value.text() == nullptr) {
          return absl::InvalidArgumentError(absl::StrCat("header: __metadata__ \"", key, "\" is not text"));
        }
        result.metadata[key] = *value.text();
      }
      continue;
    }
    TP_ASSIGN_OR_RETURN(SafetensorsTensor tensor, ParseTensor(name, entry, data_size));
    result.tensors.emplace(name, std::move(tensor));
  }
  TP_RETURN_IF_ERROR(CheckCoverage(result.tensors, data_size));
  for (auto& [name, tensor] : result.tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return result;
}

}  // namespace tp
