// Inputs for a model that nobody gave any for: values and sizes that depend on nothing but the model, so that they are
// equal on every mesh. Pure. Example:
//   SeededInputs(flat, {{"time", 64}}): x F32 [5, 16] in [-1, 1), ids I64 [5, 16] in [0, 257).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/tp_client/client.h"
#include "common/model/flatten.h"

namespace tp::client {

// The first free size is 5, every other 16, within their limits. Integers lie below the smallest dim that they index on
// their way through the model (2 where they index none).
absl::StatusOr<std::vector<NamedTensor>> SeededInputs(const FlatModel& model,
                                                      const std::map<std::string, int64_t>& symbol_limits);

}  // namespace tp::client
