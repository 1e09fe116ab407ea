// Inputs of a request from the command line: NAME=FILE (.npy, .safetensors) or NAME=1,2,3, as the model's types say;
// NAME=@TENSOR; and NAME:RANK=FILE with NAME:tp=S(1) for blocks of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tp_client/client.h"

namespace tp::client {

// A flat list of numbers fills the last dim; leading dims are 1. Of a safetensors file the tensor NAME is taken, or its
// only one. Values are converted to the input's type where that is exact in kind (integers to integers, floats to
// floats). INVALID_ARGUMENT naming the input and the known ones, and for NAME=@TENSOR; NOT_FOUND for a missing file.
absl::StatusOr<std::vector<NamedTensor>> ParseInputs(const std::vector<std::string>& arguments,
                                                     const std::vector<InputType>& types);

struct InputWords {
  std::vector<std::string> inputs;      // as above, and "NAME=@TENSOR"
  std::vector<std::string> shards;      // "NAME:RANK=FILE"
  std::vector<std::string> placements;  // "NAME:tp=S(1)", of shards
};
// The global shape of shards is the one of which they are the blocks by the chunk rule: along a dim that axes cut, the
// sizes of the ranks on these axes add up. Where there is none the server says what does not fit. INVALID_ARGUMENT as
// above, for an input in two forms, a rank given twice and placements of an input without shards.
absl::StatusOr<std::vector<ForwardInput>> ParseForwardInputs(const InputWords& words,
                                                             const std::vector<InputType>& types, const Mesh& mesh);
// The global shape of shards, as above; nullopt where it can't be told.
std::optional<Shape> ShapeOfShards(const std::vector<InputShard>& shards, const NamedPlacements& placements,
                                   const Mesh& mesh);
// "1,2,-3" -> numbers. INVALID_ARGUMENT naming the bad one.
absl::StatusOr<std::vector<int64_t>> ParseIntegers(const std::string& text);

}  // namespace tp::client
