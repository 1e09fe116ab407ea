// Lays out tensors in the files of a checkpoint folder: one model.safetensors, or model-00001-of-00003.safetensors and
// so on with model.safetensors.index.json; whole tensors, so that any reader of such folders can read them. Pure.
// Example: LayOutTensors({{"w", DType::kF32, {2, 3}}}): one file; places[0] says where the 24 bytes of w begin in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/safetensors.h"

namespace tp {

// Of a file's tensors together; a larger tensor has a file of its own.
inline constexpr int64_t kCheckpointFileBytes = 5'000'000'000;

struct CheckpointLayout {
  struct File {
    std::string name;
    std::string header;  // its first bytes
    int64_t size_bytes = 0;
  };
  struct Place {
    int file = 0;       // in `files`
    int64_t begin = 0;  // offset of the tensor's first byte in it
  };
  std::vector<File> files;
  std::vector<Place> places;  // by tensor, as they were given
  std::string index;          // text of model.safetensors.index.json; empty where one file holds all
  int64_t tensor_bytes = 0;   // headers apart
};

// Files are filled in the order given; within a file large items come first, so that every tensor is aligned to its
// item size. No tensor gives one file without any. INVALID_ARGUMENT, naming the tensor, as MakeSafetensorsHeader, and
// for a limit below 1.
absl::StatusOr<CheckpointLayout> LayOutTensors(const std::vector<SafetensorsEntry>& tensors,
                                               int64_t file_bytes = kCheckpointFileBytes);

}  // namespace tp
