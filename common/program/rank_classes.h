// Which ranks of a mesh are alike: they hold blocks of the same sizes of every value, state and cache, and need the
// same scratch in every step, so that what holds for one holds for all. Makes estimates of large meshes cheap. Example:
// a weight of 13 rows S(0) on tp=4 (4 4 4 1): classes 0 0 0 3. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"

namespace tp {

// For each rank the first rank that is like it. INVALID_ARGUMENT for unbound symbols.
absl::StatusOr<std::vector<int>> RankClasses(const CompiledModel& model, const Bindings& bindings);

}  // namespace tp
