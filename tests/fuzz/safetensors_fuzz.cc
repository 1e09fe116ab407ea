// libFuzzer: safetensors headers, .npy files and JSON from any bytes. Nothing may crash, and an accepted file must keep
// what its checks promise. Run: build/fuzz/bin/safetensors_fuzz -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "common/checkpoint/npy.h"
#include "common/checkpoint/safetensors.h"

namespace tp {
namespace {

void FuzzSafetensors(std::string_view bytes) {
  const int64_t file_size = static_cast<int64_t>(bytes.size());
  absl::StatusOr<int64_t> header_size = ParseSafetensorsHeaderSize(bytes.substr(0, 8), file_size);
  if (!header_size.ok()) return;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(bytes.substr(8, static_cast<size_t>(*header_size)), file_size);
  if (!header.ok()) return;
  int64_t covered = 0;
  for (const auto& [name, tensor] : header->tensors) {
    TP_CHECK(header->data_begin <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= file_size);
    TP_CHECK(tensor.end - tensor.begin == *CheckedBytes(tensor.shape, tensor.dtype));
    covered += tensor.end - tensor.begin;
  }
  TP_CHECK(covered == file_size - header->data_begin);
}

void FuzzNpy(std::string_view bytes) {
  absl::StatusOr<HostTensor> tensor = ParseNpy(bytes);
  if (!tensor.ok()) return;
  TP_CHECK(ValidateHostTensor(*tensor).ok());
  TP_CHECK(*ParseNpy(*FormatNpy(*tensor)) == *tensor);
}

}  // namespace
}  // namespace tp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // The header's text without a length before it, which random bytes seldom get right.
  tp::ParseSafetensorsHeader(bytes, 8 + static_cast<int64_t>(size) + 16).IgnoreError();
  tp::FuzzSafetensors(bytes);
  tp::FuzzNpy(bytes);
  return 0;
}
