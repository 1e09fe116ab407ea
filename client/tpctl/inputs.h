// Inputs of a request from the command line: NAME=FILE (.npy, .safetensors) or NAME=1,2,3, as the model's types say.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tp_client/client.h"

namespace tp::client {

// A flat list of numbers fills the last dim; leading dims are 1. Of a safetensors file the tensor NAME is taken, or its
// only one. Values are converted to the input's type where that is exact in kind (integers to integers, floats to
// floats). INVALID_ARGUMENT naming the input and the known ones; NOT_FOUND for a missing file; UNIMPLEMENTED for
// NAME=@TENSOR.
absl::StatusOr<std::vector<NamedTensor>> ParseInputs(const std::vector<std::string>& arguments,
                                                     const std::vector<InputType>& types);
// "1,2,-3" -> numbers. INVALID_ARGUMENT naming the bad one.
absl::StatusOr<std::vector<int64_t>> ParseIntegers(const std::string& text);

}  // namespace tp::client
