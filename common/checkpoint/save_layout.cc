#include "common/checkpoint/save_layout.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/checkpoint/json.h"

namespace tp {

absl::StatusOr<CheckpointLayout> LayOutTensors(const std::vector<SafetensorsEntry>& tensors, int64_t file_bytes) {
  if (file_bytes < 1) return absl::InvalidArgumentError(absl::StrCat("bytes of a file: ", file_bytes));
  CheckpointLayout layout;
  std::vector<std::vector<size_t>> files(1);  // indices of tensors
  int64_t filled = 0;
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!by_name.emplace(tensors[i].name, i).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensors[i].name, "' comes twice"));
    }
    const absl::StatusOr<int64_t> bytes = CheckedBytes(tensors[i].shape, tensors[i].dtype);
    if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat("tensor '", tensors[i].name, "'"));
    if (!files.back().empty() && *bytes > file_bytes - filled) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(i);
    filled = std::min(filled + std::min(*bytes, file_bytes), file_bytes);
    if (*bytes > (int64_t{1} << 62) - layout.tensor_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensors[i].name, "': all together pass 2^62 bytes"));
    }
    layout.tensor_bytes += *bytes;
  }
  layout.places.resize(tensors.size());
  for (size_t f = 0; f < files.size(); ++f) {
    std::vector<size_t>& order = files[f];
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return ItemSize(tensors[a].dtype) > ItemSize(tensors[b].dtype); });
    std::vector<SafetensorsEntry> entries;
    for (const size_t i : order) entries.push_back(tensors[i]);
    CheckpointLayout::File file;
    file.name = files.size() == 1 ? std::string("model.safetensors")
                                  : absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, files.size());
    std::vector<int64_t> begins;
    TP_ASSIGN_OR_RETURN(file.header, MakeSafetensorsHeader(entries, &begins, &file.size_bytes));
    for (size_t k = 0; k < order.size(); ++k) layout.places[order[k]] = {static_cast<int>(f), begins[k]};
    layout.files.push_back(std::move(file));
  }
  if (files.size() == 1) return layout;
  layout.index = absl::StrCat("{\"metadata\":{\"total_size\":", layout.tensor_bytes, "},\"weight_map\":{");
  const char* separator = "\n";
  for (const auto& [name, i] : by_name) {
    TP_ASSIGN_OR_RETURN(const std::string quoted, QuoteJson(name));
    absl::StrAppend(&layout.index, separator, quoted, ":\"", layout.files[layout.places[i].file].name, "\"");
    separator = ",\n";
  }
  layout.index += "\n}}\n";
  return layout;
}

}  // namespace tp
