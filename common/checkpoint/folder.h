// The tensors of a checkpoint folder: one model.safetensors, or shards that model.safetensors.index.json names. Only
// headers are read. Example: (*ListCheckpoint("/m"))["lm_head.weight"].file is "/m/model-00002-of-00002.safetensors".
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/safetensors.h"

namespace tp {

struct CheckpointTensor {
  std::string file;  // absolute path
  SafetensorsTensor tensor;
};

// Name -> tensor. The index decides where there is one; files that it does not name are ignored. NOT_FOUND for a folder
// without either file, a shard that the index names and that is missing, and a tensor that is absent from its shard,
// with names; INVALID_ARGUMENT for an index or file that is malformed and for a shard outside the folder.
absl::StatusOr<std::map<std::string, CheckpointTensor>> ListCheckpoint(const std::string& folder);

// As ListCheckpoint, for what a user may point at: a safetensors file, a checkpoint folder, or a folder whose only
// *.safetensors file may have any name. NOT_FOUND where there is none, INVALID_ARGUMENT naming them where there are
// several and no index.
absl::StatusOr<std::map<std::string, CheckpointTensor>> ListTensors(const std::string& path);

}  // namespace tp
