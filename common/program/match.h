// Resolves a parallel plan against a flattened model: which modules each pattern names and where each state lies.
// Example: entry {"layers.*.w1", ColwiseParallel} places layers.0.w1.weight and layers.1.w1.weight S(0) on the plan's
// axis. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/problems.h"
#include "common/model/flatten.h"
#include "common/model/model.h"

namespace tp {

// One token of a pattern against one child name: `*`, `?`, `[abc]`, `[a-c]`, `[!a]`.
bool TokenMatches(std::string_view pattern, std::string_view name);
// A pattern against a module's path, token by token; "" is the root.
bool PatternMatches(const std::string& pattern, const std::string& path);
// True where `path` is the module `ancestor` or lies below it.
bool IsWithin(const std::string& path, const std::string& ancestor);

// A style or sharding as written, and where: a module's own sharding or an entry of the plan.
struct ResolvedEntry {
  PlanEntry entry;   // the pattern of a module's own sharding is its path
  std::string text;  // for messages: "plan.entries[2] 'layers.*.wl'", "sharding of layers.0"
  bool own = false;  // a module's own sharding
};
// A Linear that makes keys or values of an attention with fewer heads than ranks on the axis that cuts it.
struct GroupedHeads {
  int axis = 0;
  int heads = 0;
};

struct ResolvedPlan {
  Mesh mesh;
  std::vector<ResolvedEntry> entries;  // shardings of modules, parents before children; then the plan's, in its order
  int axis = -1;                       // mesh axis on which the styles act; -1 where there is no style
  int degree = 1;                      // its size
  std::vector<bool> batch_axes;        // of each mesh axis: cuts dim 0 of every input
  std::vector<bool> styled_axes;       // of each mesh axis: a style or a sharding acts on it
  std::map<std::string, std::vector<int>> module_entries;  // path of a module -> entries on it, in their order
  std::map<std::string, int> state_entries;                // path of a state -> the entry that places it
  std::map<std::string, GroupedHeads> grouped;             // by the Linear's path
  std::map<std::string, Placements> states;                // path of a state -> placements; every state has an entry
  std::vector<std::string> warnings;
  // Of a plan with problems: what is not known, so that nothing is said of what follows from it. A wrong entry leaves
  // its modules unsure, a wrong pattern or axis all.
  std::set<std::string> unsure_modules, unsure_states;  // paths
  bool all_unsure = false;
};

// True where a problem of the plan leaves open where the state lies.
bool IsUnsure(const ResolvedPlan& plan, const FlatState& state);

// The entries on a module, in their order.
std::vector<int> EntriesOf(const ResolvedPlan& plan, const std::string& module_path);
// nullptr where there is none.
const FlatModule* ModuleAt(const FlatModel& model, const std::string& path);

// Adds what is wrong to `problems`; the result has what did resolve, and a mesh without axes where plan.mesh is wrong.
// On axes of size 1 states are Replicate.
ResolvedPlan ResolvePlan(const Submission& submission, const FlatModel& model, Problems* problems);

}  // namespace tp
