#include "common/program/match.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/names.h"
#include "common/program/grouped_heads.h"
#include "common/program/styles.h"

namespace tp {
namespace {

std::vector<std::string> TokensOf(const std::string& path) {
  if (path.empty()) return {};
  return absl::StrSplit(path, '.');
}

// Matches a bracket expression at the start of `pattern`; sets the length it takes, 0 where it is not closed.
bool BracketMatches(std::string_view pattern, char c, size_t* length) {
  size_t i = 1;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  bool matches = false;
  for (size_t first = i; i < pattern.size() && (pattern[i] != ']' || i == first); ++i) {
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      matches |= pattern[i] <= c && c <= pattern[i + 2];
      i += 2;
    } else {
      matches |= pattern[i] == c;
    }
  }
  *length = i < pattern.size() ? i + 1 : 0;
  return matches != negated;
}

// What the pattern could have been: its first token that matches no child, replaced by names of children there.
std::vector<std::string> NearestPatterns(const std::string& pattern, const FlatModel& model) {
  const std::vector<std::string> tokens = TokensOf(pattern);
  for (size_t depth = 0; depth < tokens.size(); ++depth) {
    const std::string prefix = absl::StrJoin(tokens.begin(), tokens.begin() + depth, ".");
    bool found = false;
    std::vector<std::string> children;
    for (const FlatModule& module : model.modules) {
      std::vector<std::string> path = TokensOf(module.path);
      if (path.size() != depth + 1) continue;
      const std::string name = path.back();
      path.pop_back();
      if (!PatternMatches(prefix, absl::StrJoin(path, "."))) continue;
      children.push_back(name);
      found |= TokenMatches(tokens[depth], name);
    }
    if (found) continue;
    std::vector<std::string> nearest;
    for (const std::string& name : NearestNames(tokens[depth], children)) {
      std::vector<std::string> replaced = tokens;
      replaced[depth] = name;
      nearest.push_back(absl::StrJoin(replaced, "."));
    }
    if (nearest.empty()) break;  // below a leaf
    return nearest;
  }
  std::vector<std::string> paths;
  for (const FlatModule& module : model.modules) {
    if (!module.path.empty()) paths.push_back(module.path);
  }
  return NearestNames(pattern, paths);
}

void ResolveAxis(const ParallelPlan& plan, ResolvedPlan* resolved, Problems* problems) {
  if (plan.entries.empty() && plan.axis.empty()) return;
  const Mesh& mesh = resolved->mesh;
  std::string name = plan.axis;
  if (name.empty()) {
    name = "tp";
    if (mesh.axis_count() == 1) name = mesh.axes()[0].name;
  }
  absl::StatusOr<int> axis = mesh.AxisIndex(name);
  if (!axis.ok()) {
    problems->Invalid(absl::StrCat("plan.axis: ", std::string(axis.status().message())));
    return;
  }
  resolved->axis = *axis;
  resolved->degree = mesh.axis_size(*axis);
  resolved->styled_axes[*axis] = true;
}

void ResolveBatchAxes(const ParallelPlan& plan, ResolvedPlan* resolved, Problems* problems) {
  for (const std::string& name : plan.batch_axes) {
    absl::StatusOr<int> axis = resolved->mesh.AxisIndex(name);
    if (!axis.ok()) {
      problems->Invalid(absl::StrCat("plan.batch_axes: ", std::string(axis.status().message())));
    } else if (resolved->batch_axes[*axis]) {
      problems->Invalid(absl::StrCat("plan.batch_axes: '", name, "' stands twice"));
    } else if (*axis == resolved->axis && !plan.entries.empty()) {
      problems->Invalid(absl::StrCat("plan.batch_axes: '", name, "' is the axis that the styles act on"));
    } else {
      resolved->batch_axes[*axis] = true;
    }
  }
}

bool IsWithin(const std::string& path, const std::string& ancestor) {
  return ancestor.empty() || path == ancestor ||
         (path.size() > ancestor.size() && path.compare(0, ancestor.size(), ancestor) == 0 &&
          path[ancestor.size()] == '.');
}

// Records what an entry places: Colwise and Rowwise the states of their module, SequenceParallel (Replicate) those of
// its descendants too, Prepare* none.
void ClaimStates(const ParallelPlan& plan, const FlatModel& model, const FlatModule& module, int index,
                 ResolvedPlan* resolved, Problems* problems) {
  const Style& style = plan.entries[index].style;
  const bool whole = std::holds_alternative<SequenceParallel>(style);
  if (!whole && !CutsWeights(style)) return;
  for (const FlatState& state : model.states) {
    if (whole ? !IsWithin(state.module_path, module.path) : state.module_path != module.path) continue;
    auto [placed, first] = resolved->state_entries.emplace(state.path, index);
    if (first || placed->second == index) continue;
    const FlatModule* owner = ModuleAt(model, state.module_path);
    problems->Invalid(absl::StrCat("two patterns shard ", FieldOfModule(*owner), ": ",
                                   EntryText(placed->second, plan.entries[placed->second]), " and ",
                                   EntryText(index, plan.entries[index])));
  }
}

void ResolveEntry(const ParallelPlan& plan, const FlatModel& model, int index, ResolvedPlan* resolved,
                  Problems* problems) {
  const PlanEntry& entry = plan.entries[index];
  const std::vector<std::string> wrong =
      StyleProblems(entry.style, resolved->mesh, resolved->axis, &resolved->styled_axes);
  for (const std::string& warning : StyleWarnings(entry.style)) {
    resolved->warnings.push_back(absl::StrCat(EntryText(index, entry), ": ", warning));
  }
  bool matched = false;
  for (const FlatModule& module : model.modules) {
    if (!PatternMatches(entry.pattern, module.path)) continue;
    matched = true;
    std::vector<std::string> texts = ModuleProblems(entry.style, module);
    texts.insert(texts.begin(), wrong.begin(), wrong.end());
    for (const std::string& text : texts) {
      problems->Invalid(absl::StrCat(EntryText(index, entry), ": ", FieldOfModule(module), ": ", text));
    }
    if (!texts.empty()) continue;
    resolved->module_entries[module.path].push_back(index);
    ClaimStates(plan, model, module, index, resolved, problems);
  }
  if (matched) return;
  for (const std::string& text : wrong) problems->Invalid(absl::StrCat(EntryText(index, entry), ": ", text));
  const std::string text = absl::StrCat(
      EntryText(index, entry), ": matches no module; nearest: ", JoinNames(NearestPatterns(entry.pattern, model)));
  if (plan.allow_unmatched) {
    resolved->warnings.push_back(text);
  } else {
    problems->Invalid(text);
  }
}

// Where the styles put the weight: the dim that is cut.
int WeightDim(const Style& style, const std::string& type_name) {
  return std::holds_alternative<ColwiseParallel>(style) == (type_name == "Linear") ? 0 : 1;
}

}  // namespace

// Backtracks to the last `*` only, which is enough for globs and linear in pattern x name.
bool TokenMatches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    size_t length = 0;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
      continue;
    }
    if (p < pattern.size()) {
      bool matches = pattern[p] == '?' || pattern[p] == name[n];
      length = 1;
      if (pattern[p] == '[') {
        size_t bracket = 0;
        const bool inside = BracketMatches(pattern.substr(p), name[n], &bracket);
        if (bracket > 0) {
          matches = inside;
          length = bracket;
        }
      }
      if (matches) {
        p += length;
        ++n;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    p = star + 1;
    n = ++resume;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool PatternMatches(const std::string& pattern, const std::string& path) {
  const std::vector<std::string> tokens = TokensOf(pattern), names = TokensOf(path);
  if (tokens.size() != names.size()) return false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!TokenMatches(tokens[i], names[i])) return false;
  }
  return true;
}

std::string EntryText(size_t index, const PlanEntry& entry) {
  return absl::StrCat("plan.entries[", index, "] '", entry.pattern, "'");
}

const FlatModule* ModuleAt(const FlatModel& model, const std::string& path) {
  for (const FlatModule& module : model.modules) {
    if (module.path == path) return &module;
  }
  return nullptr;
}

std::vector<int> EntriesOf(const ResolvedPlan& plan, const std::string& module_path) {
  auto it = plan.module_entries.find(module_path);
  return it == plan.module_entries.end() ? std::vector<int>() : it->second;
}

const Style* WeightStyleOf(const Submission& submission, const ResolvedPlan& plan, const std::string& module_path) {
  for (int entry : EntriesOf(plan, module_path)) {
    const Style& style = submission.plan.entries[entry].style;
    if (CutsWeights(style)) return &style;
  }
  return nullptr;
}

ResolvedPlan ResolvePlan(const Submission& submission, const FlatModel& model, Problems* problems) {
  const ParallelPlan& plan = submission.plan;
  ResolvedPlan resolved;
  absl::StatusOr<Mesh> mesh = Mesh::Create(plan.mesh);
  if (!mesh.ok()) {
    problems->Invalid(absl::StrCat("plan.mesh: ", std::string(mesh.status().message())));
    return resolved;
  }
  resolved.mesh = *mesh;
  resolved.batch_axes.resize(static_cast<size_t>(mesh->axis_count()));
  resolved.styled_axes.resize(static_cast<size_t>(mesh->axis_count()));
  ResolveAxis(plan, &resolved, problems);
  ResolveBatchAxes(plan, &resolved, problems);
  for (size_t index = 0; index < plan.entries.size(); ++index) {
    ResolveEntry(plan, model, static_cast<int>(index), &resolved, problems);
  }
  for (const FlatState& state : model.states) resolved.states[state.path] = Placements(resolved.mesh.axis_count());
  if (resolved.axis < 0 || resolved.degree == 1) return resolved;
  CheckHeads(submission, model, &resolved, problems);
  for (const FlatState& state : model.states) {
    const Style* style = WeightStyleOf(submission, resolved, state.module_path);
    if (style == nullptr) continue;
    const FlatModule* module = ModuleAt(model, state.module_path);
    const int dim = WeightDim(*style, module->type_name);
    if (state.name == "bias" && dim == 1) continue;
    auto grouped = resolved.grouped.find(module->path);
    resolved.states[state.path][resolved.axis] =
        grouped == resolved.grouped.end() ? Placement::Shard(dim) : Placement::GroupShard(0, grouped->second);
  }
  return resolved;
}

}  // namespace tp
