// Resolves a parallel plan against a flattened model: which modules each pattern names and where each state lies.
// Example: entry {"layers.*.w1", ColwiseParallel} places layers.0.w1.weight and layers.1.w1.weight S(0) on the plan's
// axis. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flatten.h"
#include "common/model/model.h"
#include "common/program/problems.h"

namespace tp {

// One token of a pattern against one child name: `*`, `?`, `[abc]`, `[a-c]`, `[!a]`.
bool TokenMatches(std::string_view pattern, std::string_view name);
// A pattern against a module's path, token by token; "" is the root.
bool PatternMatches(const std::string& pattern, const std::string& path);

struct ResolvedPlan {
  Mesh mesh;
  int axis = -1;                  // mesh axis on which the styles act; -1 where no entry is there
  int degree = 1;                 // its size
  std::vector<bool> batch_axes;   // of each mesh axis: cuts dim 0 of every input
  std::vector<bool> styled_axes;  // of each mesh axis: a style acts on it
  std::map<std::string, std::vector<int>> module_entries;  // path of a module -> entries on it, in plan order
  std::map<std::string, int> state_entries;                // path of a state -> the entry that places it
  std::map<std::string, int> grouped;        // path of a Linear that makes keys or values -> their heads (see below)
  std::map<std::string, Placements> states;  // path of a state -> placements; every state has an entry
  std::vector<std::string> warnings;
};

// The entries on a module, in plan order.
std::vector<int> EntriesOf(const ResolvedPlan& plan, const std::string& module_path);
// "plan.entries[2] 'layers.*.wl'", for messages.
std::string EntryText(size_t index, const PlanEntry& entry);
// nullptr where there is none.
const FlatModule* ModuleAt(const FlatModel& model, const std::string& path);
// The style that cuts a module's weights (Colwise, Rowwise); nullptr where none does.
const Style* WeightStyleOf(const Submission& submission, const ResolvedPlan& plan, const std::string& module_path);

// Adds what is wrong to `problems`; the result is usable where nothing was added. On axes of size 1 states are
// Replicate.
ResolvedPlan ResolvePlan(const Submission& submission, const FlatModel& model, Problems* problems);

}  // namespace tp
