// The shapes of a model's inputs at which `explain` and an automatic plan count. Example: {"ids=1x16"} -> ids [1, 16].
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"

namespace tp::client {

// Of every input of the model: as given, else 1 for its first free size and 16 for every other. INVALID_ARGUMENT for a
// text that is no NAME=AxBxC and for a name that `known` has not.
absl::StatusOr<std::map<std::string, Shape>> ExplainShapes(const std::vector<std::string>& given,
                                                           const std::vector<ModelInput>& known);

}  // namespace tp::client
