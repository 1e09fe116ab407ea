// Inputs for a model that nobody gave any for: values that depend on nothing but the input's name. Pure. Example:
//   SeededInputs(flat, {{"time", 64}}, 4): x F32 [5, 16] in [-1, 1), ids I64 [5, 16] in [0, 257).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/tp_client/client.h"
#include "common/model/flatten.h"

namespace tp::client {

// Every free dim has more than `ranks` elements where its limit allows. Integers lie below the smallest dim that they
// index on their way through the model (2 where they index none).
absl::StatusOr<std::vector<NamedTensor>> SeededInputs(const FlatModel& model,
                                                      const std::map<std::string, int64_t>& symbol_limits, int ranks);

}  // namespace tp::client
