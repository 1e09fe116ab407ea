#include "common/program/match.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/names.h"
#include "common/program/claims.h"
#include "common/program/grouped_heads.h"
#include "common/program/shardings.h"
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

// What the pattern could have been: itself with one token put right, so that it matches a module; else the modules
// whose paths, or ends of them, are nearest.
std::vector<std::string> NearestPatterns(const std::string& pattern, const FlatModel& model) {
  const std::vector<std::string> tokens = TokensOf(Cut(pattern, 256));
  std::set<std::string> corrected;
  std::map<std::string, std::string> tails;  // end of a path, of as many tokens as the pattern -> the first such path
  for (const FlatModule& module : model.modules) {
    const std::vector<std::string> names = TokensOf(module.path);
    if (names.size() < tokens.size() || names.empty() || tokens.empty()) continue;
    tails.emplace(absl::StrJoin(names.end() - static_cast<std::ptrdiff_t>(tokens.size()), names.end(), "."),
                  module.path);
    if (names.size() != tokens.size()) continue;
    size_t misses = 0, at = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (TokenMatches(tokens[i], names[i])) continue;
      ++misses;
      at = i;
    }
    if (misses != 1) continue;
    std::vector<std::string> replaced = tokens;
    replaced[at] = names[at];
    corrected.insert(absl::StrJoin(replaced, "."));
  }
  std::vector<std::string> candidates;
  for (const auto& [tail, path] : tails) candidates.push_back(tail);
  const std::vector<std::string> ends = NearestNames(pattern, candidates);
  const std::vector<std::string> right = NearestNames(pattern, {corrected.begin(), corrected.end()});
  if (!right.empty() && NearestNames(pattern, {right[0], ends[0]}, 1)[0] == right[0]) return right;
  std::vector<std::string> nearest;
  for (const std::string& tail : ends) nearest.push_back(tails.at(tail));
  if (!nearest.empty()) return nearest;
  for (const FlatModule& module : model.modules) {  // all are shallower than the pattern
    if (!module.path.empty()) candidates.push_back(module.path);
  }
  return NearestNames(pattern, candidates);
}

bool IsSharding(const PlanEntry& entry) { return std::holds_alternative<ShardingConfig>(entry.style); }

bool HasStyles(const ParallelPlan& plan) { return !std::all_of(plan.entries.begin(), plan.entries.end(), IsSharding); }

void ResolveAxis(const ParallelPlan& plan, ResolvedPlan* resolved, Problems* problems) {
  if (!HasStyles(plan) && plan.axis.empty()) return;
  const Mesh& mesh = resolved->mesh;
  std::string name = plan.axis;
  if (name.empty()) {
    name = "tp";
    if (mesh.axis_count() == 1) name = mesh.axes()[0].name;
  }
  absl::StatusOr<int> axis = mesh.AxisIndex(name);
  if (!axis.ok()) {
    problems->Invalid(absl::StrCat("plan.axis: ", Cut(std::string(axis.status().message()), 300)));
    resolved->all_unsure = true;
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
      problems->Invalid(absl::StrCat("plan.batch_axes: ", Cut(std::string(axis.status().message()), 300)));
      resolved->all_unsure = true;
    } else if (resolved->batch_axes[*axis]) {
      problems->Invalid(absl::StrCat("plan.batch_axes: '", Cut(name), "' stands twice"));
    } else if (*axis == resolved->axis && HasStyles(plan)) {
      problems->Invalid(absl::StrCat("plan.batch_axes: '", Cut(name), "' is the axis that the styles act on"));
    } else {
      resolved->batch_axes[*axis] = true;
    }
  }
}

std::string OwnText(const FlatModule& module) { return absl::StrCat("sharding of ", FieldOfModule(module)); }

// What is wrong with an entry at a place. An axis that the mesh has not stands in many entries: told once for all.
void Tell(const ResolvedEntry& entry, const std::string& module, const FieldProblem& wrong, Problems* problems) {
  std::string place = module;
  if (!wrong.field.empty()) absl::StrAppend(&place, place.empty() ? "" : ": ", wrong.field);
  if (absl::StartsWith(wrong.text, "axes not in mesh")) {
    problems->InvalidAt("", absl::StrCat(entry.text, place.empty() ? "" : ": ", place), wrong.text);
  } else {
    problems->InvalidAt(entry.text, place, wrong.text);
  }
}

// Puts an entry on a module, or tells what keeps it from there.
void PutOn(const FlatModel& model, const FlatModule& module, int index, const std::vector<FieldProblem>& of_style,
           ResolvedPlan* resolved, Problems* problems) {
  const ResolvedEntry& resolved_entry = resolved->entries[index];
  const Style& style = resolved_entry.entry.style;
  const auto* sharding = std::get_if<ShardingConfig>(&style);
  std::vector<FieldProblem> wrong = of_style;
  for (FieldProblem& each : sharding == nullptr
                                ? ModuleProblems(style, module)
                                : ShardingProblems(*sharding, module, model, resolved->mesh, &resolved->styled_axes)) {
    wrong.push_back(std::move(each));
  }
  for (const FieldProblem& each : wrong) {
    Tell(resolved_entry, resolved_entry.own ? "" : FieldOfModule(module), each, problems);
  }
  if (wrong.empty()) {
    resolved->module_entries[module.path].push_back(index);
  } else {
    resolved->unsure_modules.insert(module.path);
  }
}

void ResolveEntry(const ParallelPlan& plan, const FlatModel& model, size_t index, ResolvedPlan* resolved,
                  Problems* problems) {
  const PlanEntry& entry = plan.entries[index];
  const std::string text = absl::StrCat("plan.entries[", index, "] '", Cut(entry.pattern), "'");
  const int resolved_index = static_cast<int>(resolved->entries.size());
  resolved->entries.push_back({entry, text, false});
  std::vector<FieldProblem> wrong;
  if (!IsSharding(entry)) {
    wrong = StyleProblems(entry.style, resolved->mesh, resolved->axis, &resolved->styled_axes);
    for (const std::string& warning : StyleWarnings(entry.style)) {
      resolved->warnings.push_back(absl::StrCat(text, ": ", warning));
    }
  }
  bool matched = false;
  for (const FlatModule& module : model.modules) {
    if (!PatternMatches(entry.pattern, module.path)) continue;
    matched = true;
    PutOn(model, module, resolved_index, wrong, resolved, problems);
  }
  if (matched) return;
  for (const FieldProblem& each : wrong) Tell(resolved->entries[resolved_index], "", each, problems);
  const std::string unmatched =
      absl::StrCat(text, ": matches no module; nearest: ", JoinNames(NearestPatterns(entry.pattern, model)));
  if (plan.allow_unmatched) {
    resolved->warnings.push_back(unmatched);
  } else {
    problems->Invalid(unmatched);
    resolved->all_unsure = true;
  }
}

// The inside of a local_map runs on local blocks: nothing moves there.
void RefuseInsideLocalMap(const FlatModel& model, ResolvedPlan* resolved, Problems* problems) {
  std::string inside, outer;
  for (const FlatModule& module : model.modules) {  // parents before children
    const bool within = !outer.empty() && (inside.empty() || module.path.compare(0, inside.size(), inside) == 0);
    bool local = false;
    for (int index : EntriesOf(*resolved, module.path)) {
      const ResolvedEntry& entry = resolved->entries[index];
      const auto* sharding = std::get_if<ShardingConfig>(&entry.entry.style);
      const bool states_only =
          sharding != nullptr && *sharding == ShardingConfig{.state_shardings = sharding->state_shardings,
                                                             .in_src_shardings = {},
                                                             .in_dst_shardings = {},
                                                             .out_src_shardings = {},
                                                             .out_dst_shardings = {}};
      if (within && !states_only) {
        resolved->all_unsure = true;
        problems->Unbuilt(absl::StrCat(entry.text, ": ", FieldOfModule(module), " is inside the local_map of ", outer,
                                       ", where only state_shardings are built"));
      }
      local |= sharding != nullptr && sharding->local_map;
    }
    if (local && !within) {
      outer = FieldOfModule(module);
      inside = module.path.empty() ? "" : module.path + ".";
    }
  }
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

bool IsWithin(const std::string& path, const std::string& ancestor) {
  return ancestor.empty() || path == ancestor ||
         (path.size() > ancestor.size() && path.compare(0, ancestor.size(), ancestor) == 0 &&
          path[ancestor.size()] == '.');
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

bool IsUnsure(const ResolvedPlan& plan, const FlatState& state) {
  if (plan.all_unsure || plan.unsure_states.contains(state.path)) return true;
  return std::any_of(plan.unsure_modules.begin(), plan.unsure_modules.end(),
                     [&](const std::string& module) { return IsWithin(state.module_path, module); });
}

ResolvedPlan ResolvePlan(const Submission& submission, const FlatModel& model, Problems* problems) {
  const ParallelPlan& plan = submission.plan;
  ResolvedPlan resolved;
  absl::StatusOr<Mesh> mesh = Mesh::Create(plan.mesh);
  if (!mesh.ok()) {
    problems->Invalid(absl::StrCat("plan.mesh: ", Cut(std::string(mesh.status().message()), 300)));
    return resolved;
  }
  resolved.mesh = *mesh;
  resolved.batch_axes.resize(static_cast<size_t>(mesh->axis_count()));
  resolved.styled_axes.resize(static_cast<size_t>(mesh->axis_count()));
  ResolveAxis(plan, &resolved, problems);
  ResolveBatchAxes(plan, &resolved, problems);
  for (const FlatModule& module : model.modules) {
    if (!module.module->sharding.has_value()) continue;
    const int index = static_cast<int>(resolved.entries.size());
    resolved.entries.push_back({{module.path, *module.module->sharding}, OwnText(module), true});
    PutOn(model, module, index, {}, &resolved, problems);
  }
  for (size_t index = 0; index < plan.entries.size(); ++index) ResolveEntry(plan, model, index, &resolved, problems);
  RefuseInsideLocalMap(model, &resolved, problems);
  ClaimStates(model, &resolved, problems);
  const size_t told = problems->size();
  CheckHeads(model, &resolved, problems);
  resolved.all_unsure |= problems->size() > told;
  return resolved;
}

}  // namespace tp
