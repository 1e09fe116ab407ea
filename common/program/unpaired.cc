// UnpairedStyles of warnings.h: Linears that would work together if both were cut.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/program/match.h"
#include "common/program/plan_trials.h"
#include "common/program/warnings.h"

namespace tp {
namespace {

constexpr int kMostTrials = 8;
constexpr size_t kMostValues = 64;     // that one search follows
constexpr size_t kMostNeighbours = 4;  // Linears that one change names

bool IsStep(const Instruction& instruction) { return instruction.step.has_value(); }

// Functions after which features are whole, whatever they were before.
bool MixesFeatures(const std::string& function) {
  static const auto* names = new std::set<std::string>{
      "rms_norm", "layer_norm", "softmax", "log_softmax", "argmax", "topk",           "sum",           "mean",
      "max",      "min",        "pick",    "gather",      "arange", "max_with_index", "min_with_index"};
  return names->contains(function);
}

class Pairs {
 public:
  Pairs(const Submission& submission, const CompiledModel& compiled, const TrialCost& now, PlanTrials* trials)
      : plan_(submission.plan), compiled_(compiled), program_(compiled.program), now_(now), trials_(*trials) {
    made_by_.assign(program_.values.size(), -1);
    read_by_.resize(program_.values.size());
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      for (int output : program_.instructions[i].outputs) made_by_[output] = static_cast<int>(i);
      for (int input : program_.instructions[i].inputs) {
        if (input >= 0) read_by_[input].push_back(static_cast<int>(i));
      }
    }
    for (const Operand& operand : program_.operands) {
      if (operand.kind == OperandKind::kParameter) parameters_.insert(operand.value);
    }
    for (const PlacedModule& module : compiled_.modules) styles_[module.path] = module.style;
  }

  std::vector<std::string> Warnings() {
    for (const Instruction& instruction : program_.instructions) {
      if (instruction.function == "linear") {
        OfRowwise(instruction);
        OfWholeWeight(instruction);
      }
      if (IsStep(instruction) && instruction.step->op == RedistributeOp::kAllGather) OfGather(instruction);
    }
    return std::move(warnings_);
  }

 private:
  // The entry that gives the module a weight style; -1 without.
  int EntryOf(const std::string& path) const {
    for (size_t i = 0; i < plan_.entries.size(); ++i) {
      const Style& style = plan_.entries[i].style;
      if (!std::holds_alternative<ColwiseParallel>(style) && !std::holds_alternative<RowwiseParallel>(style)) continue;
      if (PatternMatches(plan_.entries[i].pattern, path)) return static_cast<int>(i);
    }
    return -1;
  }
  bool IsUnstyledLinear(const std::string& path) const {
    auto style = styles_.find(path);
    return style != styles_.end() && style->second.empty();
  }

  // A pattern for the module and those of other layers that are like it.
  std::string PatternFor(const std::string& path) const {
    std::vector<std::string> parts = absl::StrSplit(path, '.');
    for (std::string& part : parts) {
      if (part.find_first_not_of("0123456789") == std::string::npos) part = "*";
    }
    const std::string pattern = absl::StrJoin(parts, ".");
    const std::string type = TypeOf(path);
    for (const PlacedModule& module : compiled_.modules) {
      if (!PatternMatches(pattern, module.path)) continue;
      if (module.type_name != type || !module.style.empty()) return path;
    }
    return pattern;
  }
  std::string TypeOf(const std::string& path) const {
    for (const PlacedModule& module : compiled_.modules) {
      if (module.path == path) return module.type_name;
    }
    return "";
  }

  // The value before the steps of a module that lead to `value`, and whether any of them does anything.
  int BeforeSteps(int value, const std::string& path, bool* moved) const {
    *moved = false;
    while (made_by_[value] >= 0) {
      const Instruction& made = program_.instructions[made_by_[value]];
      if (!IsStep(made) || made.module_path != path) break;
      *moved |= made.step->op != RedistributeOp::kNone;
      value = made.inputs[0];
    }
    return value;
  }

  // The Linears that `value` is made of, feature by feature.
  std::vector<std::string> Makers(int value) const {
    std::vector<int> stack = {value};
    std::set<int> seen;
    std::vector<std::string> makers;
    while (!stack.empty() && seen.size() < kMostValues) {
      const int at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second || made_by_[at] < 0) continue;
      const Instruction& made = program_.instructions[made_by_[at]];
      if (made.function == "linear" || made.function == "embedding") {
        if (std::find(makers.begin(), makers.end(), made.module_path) == makers.end())
          makers.push_back(made.module_path);
        continue;
      }
      if (MixesFeatures(made.function)) continue;
      for (int input : made.inputs) {
        if (input >= 0) stack.push_back(input);
      }
    }
    if (makers.size() > kMostNeighbours) makers.clear();
    std::reverse(makers.begin(), makers.end());
    return makers;
  }

  // The Linears that read `value`, or what is made of it feature by feature.
  std::vector<std::string> Readers(int value) const {
    std::vector<int> stack = {value};
    std::set<int> seen;
    std::vector<std::string> readers;
    while (!stack.empty() && seen.size() < kMostValues) {
      const int at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second) continue;
      for (int index : read_by_[at]) {
        const Instruction& reader = program_.instructions[index];
        if (reader.function == "linear" && reader.inputs[0] == at) {
          if (std::find(readers.begin(), readers.end(), reader.module_path) == readers.end())
            readers.push_back(reader.module_path);
        } else if (reader.function != "linear" && reader.function != "embedding" && !MixesFeatures(reader.function)) {
          stack.insert(stack.end(), reader.outputs.begin(), reader.outputs.end());
        }
      }
    }
    if (readers.size() > kMostNeighbours) readers.clear();
    return readers;
  }

  std::string EntryText(int entry) const {
    return absl::StrCat("plan.entries[", entry, "] '", plan_.entries[entry].pattern, "'");
  }
  // "; this makes all collectives 64 bytes in place of 112".
  std::string BytesText(const TrialCost& cost) const {
    if (cost.bytes == now_.bytes) return ", and the bytes of all collectives stay as they are";
    return absl::StrCat(", and makes all collectives ", cost.bytes, " bytes in place of ", now_.bytes);
  }
  bool CutsMore(const std::optional<TrialCost>& cost) const {
    return cost.has_value() && (cost->flops < now_.flops || cost->parameter_bytes < now_.parameter_bytes) &&
           cost->flops <= now_.flops && cost->parameter_bytes <= now_.parameter_bytes;
  }

  // Its input is whole on every rank, or lies otherwise.
  void OfRowwise(const Instruction& linear) {
    const std::string& path = linear.module_path;
    const int entry = EntryOf(path);
    if (entry < 0 || !std::holds_alternative<RowwiseParallel>(plan_.entries[entry].style)) return;
    bool moved = false;
    const int source = BeforeSteps(linear.inputs[0], path, &moved);
    if (!moved || !told_.insert(EntryText(entry)).second) return;
    const std::string problem = absl::StrCat(path, ": RowwiseParallel takes an input cut by features, and its own is ",
                                             PlacementsText(program_.mesh, program_.values[source].spec.placements));
    std::vector<PlanEntry> entries = plan_.entries;
    std::vector<std::string> cures;
    bool curable = true, adds = false;
    for (const std::string& maker : Makers(source)) {
      const int own = EntryOf(maker);
      if (own < 0) {
        curable &= IsUnstyledLinear(maker);
        adds = true;
        entries.push_back({PatternFor(maker), ColwiseParallel{}});
        cures.push_back(absl::StrCat("ColwiseParallel on '", entries.back().pattern, "'"));
      } else if (const auto* colwise = std::get_if<ColwiseParallel>(&plan_.entries[own].style)) {
        if (colwise->output_layouts == Layout(Placement::Shard(-1))) continue;
        std::get<ColwiseParallel>(entries[own].style).output_layouts = Placement::Shard(-1);
        cures.push_back(absl::StrCat("output_layouts=S(-1) in ", EntryText(own)));
      } else {
        curable = false;
      }
    }
    if (curable && !adds && !cures.empty()) return;  // a gather that AvoidableGathers tells of
    if (curable && adds) {
      const std::optional<TrialCost> cost = trials_.Of(std::move(entries));
      if (CutsMore(cost) || (cost.has_value() && cost->bytes < now_.bytes)) {
        warnings_.push_back(
            absl::StrCat(problem, "; ", absl::StrJoin(cures, " and "), " makes it so", BytesText(*cost)));
        return;
      }
    }
    entries = plan_.entries;
    entries[entry].style = ColwiseParallel{};
    entries[entry].input_layouts_written = false;
    const std::optional<TrialCost> cost = trials_.Of(std::move(entries));
    if (cost.has_value() && cost->bytes < now_.bytes)
      warnings_.push_back(
          absl::StrCat(problem, "; ColwiseParallel in ", EntryText(entry), " takes it as it is", BytesText(*cost)));
  }

  // No entry names it, but its weight is cut in each forward to fit an input that is.
  void OfWholeWeight(const Instruction& linear) {
    const std::string& path = linear.module_path;
    bool moved = false;
    const int weight = linear.inputs[1];
    const int source = BeforeSteps(weight, path, &moved);
    if (!moved || !parameters_.contains(source) || !IsUnstyledLinear(path)) return;
    const std::string pattern = PatternFor(path);
    bool rows = false, columns = false;
    for (const Placement& placement : program_.values[weight].spec.placements) {
      rows |= placement.Cuts(0);
      columns |= placement.Cuts(1);
    }
    if (rows == columns || !told_.insert(pattern).second) return;
    std::vector<PlanEntry> entries = plan_.entries;
    entries.push_back({pattern, rows ? Style(ColwiseParallel{}) : Style(RowwiseParallel{})});
    const std::optional<TrialCost> cost = trials_.Of(std::move(entries));
    if (!CutsMore(cost)) return;
    warnings_.push_back(absl::StrCat(path,
                                     ": every rank holds the whole weight and uses a part of it, since the input is ",
                                     PlacementsText(program_.mesh, program_.values[linear.inputs[0]].spec.placements),
                                     "; ", rows ? "ColwiseParallel" : "RowwiseParallel", " on '", pattern,
                                     "' has it hold that part only", BytesText(*cost)));
  }

  // What a ColwiseParallel made is gathered for a Linear that no entry names.
  void OfGather(const Instruction& gather) {
    if (parameters_.contains(gather.inputs[0])) return;
    std::vector<PlanEntry> entries = plan_.entries;
    std::vector<int> makers;
    for (const std::string& maker : Makers(gather.inputs[0])) {
      const int entry = EntryOf(maker);
      if (entry < 0 || !std::holds_alternative<ColwiseParallel>(plan_.entries[entry].style)) return;
      std::get<ColwiseParallel>(entries[entry].style).output_layouts = Placement::Shard(-1);
      makers.push_back(entry);
    }
    if (makers.empty()) return;
    std::vector<std::string> cures;
    for (const std::string& reader : Readers(gather.outputs[0])) {
      if (EntryOf(reader) >= 0 || !IsUnstyledLinear(reader)) return;
      entries.push_back({PatternFor(reader), RowwiseParallel{}});
      cures.push_back(absl::StrCat("'", entries.back().pattern, "'"));
    }
    if (cures.empty() || !told_.insert(absl::StrCat(makers[0], " ", cures[0])).second) return;
    const std::optional<TrialCost> cost = trials_.Of(entries);
    if (!CutsMore(cost)) return;
    const bool stays = entries[makers[0]].style == plan_.entries[makers[0]].style;
    warnings_.push_back(absl::StrCat(gather.module_path.empty() ? "the root module" : gather.module_path,
                                     ": what ColwiseParallel cut is gathered (", gather.reason,
                                     "); RowwiseParallel on ", absl::StrJoin(cures, " and "),
                                     stays ? "" : absl::StrCat(" with output_layouts=S(-1) in ", EntryText(makers[0])),
                                     " works on the cut values", BytesText(*cost)));
  }

  const ParallelPlan& plan_;
  const CompiledModel& compiled_;
  const ForwardProgram& program_;
  const TrialCost now_;
  PlanTrials& trials_;
  std::vector<int> made_by_;
  std::vector<std::vector<int>> read_by_;
  std::set<int> parameters_;
  std::map<std::string, std::string> styles_;
  std::set<std::string> told_;
  std::vector<std::string> warnings_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> UnpairedStyles(const Submission& submission, const CompiledModel& compiled,
                                                        const Bindings& bindings, int64_t memory_limit) {
  if (compiled.mesh.rank_count() == 1) return std::vector<std::string>();
  TP_ASSIGN_OR_RETURN(const TrialCost now, TrialCostOf(compiled, bindings));
  PlanTrials trials(submission, bindings, memory_limit, compiled.mesh.rank_count() > 256 ? 3 : kMostTrials);
  return Pairs(submission, compiled, now, &trials).Warnings();
}

}  // namespace tp
