#include "server/coordinator/save_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/checkpoint/json.h"
#include "common/checkpoint/safetensors.h"

namespace tp::server {

absl::StatusOr<SavePlan> PlanSave(const std::vector<SaveItem>& items, int64_t max_file_bytes) {
  SavePlan plan;
  plan.places.resize(items.size());
  std::vector<std::vector<size_t>> files(1);
  int64_t filled = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    TP_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(items[i].shape, items[i].dtype));
    if (!files.back().empty() && filled + bytes > max_file_bytes) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(i);
    filled += bytes;
    plan.size_bytes += bytes;
  }
  std::map<std::string, std::string> weight_map;  // quoted
  for (size_t f = 0; f < files.size(); ++f) {
    std::stable_sort(files[f].begin(), files[f].end(),
                     [&](size_t a, size_t b) { return ItemSize(items[a].dtype) > ItemSize(items[b].dtype); });
    std::vector<SafetensorsEntry> entries;
    for (const size_t i : files[f]) entries.push_back({items[i].name, items[i].dtype, items[i].shape});
    SavedFile file;
    file.name = files.size() == 1 ? "model.safetensors"
                                  : absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, files.size());
    std::vector<int64_t> begins;
    TP_ASSIGN_OR_RETURN(file.header, MakeSafetensorsHeader(entries, &begins, &file.size_bytes));
    for (size_t k = 0; k < files[f].size(); ++k) {
      plan.places[files[f][k]] = {static_cast<int>(f), begins[k]};
      TP_ASSIGN_OR_RETURN(const std::string quoted, QuoteJson(entries[k].name));
      weight_map[quoted] = file.name;
    }
    plan.files.push_back(std::move(file));
  }
  if (files.size() > 1) {
    plan.index = absl::StrCat("{\"metadata\":{\"total_size\":", plan.size_bytes, "},\"weight_map\":{",
                              absl::StrJoin(weight_map, ",",
                                            [](std::string* out, const auto& entry) {
                                              absl::StrAppend(out, entry.first, ":\"", entry.second, "\"");
                                            }),
                              "}}\n");
  }
  return plan;
}

}  // namespace tp::server
