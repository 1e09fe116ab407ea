#include "common/checkpoint/folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/json.h"

namespace tp {
namespace {

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

using Tensors = std::map<std::string, CheckpointTensor>;

// Shard -> tensor names, from the index.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ReadIndex(const std::string& path) {
  TP_ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, kMaxSafetensorsHeader));
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) return Annotate(json.status(), path);
  const Json* weight_map = json->Find("weight_map");
  if (weight_map == nullptr || weight_map->object() == nullptr || weight_map->object()->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map is missing, empty or not an object"));
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : *weight_map->object()) {
    if (shard.text() == nullptr || shard.text()->empty() || shard.text()->find('/') != std::string::npos ||
        *shard.text() == "." || *shard.text() == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": weight_map \"", tensor, "\" is not the name of a file in this folder"));
    }
    shards[*shard.text()].push_back(tensor);
  }
  return shards;
}

absl::StatusOr<Tensors> ListFile(const std::string& path) {
  TP_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Tensors tensors;
  for (const auto& [name, tensor] : file.header().tensors) tensors[name] = {path, tensor};
  return tensors;
}

}  // namespace

absl::StatusOr<Tensors> ListCheckpoint(const std::string& folder) {
  const std::string root = AbsolutePath(folder);
  const std::string index = absl::StrCat(root, "/", kIndex);
  const std::string single = absl::StrCat(root, "/", kSingle);
  Tensors tensors;
  if (!PathExists(index)) {
    if (!PathExists(single)) {
      return absl::NotFoundError(absl::StrCat(root, " has neither ", kSingle, " nor ", kIndex));
    }
    return ListFile(single);
  }
  TP_ASSIGN_OR_RETURN(auto shards, ReadIndex(index));
  for (const auto& [shard, names] : shards) {
    const std::string path = absl::StrCat(root, "/", shard);
    absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
    if (!file.ok()) {
      return Annotate(file.status(), absl::StrCat(index, ": shard ", shard, " of tensor \"", names.front(), "\""));
    }
    for (const std::string& name : names) {
      absl::StatusOr<const SafetensorsTensor*> tensor = file->Get(name);
      if (!tensor.ok()) return Annotate(tensor.status(), index);
      tensors[name] = {path, **tensor};
    }
  }
  return tensors;
}

absl::StatusOr<Tensors> ListTensors(const std::string& path) {
  const std::string root = AbsolutePath(path);
  if (!IsDirectory(root)) return ListFile(root);
  if (PathExists(absl::StrCat(root, "/", kIndex)) || PathExists(absl::StrCat(root, "/", kSingle))) {
    return ListCheckpoint(root);
  }
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path().filename().string());
  }
  if (error) return FileError("cannot read", root, error.value());
  std::sort(files.begin(), files.end());
  if (files.empty()) return absl::NotFoundError(absl::StrCat(root, " has neither a .safetensors file nor ", kIndex));
  if (files.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(root, " has ", files.size(), " .safetensors files and no ", kIndex,
                                                   ": ", absl::StrJoin(files, ", ")));
  }
  return ListFile(absl::StrCat(root, "/", files[0]));
}

}  // namespace tp
