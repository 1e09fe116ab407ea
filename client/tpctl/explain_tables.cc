// The tables of `tpctl explain`.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/tpctl/explain_parts.h"
#include "client/tpctl/path_groups.h"
#include "client/tpctl/short_style.h"
#include "common/base/count.h"

namespace tp::client {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kRanksShown = 16;  // more are grouped

// The last part of a module's path, indented by its depth.
std::string TreeText(const PathGroup& group) {
  if (group.depth == 0) return "(root)";
  return std::string(2 * static_cast<size_t>(group.depth), ' ') + group.name;
}

// A reason without the module's own path, which has a column: "output: P(sum) -> R".
std::string ReasonText(const CollectiveRecord& record) {
  const std::string module = record.module.empty() ? "the root module" : record.module;
  for (const char* preposition : {" of ", " in "}) {
    const std::string phrase = absl::StrCat(preposition, module, ":");
    if (const size_t at = record.reason.find(phrase); at != std::string::npos)
      return absl::StrCat(record.reason.substr(0, at), ":", record.reason.substr(at + phrase.size()));
  }
  return record.reason;
}

// "0-3, 5 (5 ranks)".
std::string RanksText(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.push_back(end - i == 1 ? absl::StrCat(ranks[i]) : absl::StrCat(ranks[i], "-", ranks[end - 1]));
    i = end;
  }
  constexpr size_t kRunsShown = 4;
  const bool cut = runs.size() > kRunsShown;
  if (cut) runs.resize(kRunsShown);
  return absl::StrCat(absl::StrJoin(runs, ", "), cut ? ", ..." : "",
                      ranks.size() > 1 ? absl::StrCat(" (", CountText(ranks.size(), "rank"), ")") : "");
}

}  // namespace

std::string ModulesTable(const Explanation& explanation) {
  std::map<std::string, std::string> states;  // of each module
  for (const PlacedState& placed : explanation.compiled.states) {
    absl::StrAppend(&states[placed.state.module_path], "\n", placed.state.name, " ",
                    std::string(DTypeName(placed.state.dtype)), ShapeText(placed.state.shape), " ",
                    PlacementsText(explanation.compiled.mesh, placed.placements));
  }
  Rows cells;
  std::vector<PathRow> all;
  for (const PlacedModule& module : explanation.compiled.modules) {
    const Cost cost = CostOfModule(explanation, module.path);
    cells.push_back({"", module.type_name, absl::StrJoin(module.inputs, "\n"), absl::StrJoin(module.outputs, "\n"),
                     FlopsText(cost.flops), SecondsText(cost.seconds), module.style});
    all.push_back({module.path, absl::StrCat(absl::StrJoin(cells.back(), "\n\n"), states[module.path])});
  }
  Rows rows = {{"MODULE", "KIND", "INPUTS", "OUTPUTS", "FLOPS", "TIME", "STYLE"}};
  bool several = false;
  for (const PathGroup& group : GroupTrees(all)) {
    rows.push_back(cells[group.first]);
    rows.back().front() = TreeText(group);
    rows.back().back() = ShortStyle(rows.back().back());
    several |= group.count > 1;
  }
  return absl::StrCat(Table(rows, kTableWidth),
                      several ? "modules that are alike are one row, with the flops and the time of each\n" : "");
}

std::string StatesTable(const CompiledModel& compiled) {
  Rows cells;
  std::vector<PathRow> all;
  for (const PlacedState& placed : compiled.states) {
    cells.push_back(
        {"", absl::StrCat(std::string(DTypeName(placed.state.dtype)), ShapeText(placed.state.shape)),
         absl::StrCat(PlacementsText(compiled.mesh, placed.placements), placed.state.buffer ? " (buffer)" : "")});
    all.push_back({placed.state.path, absl::StrJoin(cells.back(), "\n")});
  }
  Rows rows = {{"PARAMETER", "TYPE", "PLACEMENTS"}};
  for (const PathGroup& group : GroupRows(all)) {
    rows.push_back(cells[group.first]);
    rows.back().front() = group.path;
  }
  return Table(rows, kTableWidth);
}

std::string CollectivesTable(const std::vector<CollectiveCost>& collectives) {
  if (collectives.empty()) return "no collectives\n";
  Rows cells;
  std::vector<PathRow> all;
  for (const CollectiveCost& cost : collectives) {
    const std::string groups =
        absl::StrCat(CountText(cost.group_size, "rank"), cost.groups > 1 ? absl::StrCat(" x ", cost.groups) : "");
    cells.push_back({"", cost.record.op, cost.record.axis, groups, absl::StrCat(cost.record.bytes),
                     SecondsText(cost.seconds), "", ReasonText(cost.record)});
    all.push_back({cost.record.module, absl::StrJoin(cells.back(), "\n")});
  }
  Rows rows = {{"COUNT", "COLLECTIVE", "AXIS", "GROUP", "BYTES EACH", "TIME EACH", "MODULE", "REASON"}};
  for (const PathGroup& group : GroupRows(all)) {
    rows.push_back(cells[group.first]);
    rows.back()[0] = absl::StrCat(group.count);
    rows.back()[6] = ModuleText(group.path);
  }
  return absl::StrCat(Table(rows, kTableWidth), CountText(collectives.size(), "collective"), ", ",
                      BytesText(CollectiveBytes(collectives)), " received by the busiest rank\n");
}

std::string RanksTable(const std::vector<RankMemory>& memory) {
  Rows rows = {{"RANK", "PARAMETERS", "BUFFERS", "ACTIVATIONS", "CACHE (ONE SEQUENCE)", "ALL"}};
  std::vector<std::vector<int>> groups;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, size_t> known;
  for (const RankMemory& rank : memory) {
    if (memory.size() <= kRanksShown) {
      groups.push_back({rank.rank});
      continue;
    }
    const auto key = std::make_tuple(rank.parameter_bytes, rank.buffer_bytes, rank.activation_bytes, rank.cache_bytes);
    auto [place, added] = known.emplace(key, groups.size());
    if (added) groups.emplace_back();
    groups[place->second].push_back(rank.rank);
  }
  for (const std::vector<int>& group : groups) {
    const RankMemory& rank = memory[group[0]];
    rows.push_back({RanksText(group), BytesText(rank.parameter_bytes), BytesText(rank.buffer_bytes),
                    BytesText(rank.activation_bytes), BytesText(rank.cache_bytes), BytesText(TotalBytes(rank))});
  }
  return Table(rows);
}

}  // namespace tp::client
