// What a style does to the values that enter and leave a module: for each of them the layout that it is said to have (a
// claim, checked) and the layout that it gets. One form for all six styles and for shardings, so that the walk knows
// none of them.
// Example: RowwiseParallel with default layouts on a Linear: input 0 {declared none, desired S(-1)}, output 0 {none,
// R}. Pure. Internal to common/program. Source: SEMANTICS 5 and 6.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/problems.h"
#include "common/model/flatten.h"
#include "common/model/model.h"

namespace tp {

// What is wrong with an entry, and with which field of it; "" where with all of it.
struct FieldProblem {
  std::string field;  // "input_layouts[0]", "in_src_shardings['input']"
  std::string text;
};

// The placement on each mesh axis; an axis without one stays as it is.
using AxisPlacements = std::vector<std::optional<Placement>>;

// A layout on a mesh; `axis`: the plan's. INVALID_ARGUMENT "layout count must equal mesh rank" for a list of another
// length, "axes not in mesh: {x}" for a map that names others.
absl::StatusOr<AxisPlacements> ResolveLayout(const Layout& layout, const Mesh& mesh, int axis);

struct LayoutChange {
  Layout declared;  // none: no claim
  Layout desired;   // none: not moved
  // For messages: the claim's, "input_kwarg_layouts['mask']", and the desired layout's, "in_dst_shardings['input']".
  std::string field, desired_field = {};
  // Of a sharding: what an axis that it does not name gets is R, where a batch may have been cut.
  std::vector<bool> unnamed_axes = {};  // of each mesh axis; empty for styles
};

// One for each declared argument of a call; those that the style leaves alone, and those that are not passed, are none.
// INVALID_ARGUMENT "module input count does not match input layouts" and "expecting input of SequenceParallel to be a
// tensor or DTensor, but got X".
absl::StatusOr<std::vector<LayoutChange>> InputChanges(const PlanEntry& entry, const FlatModule& module,
                                                       const FlatNode& call, const Mesh& mesh);
// One for each output; `ranks` are theirs. INVALID_ARGUMENT "module output count does not match output layouts".
absl::StatusOr<std::vector<LayoutChange>> OutputChanges(const PlanEntry& entry, const FlatModule& module,
                                                        const std::vector<int>& ranks, const Mesh& mesh);

// For styles, not for shardings (shardings.h):
// what is wrong with a style whatever it is put on: counts and keys of its layouts, their axes, src_data_rank.
// `axis`: the plan's, -1 where it has none; mesh axes that layouts name are added to `axes`.
std::vector<FieldProblem> StyleProblems(const Style& style, const Mesh& mesh, int axis, std::vector<bool>* axes);
// What is wrong with a style on this module: its type, and names of arguments that it has not.
std::vector<FieldProblem> ModuleProblems(const Style& style, const FlatModule& module);
// Fields that have no effect, for warnings: a desired layout whose declared one is none.
std::vector<std::string> StyleWarnings(const Style& style);

// True for Colwise and Rowwise, which place the weights of their module.
bool CutsWeights(const Style& style);

}  // namespace tp
