#include "common/program/warnings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/count.h"
#include "common/base/status.h"
#include "common/program/match.h"
#include "common/program/plan_trials.h"

namespace tp {
namespace {

constexpr int64_t kBigBytes = int64_t{1} << 20;
constexpr double kMostOfEvenShare = 1.25;

std::string AxisText(const Mesh& mesh, size_t axis) {
  const MeshAxis& named = mesh.axes()[axis];
  return absl::StrCat(named.name, "=", named.size);
}

// "2 2 2 1 0"; long ones as "7 x20, 4, 0 x3".
std::string SizesText(const std::vector<int64_t>& sizes) {
  if (sizes.size() <= 16) return absl::StrJoin(sizes, " ");
  std::vector<std::string> runs;
  for (size_t i = 0; i < sizes.size();) {
    size_t end = i;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    runs.push_back(end - i == 1 ? absl::StrCat(sizes[i]) : absl::StrCat(sizes[i], " x", end - i));
    i = end;
  }
  return absl::StrJoin(runs, ", ");
}

// What is uneven in a dim of `size` that `placement` cuts on `axis`; "" where nothing is. Without the dim's name.
std::string UnevenText(const Mesh& mesh, size_t axis, int64_t size, Placement placement) {
  if (!placement.IsSharding() || size == 0) return "";
  placement.dim = 0;
  Placements placements(static_cast<size_t>(mesh.axis_count()));
  placements[axis] = placement;
  std::vector<int64_t> sizes;
  double sum = 0;
  Coordinate coordinate(placements.size(), 0);
  for (int i = 0; i < mesh.axis_size(static_cast<int>(axis)); ++i) {
    coordinate[axis] = i;
    sizes.push_back(LocalShape({size}, placements, mesh, coordinate)[0]);
    sum += static_cast<double>(sizes.back());
  }
  const auto idle = std::count(sizes.begin(), sizes.end(), 0);
  const double even = sum / static_cast<double>(sizes.size());
  const double most = static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
  if (idle == 0 && most <= kMostOfEvenShare * even) return "";
  const int64_t ranks = static_cast<int64_t>(sizes.size());
  std::string text = absl::StrCat(size, " over ", AxisText(mesh, axis), " gives ", SizesText(sizes), ": ");
  if (idle > 0) {
    absl::StrAppend(&text, CountText(idle, "rank"), idle == 1 ? " holds" : " hold", " nothing");
  } else {
    absl::StrAppend(&text, "the busiest rank holds ", static_cast<int64_t>(100 * most / even + 0.5) - 100,
                    " % more than its share");
  }
  int64_t fewer = ranks - 1;
  while (fewer > 1 && size % fewer != 0) --fewer;
  return absl::StrCat(text, "; a size that ", ranks, " divides, as ", (size + ranks - 1) / ranks * ranks,
                      fewer > 1 ? absl::StrCat(", or ", mesh.axes()[axis].name, "=", fewer) : "", " shares it out");
}

// One warning for equal ones: the first name and how many more.
class Grouped {
 public:
  void Add(const std::string& name, const std::string& text) {
    auto [place, added] = index_.emplace(text, entries_.size());
    if (added) entries_.push_back({name, 0, text});
    if (!added) ++entries_[place->second].more;
  }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const Entry& entry : entries_) {
      const std::string more = entry.more == 0 ? "" : absl::StrCat(" (and ", entry.more, " more)");
      texts.push_back(absl::StrCat(entry.name, more, ": ", entry.text));
    }
    return texts;
  }

 private:
  struct Entry {
    std::string name;
    int more = 0;
    std::string text;
  };
  std::vector<Entry> entries_;
  std::map<std::string, size_t> index_;
};

bool IsGather(const Instruction& instruction) {
  return instruction.step.has_value() && instruction.step->op == RedistributeOp::kAllGather;
}

std::string EntryName(size_t index, const PlanEntry& entry) {
  return absl::StrCat("plan.entries[", index, "] '", entry.pattern, "'");
}

// One change of one entry, and how to say it.
struct Change {
  size_t entry = 0;
  std::optional<Style> style;  // absent: without the entry
  std::string text;
};

std::vector<Change> ChangesOf(size_t index, const PlanEntry& entry) {
  std::vector<Change> changes;
  const std::string name = EntryName(index, entry);
  if (const auto* colwise = std::get_if<ColwiseParallel>(&entry.style)) {
    if (colwise->output_layouts != Layout(Placement::Shard(-1))) {
      ColwiseParallel cut = *colwise;
      cut.output_layouts = Placement::Shard(-1);
      changes.push_back({index, cut, absl::StrCat(name, " with output_layouts=S(-1)")});
    }
    changes.push_back({index, RowwiseParallel{}, absl::StrCat("RowwiseParallel in ", name)});
  } else if (std::holds_alternative<RowwiseParallel>(entry.style)) {
    changes.push_back({index, ColwiseParallel{}, absl::StrCat("ColwiseParallel in ", name)});
  } else if (std::holds_alternative<PrepareModuleInput>(entry.style) ||
             std::holds_alternative<PrepareModuleOutput>(entry.style)) {
    changes.push_back({index, std::nullopt, absl::StrCat("without ", name)});
  }
  return changes;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AvoidableGathers(const Submission& submission, const CompiledModel& compiled,
                                                          const Bindings& bindings, int64_t memory_limit) {
  const ForwardProgram& program = compiled.program;
  std::vector<int> made_by(program.values.size(), -1);
  std::vector<bool> is_state(program.values.size(), false);
  for (const Operand& operand : program.operands) {
    is_state[operand.value] = operand.kind == OperandKind::kParameter || operand.kind == OperandKind::kBuffer;
  }
  // The last Linear or Embedding before a value, through functions and steps that have its shape or another.
  auto producer_of = [&](int value) {
    for (int depth = 0; depth < 64 && value >= 0 && made_by[value] >= 0; ++depth) {
      const Instruction& instruction = program.instructions[made_by[value]];
      if (instruction.function == "linear" || instruction.function == "embedding") return instruction.module_path;
      value = instruction.inputs.empty() ? -1 : instruction.inputs[0];
    }
    return std::string();
  };
  // Entries to change, with the first gather that each could avoid.
  std::map<size_t, const Instruction*> suspects;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    for (int output : instruction.outputs) made_by[output] = static_cast<int>(i);
    if (!IsGather(instruction) || is_state[instruction.inputs[0]]) continue;
    for (const std::string& path : {instruction.module_path, producer_of(instruction.inputs[0])}) {
      for (size_t entry = 0; entry < submission.plan.entries.size(); ++entry) {
        if (PatternMatches(submission.plan.entries[entry].pattern, path)) suspects.emplace(entry, &instruction);
      }
    }
  }
  if (suspects.empty()) return std::vector<std::string>();
  TP_ASSIGN_OR_RETURN(const TrialCost now, TrialCostOf(compiled, bindings));
  PlanTrials trials(submission, bindings, memory_limit, program.mesh.rank_count() > 256 ? 4 : 12);
  std::map<const Instruction*, std::pair<int64_t, std::string>> best;  // least bytes for each gather
  for (const auto& [entry, gather] : suspects) {
    for (const Change& change : ChangesOf(entry, submission.plan.entries[entry])) {
      std::vector<PlanEntry> entries = submission.plan.entries;
      if (change.style.has_value()) {
        entries[entry].style = *change.style;
        entries[entry].input_layouts_written = false;
      } else {
        entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(entry));
      }
      const std::optional<TrialCost> cost = trials.Of(std::move(entries));
      if (!cost.has_value() || cost->bytes >= now.bytes) continue;
      auto [place, added] = best.emplace(gather, std::make_pair(cost->bytes, change.text));
      if (!added && cost->bytes < place->second.first) place->second = {cost->bytes, change.text};
    }
  }
  std::vector<std::string> warnings;
  for (const Instruction& instruction : program.instructions) {
    auto found = best.find(&instruction);
    if (found == best.end()) continue;
    warnings.push_back(absl::StrCat(instruction.module_path.empty() ? "the root module" : instruction.module_path,
                                    ": all_gather (", instruction.reason, ") can be avoided: ", found->second.second,
                                    " makes all collectives ", found->second.first, " bytes in place of ", now.bytes));
  }
  return warnings;
}

absl::StatusOr<std::vector<std::string>> UnevenShards(const CompiledModel& compiled, const Bindings& bindings) {
  const Mesh& mesh = compiled.mesh;
  Grouped grouped;
  std::set<std::string> seen;
  for (const PlacedState& placed : compiled.states) {
    for (size_t axis = 0; axis < placed.placements.size(); ++axis) {
      const Placement& placement = placed.placements[axis];
      if (!placement.IsSharding()) continue;
      const std::string text = UnevenText(mesh, axis, placed.state.shape[placement.dim], placement);
      // The bias goes with its weight.
      if (!text.empty() && seen.insert(absl::StrCat(placed.state.module_path, " ", text)).second)
        grouped.Add(placed.state.path, absl::StrCat("dim ", placement.dim, " of ", text));
    }
  }
  std::vector<std::string> warnings = grouped.Texts();
  for (const ProgramValue& value : compiled.program.values) {
    for (size_t axis = 0; axis < value.spec.placements.size(); ++axis) {
      const Placement& placement = value.spec.placements[axis];
      if (!placement.IsSharding()) continue;
      const Dim& dim = value.spec.shape[placement.dim];
      const std::vector<std::string> symbols = dim.Symbols();
      if (symbols.size() != 1 || dim != Dim::Symbol(symbols[0])) continue;
      TP_ASSIGN_OR_RETURN(const int64_t size, dim.Evaluate(bindings));
      const std::string text = UnevenText(mesh, axis, size, placement);
      if (!text.empty() && seen.insert(absl::StrCat(symbols[0], " ", axis)).second)
        warnings.push_back(absl::StrCat(symbols[0], " of ", text));
    }
  }
  return warnings;
}

std::vector<std::string> ReplicatedWeights(const CompiledModel& compiled, const std::vector<std::string>& batch_axes) {
  const Mesh& mesh = compiled.mesh;
  std::vector<std::string> axes;
  int ways = 1;
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.size == 1 || std::find(batch_axes.begin(), batch_axes.end(), axis.name) != batch_axes.end()) continue;
    axes.push_back(absl::StrCat(axis.name, "=", axis.size));
    ways *= axis.size;
  }
  if (axes.empty()) return {};
  std::set<int> weights;
  for (const Instruction& instruction : compiled.program.instructions) {
    if (instruction.function == "linear" || instruction.function == "embedding") weights.insert(instruction.inputs[1]);
  }
  std::set<std::string> paths;
  for (const Operand& operand : compiled.program.operands) {
    if (weights.contains(operand.value)) paths.insert(operand.name);
  }
  const Coordinate origin(static_cast<size_t>(mesh.axis_count()), 0);
  int64_t all = 0;
  for (const PlacedState& placed : compiled.states) {
    if (placed.source.has_value() && placed.source->kind == WeightSource::Kind::kAlias) continue;
    all += ElementCount(LocalShape(placed.state.shape, placed.placements, mesh, origin)) * ItemSize(placed.state.dtype);
  }
  std::vector<std::string> warnings;
  for (const PlacedState& placed : compiled.states) {
    const int64_t bytes = ElementCount(placed.state.shape) * ItemSize(placed.state.dtype);
    const bool cut = std::any_of(placed.placements.begin(), placed.placements.end(),
                                 [](const Placement& placement) { return placement.IsSharding(); });
    if (cut || !paths.contains(placed.state.path) || bytes < kBigBytes || bytes <= all / 4) continue;
    warnings.push_back(absl::StrCat(placed.state.path, ": ", bytes, " bytes on every rank, ", 100 * bytes / all,
                                    " % of its parameters; ColwiseParallel or RowwiseParallel on '",
                                    placed.state.module_path, "' holds 1/", ways, " of it (", absl::StrJoin(axes, ","),
                                    ")"));
  }
  return warnings;
}

std::vector<std::string> BatchGathers(const CompiledModel& compiled, const std::vector<std::string>& batch_axes) {
  std::vector<std::string> warnings;
  std::set<std::string> seen;
  for (const Instruction& instruction : compiled.program.instructions) {
    if (!IsGather(instruction)) continue;
    for (int axis : instruction.step->axes) {
      const std::string& name = compiled.mesh.axes()[axis].name;
      if (std::find(batch_axes.begin(), batch_axes.end(), name) == batch_axes.end()) continue;
      if (instruction.step->from[axis] != Placement::Shard(0)) continue;
      const std::string module = instruction.module_path.empty() ? "the root module" : instruction.module_path;
      if (!seen.insert(absl::StrCat(module, " ", name)).second) continue;
      warnings.push_back(absl::StrCat(module, ": the batch is gathered over axis '", name, "' (", instruction.reason,
                                      "); naming the axis in that layout, as ", name, ": S(0), keeps it cut"));
    }
  }
  return warnings;
}

absl::StatusOr<std::vector<std::string>> PlanWarnings(const Submission& submission, const CompiledModel& compiled,
                                                      const Bindings& bindings, int64_t memory_limit) {
  TP_ASSIGN_OR_RETURN(std::vector<std::string> warnings,
                      AvoidableGathers(submission, compiled, bindings, memory_limit));
  TP_ASSIGN_OR_RETURN(const std::vector<std::string> unpaired,
                      UnpairedStyles(submission, compiled, bindings, memory_limit));
  TP_ASSIGN_OR_RETURN(const std::vector<std::string> uneven, UnevenShards(compiled, bindings));
  TP_ASSIGN_OR_RETURN(const TrialCost cost, TrialCostOf(compiled, bindings));
  std::vector<std::string> replicated;
  if (memory_limit == 0 || cost.memory > memory_limit)
    replicated = ReplicatedWeights(compiled, submission.plan.batch_axes);
  for (const auto& more : {unpaired, uneven, replicated, BatchGathers(compiled, submission.plan.batch_axes)}) {
    warnings.insert(warnings.end(), more.begin(), more.end());
  }
  return warnings;
}

}  // namespace tp
