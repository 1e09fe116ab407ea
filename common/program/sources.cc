#include "common/program/sources.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/names.h"
#include "common/model/validate.h"

namespace tp {
namespace {

const FlatState* FindState(const FlatModel& model, const std::string& path) {
  for (const FlatState& state : model.states) {
    if (state.path == path) return &state;
  }
  return nullptr;
}

std::string MissingText(const FlatState& state, const FlatModel& model) {
  for (const FlatModule& module : model.modules) {
    if (module.path != state.module_path) continue;
    const auto& given = module.module->param_init;
    if (!given.empty()) {
      std::vector<std::string> available;
      for (const auto& [name, initializer] : given) available.push_back(absl::StrCat("'", name, "'"));
      return absl::StrCat(FieldOf(module.path), ": No initializer for parameter '", state.name, "' in ",
                          module.type_name, ". Available: [", absl::StrJoin(available, ", "), "]");
    }
    return absl::StrCat(FieldOf(module.path), ": No param_init found for parameter '", state.name, "' in ",
                        module.type_name, ". Set param_init on this module's Config.");
  }
  return state.path;
}

// Follows an alias to the state that has the storage; nullptr where it names no state or runs in a circle.
const FlatState* StorageOf(const Submission& submission, const FlatModel& model, const std::string& path) {
  std::string current = path;
  for (size_t hops = 0; hops <= submission.weights.size(); ++hops) {
    auto it = submission.weights.find(current);
    if (it == submission.weights.end() || it->second.kind != WeightSource::Kind::kAlias)
      return FindState(model, current);
    current = it->second.path;
  }
  return nullptr;
}

bool IsNamed(const ResolvedPlan& plan, const FlatState& state) { return plan.state_entries.contains(state.path); }

void TieStates(const Submission& submission, const FlatModel& model, ResolvedPlan* plan, Problems* problems) {
  for (const auto& [path, source] : submission.weights) {
    const FlatState* state = FindState(model, path);
    if (source.kind != WeightSource::Kind::kAlias || state == nullptr) continue;
    const std::string field = absl::StrCat("weights '", Cut(path, 160), "'");
    const FlatState* storage = StorageOf(submission, model, path);
    if (storage == nullptr) {
      std::vector<std::string> names;
      for (const FlatState& candidate : model.states) names.push_back(candidate.path);
      problems->Invalid(absl::StrCat(
          field, ": alias of '", Cut(source.path, 160),
          "', which is no state or an alias of itself; nearest: ", JoinNames(NearestNames(source.path, names))));
      continue;
    }
    if (storage->shape != state->shape || storage->dtype != state->dtype) {
      problems->Invalid(absl::StrCat(field, ": alias of '", storage->path, "', which has shape ",
                                     ShapeText(storage->shape), ", not ", ShapeText(state->shape)));
      continue;
    }
    Placements& own = plan->states[path];
    Placements& other = plan->states[storage->path];
    if (own == other || IsUnsure(*plan, *state) || IsUnsure(*plan, *storage)) continue;
    if (!IsNamed(*plan, *state)) {
      own = other;
    } else if (!IsNamed(*plan, *storage)) {
      other = own;
    } else {
      problems->Invalid(absl::StrCat("tied states '", path, "' and '", storage->path, "' want different placements: ",
                                     PlacementsText(plan->mesh, own), " and ", PlacementsText(plan->mesh, other)));
    }
  }
}

}  // namespace

absl::Status CheckInitializers(const Submission& submission, const FlatModel& model) {
  Problems problems;
  if (!submission.weights_file.empty()) return absl::OkStatus();
  for (const FlatState& state : model.states) {
    if (state.buffer || state.has_initializer || submission.weights.contains(state.path)) continue;
    problems.Invalid(MissingText(state, model));
  }
  return problems.status();
}

std::vector<PlacedState> PlaceStates(const Submission& submission, const FlatModel& model, ResolvedPlan* plan,
                                     Problems* problems) {
  std::vector<std::string> names;
  for (const FlatState& state : model.states) names.push_back(state.path);
  for (const auto& [path, source] : submission.weights) {
    if (FindState(model, path) == nullptr) {
      problems->Invalid(absl::StrCat("weights '", Cut(path, 160), "': the model has no such state; nearest: ",
                                     JoinNames(NearestNames(path, names))));
    }
  }
  // Twice, since the first pass may move the storage of several aliases.
  TieStates(submission, model, plan, problems);
  TieStates(submission, model, plan, problems);
  std::vector<PlacedState> placed;
  for (const FlatState& state : model.states) {
    PlacedState entry{state, plan->states.at(state.path), std::nullopt};
    if (auto it = submission.weights.find(state.path); it != submission.weights.end()) {
      entry.source = it->second;
    } else if (!submission.weights_file.empty() && (!state.buffer || state.persistent)) {
      WeightSource file;
      file.kind = WeightSource::Kind::kFile;
      file.path = submission.weights_file;
      file.tensor = state.path;
      entry.source = std::move(file);
    } else if (!state.has_initializer && !state.buffer) {
      problems->Invalid(MissingText(state, model));
    }
    placed.push_back(std::move(entry));
  }
  return placed;
}

}  // namespace tp
