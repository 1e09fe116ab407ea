// Declarative shardings in a plan: what ShardingConfig's names mean on a module and a mesh. Example: on tp=2,dp=2
// in_dst {'input': {'tp': S(0)}} of a Linear is argument 0 at tp=S(0), dp=R: an axis that is not named is Replicate.
// Pure. Internal to common/program. Source: SEMANTICS 7.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flatten.h"
#include "common/model/model.h"
#include "common/program/styles.h"

namespace tp {

// Every mesh axis with its placement; those that are not named are R.
Layout CompleteLayout(const NamedPlacements& named, const Mesh& mesh);
// "axes not in mesh: {cp, ep}".
std::string AxesNotInMesh(const std::vector<std::string>& names);
// Of each mesh axis: not named.
std::vector<bool> UnnamedAxes(const NamedPlacements& named, const Mesh& mesh);

// Where a state lies, normalised; R on axes of size 1. INVALID_ARGUMENT "axes not in mesh: {x}", for Partial, and for
// what does not fit the state's shape.
absl::StatusOr<Placements> StatePlacements(const NamedPlacements& named, const FlatState& state, const Mesh& mesh);

// The state that `path` names below the module; nullptr where there is none.
const FlatState* StateBelow(const FlatModel& model, const std::string& module_path, const std::string& path);

// What is wrong with a sharding on this module: unknown states, arguments, outputs and axes, and what local_map misses:
// in_dst of every tensor that a call passes and out_src of every output. Mesh axes that it cuts are added to `axes`.
std::vector<FieldProblem> ShardingProblems(const ShardingConfig& sharding, const FlatModule& module,
                                           const FlatModel& model, const Mesh& mesh, std::vector<bool>* axes);

}  // namespace tp
