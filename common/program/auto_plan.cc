#include "common/program/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/count.h"
#include "common/base/status.h"
#include "common/program/compile.h"
#include "common/program/cost.h"
#include "common/program/match.h"
#include "common/program/plan_candidates.h"

namespace tp {
namespace {

constexpr int64_t kNominal = 64;
constexpr int kMostTries = 400;
constexpr int kMostPasses = 4;

// Lower is better, from left to right.
struct Score {
  int64_t excess = 0;  // bytes over the limit
  double seconds = 0;  // of the collectives
  int64_t bytes = 0;
  int collectives = 0;
  int64_t memory = 0;
  bool operator<(const Score& other) const {
    if (excess != other.excess) return excess < other.excess;
    if (std::abs(seconds - other.seconds) > 1e-9 * other.seconds) return seconds < other.seconds;
    return std::tie(bytes, collectives, memory) < std::tie(other.bytes, other.collectives, other.memory);
  }
};

int64_t TotalOf(const RankMemory& memory) {
  return memory.parameter_bytes + memory.buffer_bytes + memory.activation_bytes + memory.cache_bytes;
}

// Compiles plans and scores them.
class Judge {
 public:
  Judge(const Submission& submission, const AutoPlanOptions& options) : submission_(submission), options_(options) {
    // A step program costs time and decides nothing.
    if (submission_.model.generation.has_value()) max_positions_ = submission_.model.generation->max_positions;
    submission_.model.generation.reset();
    submission_.plan.allow_unmatched = false;
  }

  absl::StatusOr<Score> Of(std::vector<PlanEntry> entries) {
    ++tried_;
    submission_.plan.entries = std::move(entries);
    TP_ASSIGN_OR_RETURN(CompiledModel compiled, CompileForward(submission_));
    compiled.max_positions = max_positions_;
    Bindings nominal;
    for (const ProgramValue& value : compiled.program.values) {
      for (const Dim& dim : value.spec.shape) {
        for (const std::string& symbol : dim.Symbols()) nominal[symbol] = kNominal;
      }
    }
    for (const auto& [symbol, limit] : compiled.program.symbol_limits) {
      if (auto it = nominal.find(symbol); it != nominal.end()) it->second = std::min(it->second, limit);
    }
    Score score;
    TP_ASSIGN_OR_RETURN(const ProgramCost cost, CostOf(compiled.program, nominal));
    for (const CollectiveCost& one : cost.collectives) {
      score.bytes += one.record.bytes;
      score.seconds += one.seconds;
    }
    score.collectives = static_cast<int>(cost.collectives.size());
    TP_ASSIGN_OR_RETURN(const Bindings bindings, BindInputs(compiled.program, options_.shapes));
    TP_ASSIGN_OR_RETURN(const std::vector<RankMemory> memory, MemoryOf(compiled, bindings, /*widened=*/false));
    for (const RankMemory& rank : memory) {
      if (TotalOf(rank) <= score.memory) continue;
      score.memory = TotalOf(rank);
      busiest_ = rank;
    }
    if (options_.memory_limit > 0) score.excess = std::max<int64_t>(0, score.memory - options_.memory_limit);
    return score;
  }
  int tried() const { return tried_; }
  const RankMemory& busiest() const { return busiest_; }  // of the plan judged last

 private:
  Submission submission_;
  const AutoPlanOptions& options_;
  int64_t max_positions_ = 0;
  int tried_ = 0;
  RankMemory busiest_;
};

class Search {
 public:
  Search(std::vector<PlanCandidate> candidates, Judge* judge)
      : candidates_(std::move(candidates)), judge_(*judge), chosen_(candidates_.size(), 0) {}

  absl::Status Run() {
    TP_RETURN_IF_ERROR(Start());
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const Score before = best_;
      for (size_t i = 0; i < candidates_.size(); ++i) TryAll({i});
      for (size_t i = 0; i < candidates_.size(); ++i) TryAll(Together(i));
      if (!(best_ < before)) break;
    }
    return absl::OkStatus();
  }
  std::vector<PlanEntry> Entries() const { return EntriesOf(chosen_); }
  const Score& best() const { return best_; }
  const std::vector<PlanCandidate>& candidates() const { return candidates_; }
  const std::vector<Style>& ChosenFor(size_t i) const { return candidates_[i].options[chosen_[i]]; }

 private:
  using Choice = std::vector<size_t>;  // option of each candidate

  std::vector<PlanEntry> EntriesOf(const Choice& choice) const {
    std::vector<PlanEntry> entries;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      for (const Style& style : candidates_[i].options[choice[i]]) entries.push_back({candidates_[i].pattern, style});
    }
    return entries;
  }

  // The first options; where an embedding can't stay whole (its weight is tied to a Linear's), its next ones.
  absl::Status Start() {
    absl::StatusOr<Score> score = judge_.Of(Entries());
    const absl::Status first = score.status();
    for (size_t i = 0; i < candidates_.size() && !score.ok(); ++i) {
      if (!candidates_[i].is_embedding) continue;
      for (size_t option = 1; option < candidates_[i].options.size() && !score.ok(); ++option) {
        chosen_[i] = option;
        score = judge_.Of(Entries());
      }
      if (!score.ok()) chosen_[i] = 0;
    }
    if (!score.ok()) return first;
    start_ = best_ = *score;
    return absl::OkStatus();
  }

  // Linears that read the same value as candidate i, where it is the first of several.
  std::vector<size_t> Together(size_t i) const {
    std::vector<size_t> group;
    for (size_t j = 0; j < candidates_.size(); ++j) {
      if (!candidates_[i].is_linear || !candidates_[j].is_linear || candidates_[j].source != candidates_[i].source)
        continue;
      if (j < i) return {};
      group.push_back(j);
    }
    return group.size() > 1 ? group : std::vector<size_t>();
  }

  // Gives the candidates each of their options, all of them the same style, and keeps what is better.
  void TryAll(const std::vector<size_t>& which) {
    if (which.empty()) return;
    for (const std::vector<Style>& option : std::vector(candidates_[which[0]].options)) {
      Choice choice = chosen_;
      bool has = true;
      for (size_t i : which) {
        const auto& options = candidates_[i].options;
        const auto place = std::find(options.begin(), options.end(), option);
        has &= place != options.end();
        choice[i] = place - options.begin();
      }
      if (!has || choice == chosen_ || judge_.tried() >= kMostTries) continue;
      const absl::StatusOr<Score> score = judge_.Of(EntriesOf(choice));
      if (!score.ok() || !(*score < best_)) continue;
      if (score->bytes > start_.bytes && score->excess >= best_.excess) continue;
      best_ = *score;
      chosen_ = choice;
    }
  }

  std::vector<PlanCandidate> candidates_;
  Judge& judge_;
  Choice chosen_;
  Score start_, best_;
};

std::string MemoryText(const RankMemory& memory) {
  return absl::StrCat(TotalOf(memory), " bytes on rank ", memory.rank, " (parameters ", memory.parameter_bytes,
                      ", buffers ", memory.buffer_bytes, ", activations ", memory.activation_bytes, ", cache ",
                      memory.cache_bytes, ")");
}

int64_t StateBytes(const FlatModel& flat, const std::string& pattern) {
  int64_t bytes = 0;
  for (const FlatState& state : flat.states) {
    if (PatternMatches(pattern, state.module_path)) bytes += ElementCount(state.shape) * ItemSize(state.dtype);
  }
  return bytes;
}

bool CallsLinear(const FlatModel& flat) {
  std::set<std::string> linears;
  for (const FlatModule& module : flat.modules) {
    if (module.module != nullptr && std::holds_alternative<LinearConfig>(module.module->config))
      linears.insert(module.path);
  }
  return std::any_of(flat.nodes.begin(), flat.nodes.end(), [&](const FlatNode& node) {
    return node.function == "linear" && linears.contains(node.module_path);
  });
}

bool HasSequence(const FlatModel& flat) {
  return std::any_of(flat.nodes.begin(), flat.nodes.end(), [&](const FlatNode& node) {
    return node.function == "linear" && flat.values[node.outputs[0]].type.shape.size() >= 3;
  });
}

}  // namespace

absl::StatusOr<AutoPlan> FindPlan(const Submission& submission, const AutoPlanOptions& options) {
  TP_ASSIGN_OR_RETURN(const FlatModel flat, FlattenModel(submission.model, submission.compute_dtype));
  AutoPlan found;
  found.plan = submission.plan;
  found.plan.entries.clear();
  const bool sequence = options.sequence_parallel && HasSequence(flat);
  if (options.sequence_parallel && !sequence) {
    found.notes.push_back("no Linear works on [batch, sequence, features]: there is no sequence to cut");
  }
  const auto sharded = std::count_if(flat.modules.begin(), flat.modules.end(), [](const FlatModule& module) {
    return module.module != nullptr && module.module->sharding.has_value();
  });
  if (sharded > 0) {
    found.notes.push_back(
        absl::StrCat(CountText(sharded, "module"), sharded == 1 ? " has a sharding of its own and is left as it is"
                                                                : " have a sharding of their own and are left "
                                                                  "as they are"));
  }
  std::vector<PlanCandidate> candidates = PlanCandidates(flat, sequence);
  Judge judge(submission, options);
  if (std::none_of(candidates.begin(), candidates.end(), [](const auto& one) { return one.is_linear; })) {
    found.notes.push_back(CallsLinear(flat) ? "every Linear that the model calls is placed by a sharding of its own or "
                                              "of a module above: no style is needed"
                                            : "the model calls no Linear: the plan cuts none");
    std::erase_if(candidates, [](const auto& one) { return !one.is_embedding; });
  }
  Search search(std::move(candidates), &judge);
  TP_RETURN_IF_ERROR(search.Run());
  found.plan.entries = search.Entries();
  Score score = search.best();
  if (sequence) {
    std::vector<std::string> colwise;
    for (size_t i = 0; i < search.candidates().size(); ++i) {
      const std::vector<Style>& styles = search.ChosenFor(i);
      if (search.candidates()[i].is_linear && std::holds_alternative<ColwiseParallel>(styles[0]))
        colwise.push_back(search.candidates()[i].pattern);
    }
    // One by one: where the argument is not cut, its module needs nothing.
    for (PlanEntry& entry : GatheringModules(flat, colwise)) {
      std::vector<PlanEntry> with = found.plan.entries;
      with.push_back(std::move(entry));
      const absl::StatusOr<Score> judged = judge.Of(with);
      if (!judged.ok() || judged->bytes > score.bytes || judged->excess > score.excess) continue;
      found.plan.entries = std::move(with);
      score = *judged;
    }
  }
  TP_ASSIGN_OR_RETURN(score, judge.Of(found.plan.entries));
  if (score.excess > 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no plan fits a memory limit of ", options.memory_limit,
                                                     " bytes a rank: the least found needs ",
                                                     MemoryText(judge.busiest())));
  }
  for (size_t i = 0; i < search.candidates().size(); ++i) {
    const PlanCandidate& candidate = search.candidates()[i];
    if (!candidate.is_embedding) continue;
    const std::vector<Style>& styles = search.ChosenFor(i);
    if (!styles.empty() && !std::holds_alternative<PrepareModuleOutput>(styles[0])) continue;
    found.notes.push_back(absl::StrCat(
        candidate.pattern, " stays whole on every rank (", StateBytes(flat, candidate.pattern),
        " bytes): a lookup then needs no collective; ",
        options.memory_limit > 0 ? "the memory limit leaves room for that" : "a memory limit would cut it"));
  }
  found.collective_bytes = score.bytes;
  found.collectives = score.collectives;
  found.tried = judge.tried();
  return found;
}

}  // namespace tp
