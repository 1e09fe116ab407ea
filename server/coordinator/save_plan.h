// Where tensors lie in the safetensors files of a save. Pure. Example: 7 GB in three tensors, with a limit of 5 GB,
// give model-00001-of-00002.safetensors, model-00002-of-00002.safetensors and the text of their index.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/command.h"

namespace tp::server {

struct SaveItem {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // global
};
struct SavePlace {
  int file = 0;
  int64_t begin = 0;  // offset of the first byte in the file
};
struct SavePlan {
  std::vector<SavedFile> files;
  std::vector<SavePlace> places;  // by item
  std::string index;              // "" where one file holds all
  int64_t size_bytes = 0;         // of tensors
};

// A file takes tensors in the given order until the next would pass `max_file_bytes`; inside of it, those with large
// items come first, so that all are aligned. RESOURCE_EXHAUSTED where a header passes the format's limit.
absl::StatusOr<SavePlan> PlanSave(const std::vector<SaveItem>& items, int64_t max_file_bytes);

}  // namespace tp::server
