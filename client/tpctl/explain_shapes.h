// The shapes of a model's inputs at which `explain` and an automatic plan count. Example: {"ids=1x16"} -> ids [1, 16].
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"

namespace tp::client {

// Of every input of the model: as given; else with the free sizes that the given ones settle, and 1 for an input's
// first and 16 for every other, or their limits. INVALID_ARGUMENT for a text that is no NAME=AxBxC, a name that the
// model has not, and an input whose sizes follow from none of this.
absl::StatusOr<std::map<std::string, Shape>> ExplainShapes(const std::vector<std::string>& given,
                                                           const ModelDef& model);

}  // namespace tp::client
