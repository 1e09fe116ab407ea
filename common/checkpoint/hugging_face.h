// A Hugging Face folder as a submission: the ordinary model definition, a plan, and the byte ranges that weights come
// from. The only place that knows architectures by name. Reads config.json and headers of safetensors files. Example:
//   TP_ASSIGN_OR_RETURN(Submission submission, ImportHuggingFace("deploy/demo/kjv", {.degree = 2}));
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/model/model.h"

namespace tp {

struct ImportOptions {
  int degree = 1;                      // size of the mesh's axis tp
  std::optional<DType> compute_dtype;  // F32 or BF16; unset where absent (config.json's torch_dtype does not set it)
  std::string plan = "standard";
  bool sequence_parallel = false;  // the standard plan with the sequence cut between its weights
  std::string name;                // of the model; from the folder's name where empty
};

// Weight paths are absolute. NOT_FOUND for a missing folder, config.json, weight file or tensor; INVALID_ARGUMENT,
// naming file and field or tensor, for what is malformed, has another shape than config.json says, or belongs to a
// layer that has no place for it; UNIMPLEMENTED, naming it, for architectures, fields and plans that are not built.
absl::StatusOr<Submission> ImportHuggingFace(const std::string& folder, const ImportOptions& options);

}  // namespace tp
