#include "client/tpctl/explain_render.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/program/warnings.h"

namespace tp::client {
namespace {

using Members = JsonNode::Members;
using List = JsonNode::List;
using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kRanksShown = 16;  // more are grouped

JsonNode Text(std::string_view text) { return {std::string(text)}; }
JsonNode Number(int64_t number) { return {number}; }
JsonNode Number(double number) {
  if (std::floor(number) == number && std::abs(number) < 9e15) return {static_cast<int64_t>(number)};
  return {number};
}
JsonNode Texts(const std::vector<std::string>& texts) {
  List list;
  for (const std::string& text : texts) list.push_back(Text(text));
  return {std::move(list)};
}

std::string SecondsText(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", seconds * 1e6);
  return seconds < 1 ? absl::StrFormat("%.2f ms", seconds * 1e3) : absl::StrFormat("%.2f s", seconds);
}

std::string FlopsText(double flops) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  int unit = 0;
  while (flops >= 1000 && unit < 5) {
    flops /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f", flops) : absl::StrFormat("%.1f %s", flops, kUnits[unit]);
}

Cost CostOfModule(const Explanation& explanation, const std::string& path) {
  auto it = explanation.cost.modules.find(path);
  return it == explanation.cost.modules.end() ? Cost() : it->second;
}

std::string ModuleText(const std::string& path) { return path.empty() ? "(root)" : path; }

// The last part of a module's path, indented by its depth.
std::string TreeText(const std::string& path) {
  if (path.empty()) return "(root)";
  const size_t depth = static_cast<size_t>(std::count(path.begin(), path.end(), '.')) + 1;
  return std::string(2 * depth, ' ') + path.substr(path.rfind('.') + 1);
}

std::string ModulesTable(const Explanation& explanation) {
  Rows rows = {{"MODULE", "KIND", "INPUTS", "OUTPUTS", "FLOPS", "TIME", "STYLE"}};
  for (const PlacedModule& module : explanation.compiled.modules) {
    const Cost cost = CostOfModule(explanation, module.path);
    rows.push_back({TreeText(module.path), module.type_name, absl::StrJoin(module.inputs, "; "),
                    absl::StrJoin(module.outputs, "; "), FlopsText(cost.flops), SecondsText(cost.seconds),
                    module.style});
  }
  return Table(rows);
}

std::string StatesTable(const CompiledModel& compiled) {
  Rows rows = {{"PARAMETER", "TYPE", "PLACEMENTS"}};
  for (const PlacedState& placed : compiled.states) {
    rows.push_back({placed.state.path,
                    absl::StrCat(std::string(DTypeName(placed.state.dtype)), ShapeText(placed.state.shape)),
                    PlacementsText(compiled.mesh, placed.placements)});
  }
  return Table(rows);
}

std::string CollectivesTable(const std::vector<CollectiveCost>& collectives) {
  if (collectives.empty()) return "no collectives\n";
  Rows rows = {{"COLLECTIVE", "AXIS", "GROUP", "BYTES RECEIVED", "TIME", "MODULE", "REASON"}};
  int64_t total = 0;
  for (const CollectiveCost& cost : collectives) {
    total += cost.record.bytes;
    const std::string groups =
        absl::StrCat(cost.group_size, " ranks", cost.groups > 1 ? absl::StrCat(" x ", cost.groups) : "");
    rows.push_back({cost.record.op, cost.record.axis, groups, absl::StrCat(cost.record.bytes),
                    SecondsText(cost.seconds), ModuleText(cost.record.module), cost.record.reason});
  }
  return absl::StrCat(Table(rows), collectives.size(), " collectives, ", BytesText(total),
                      " received by the busiest rank\n");
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
                      ranks.size() > 1 ? absl::StrCat(" (", ranks.size(), " ranks)") : "");
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

struct OpTotal {
  int64_t count = 0, bytes = 0;
};
std::map<std::string, OpTotal> TotalsByOp(const std::vector<CollectiveCost>& collectives) {
  std::map<std::string, OpTotal> totals;
  for (const CollectiveCost& cost : collectives) {
    OpTotal& total = totals[cost.record.op];
    ++total.count;
    total.bytes += cost.record.bytes;
  }
  return totals;
}

JsonNode OpJson(const OpTotal& total) {
  return {Members{{"count", Number(total.count)}, {"bytes", Number(total.bytes)}}};
}
std::string OpText(const OpTotal& total) { return absl::StrCat(total.count, ", ", BytesText(total.bytes)); }

int64_t CollectiveBytes(const std::vector<CollectiveCost>& collectives) {
  int64_t bytes = 0;
  for (const CollectiveCost& cost : collectives) bytes += cost.record.bytes;
  return bytes;
}

JsonNode TotalsJson(const Explanation& explanation) {
  Members by_op;
  for (const auto& [op, total] : TotalsByOp(explanation.cost.collectives)) by_op.emplace_back(op, OpJson(total));
  const CostModel& model = explanation.model;
  return {Members{{"collectives", Number(static_cast<int64_t>(explanation.cost.collectives.size()))},
                  {"bytes", Number(CollectiveBytes(explanation.cost.collectives))},
                  {"by_op", {std::move(by_op)}},
                  {"flops", Number(explanation.cost.total.flops)},
                  {"memory_traffic_bytes", Number(explanation.cost.total.memory_bytes)},
                  {"seconds", Number(explanation.cost.total.seconds)},
                  {"busiest_rank_bytes", Number(TotalBytes(Busiest(explanation.memory)))},
                  {"cost_model",
                   {Members{{"flops_per_second", Number(model.flops_per_second)},
                            {"memory_bytes_per_second", Number(model.memory_bytes_per_second)},
                            {"link_bytes_per_second", Number(model.link_bytes_per_second)},
                            {"hop_seconds", Number(model.hop_seconds)}}}}}};
}

std::string TotalsText(const Explanation& explanation) {
  double collectives = 0;
  for (const CollectiveCost& cost : explanation.cost.collectives) collectives += cost.seconds;
  const Cost& total = explanation.cost.total;
  return absl::StrCat("one forward: ", FlopsText(total.flops), total.flops < 1000 ? " flop and " : "flop and ",
                      BytesText(static_cast<int64_t>(total.memory_bytes)), " of memory traffic on the busiest rank, ",
                      SecondsText(total.seconds), " estimated (", SecondsText(collectives),
                      " in collectives)\ncost model: ", CostModelText(explanation.model),
                      "; nothing overlaps; an estimate, not a measurement\n");
}

JsonNode ModulesJson(const Explanation& explanation) {
  List modules;
  for (const PlacedModule& module : explanation.compiled.modules) {
    List parameters;
    for (const PlacedState& placed : explanation.compiled.states) {
      if (placed.state.module_path != module.path) continue;
      List shape;
      for (int64_t size : placed.state.shape) shape.push_back(Number(size));
      parameters.push_back({Members{{"name", Text(placed.state.name)},
                                    {"shape", {std::move(shape)}},
                                    {"dtype", Text(DTypeName(placed.state.dtype))},
                                    {"placements", Text(PlacementsText(explanation.compiled.mesh, placed.placements))},
                                    {"buffer", {placed.state.buffer}}}});
    }
    const Cost cost = CostOfModule(explanation, module.path);
    modules.push_back({Members{{"path", Text(module.path)},
                               {"kind", Text(module.type_name)},
                               {"style", Text(module.style)},
                               {"parameters", {std::move(parameters)}},
                               {"inputs", Texts(module.inputs)},
                               {"outputs", Texts(module.outputs)},
                               {"flops", Number(cost.flops)},
                               {"seconds", Number(cost.seconds)}}});
  }
  return {std::move(modules)};
}

JsonNode FoundJson(const Explanation& explanation) {
  List entries;
  for (const PlanEntry& entry : explanation.found->plan.entries)
    entries.push_back({Members{{"pattern", Text(entry.pattern)}, {"style", Text(StyleText(entry.style))}}});
  return {Members{{"entries", {std::move(entries)}},
                  {"notes", Texts(explanation.found->notes)},
                  {"tried", Number(int64_t{explanation.found->tried})},
                  {"textproto", Text(explanation.found_text)}}};
}

}  // namespace

int64_t TotalBytes(const RankMemory& memory) {
  return memory.parameter_bytes + memory.buffer_bytes + memory.activation_bytes + memory.cache_bytes;
}

const RankMemory& Busiest(const std::vector<RankMemory>& memory) {
  return *std::max_element(memory.begin(), memory.end(), [](const RankMemory& left, const RankMemory& right) {
    return TotalBytes(left) < TotalBytes(right);
  });
}

absl::StatusOr<Explanation> Explained(const Submission& submission, CompiledModel compiled, const Bindings& bindings) {
  Explanation explanation{.name = submission.name};
  explanation.bindings = bindings;
  TP_ASSIGN_OR_RETURN(explanation.cost, CostOf(compiled.program, bindings, explanation.model));
  TP_ASSIGN_OR_RETURN(explanation.memory, MemoryOf(compiled, bindings, /*widened=*/false));
  explanation.warnings = compiled.warnings;
  TP_ASSIGN_OR_RETURN(const std::vector<std::string> warnings, PlanWarnings(submission, compiled, bindings));
  explanation.warnings.insert(explanation.warnings.end(), warnings.begin(), warnings.end());
  if (submission.compute_dtype == DType::kBF16) {
    TP_ASSIGN_OR_RETURN(const std::vector<RankMemory> widened, MemoryOf(compiled, bindings, true));
    explanation.warnings.push_back(absl::StrCat("a processor without a BF16 product holds weights of linear as F32: ",
                                                BytesText(widened[0].parameter_bytes), " of parameters on rank 0"));
  }
  explanation.compiled = std::move(compiled);
  return explanation;
}

JsonNode ExplainJson(const Explanation& explanation) {
  const CompiledModel& compiled = explanation.compiled;
  Members mesh, sizes;
  for (const MeshAxis& axis : compiled.mesh.axes()) mesh.emplace_back(axis.name, Number(int64_t{axis.size}));
  for (const auto& [symbol, value] : explanation.bindings) sizes.emplace_back(symbol, Number(value));
  List ranks, collectives;
  for (const RankMemory& memory : explanation.memory)
    ranks.push_back({Members{{"rank", Number(int64_t{memory.rank})},
                             {"parameter_bytes", Number(memory.parameter_bytes)},
                             {"buffer_bytes", Number(memory.buffer_bytes)},
                             {"activation_bytes", Number(memory.activation_bytes)},
                             {"cache_bytes", Number(memory.cache_bytes)}}});
  for (const CollectiveCost& cost : explanation.cost.collectives)
    collectives.push_back({Members{{"module", Text(cost.record.module)},
                                   {"op", Text(cost.record.op)},
                                   {"axis", Text(cost.record.axis)},
                                   {"bytes", Number(cost.record.bytes)},
                                   {"group_size", Number(int64_t{cost.group_size})},
                                   {"groups", Number(int64_t{cost.groups})},
                                   {"seconds", Number(cost.seconds)},
                                   {"reason", Text(cost.record.reason)}}});
  Members all = {{"name", Text(explanation.name)},
                 {"mesh", {std::move(mesh)}},
                 {"sizes", {std::move(sizes)}},
                 {"fingerprint", Text(compiled.fingerprint)},
                 {"ranks", {std::move(ranks)}},
                 {"modules", ModulesJson(explanation)},
                 {"collectives", {std::move(collectives)}},
                 {"warnings", Texts(explanation.warnings)},
                 {"totals", TotalsJson(explanation)}};
  if (explanation.found.has_value()) all.emplace_back("plan", FoundJson(explanation));
  return {std::move(all)};
}

std::string ExplainText(const Explanation& explanation, bool json) {
  if (json) return JsonText(ExplainJson(explanation));
  const CompiledModel& compiled = explanation.compiled;
  std::vector<std::string> sizes;
  for (const auto& [symbol, value] : explanation.bindings) sizes.push_back(absl::StrCat(symbol, "=", value));
  std::string text =
      absl::StrCat(explanation.name, " on ", compiled.mesh.rank_count() == 1 ? "one rank" : compiled.mesh.ToString(),
                   sizes.empty() ? "" : absl::StrCat(" with ", absl::StrJoin(sizes, ", ")), "\nfingerprint ",
                   compiled.fingerprint, "\n\n");
  if (explanation.found.has_value()) {
    absl::StrAppend(&text, "plan found, of ", explanation.found->tried, " tried:\n", explanation.found_text);
    for (const std::string& note : explanation.found->notes) absl::StrAppend(&text, "note: ", note, "\n");
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, ModulesTable(explanation), "\n", StatesTable(compiled), "\n",
                  CollectivesTable(explanation.cost.collectives), "\n", RanksTable(explanation.memory), "\n",
                  TotalsText(explanation));
  for (const std::string& warning : explanation.warnings) absl::StrAppend(&text, "warning: ", warning, "\n");
  return text;
}

std::vector<Difference> DifferencesOf(const Explanation& a, const Explanation& b) {
  std::vector<Difference> differences;
  auto add_texts = [&](const std::string& what, const std::string& name, const std::string& left,
                       const std::string& right) {
    if (left != right) differences.push_back({what, name, Text(left), Text(right), left, right});
  };
  add_texts("mesh", "", a.compiled.mesh.ToString(), b.compiled.mesh.ToString());
  // Names in the order of a, then those of b alone; "-" where the other has none.
  auto compare = [&](const std::string& what, const auto& left, const auto& right) {
    const std::map<std::string, std::string> in_left(left.begin(), left.end()), in_right(right.begin(), right.end());
    for (const auto& [name, text] : left) {
      auto other = in_right.find(name);
      add_texts(what, name, text, other == in_right.end() ? "-" : other->second);
    }
    for (const auto& [name, text] : right) {
      if (!in_left.contains(name)) add_texts(what, name, "-", text);
    }
  };
  using Named = std::vector<std::pair<std::string, std::string>>;
  auto styles = [](const CompiledModel& compiled) {
    Named named;
    for (const PlacedModule& module : compiled.modules) named.emplace_back(module.path, module.style);
    return named;
  };
  auto placements = [](const CompiledModel& compiled) {
    Named named;
    for (const PlacedState& placed : compiled.states)
      named.emplace_back(placed.state.path, PlacementsText(compiled.mesh, placed.placements));
    return named;
  };
  compare("style", styles(a.compiled), styles(b.compiled));
  compare("placements", placements(a.compiled), placements(b.compiled));
  const RankMemory &left = Busiest(a.memory), &right = Busiest(b.memory);
  auto add_bytes = [&](const std::string& name, int64_t in_a, int64_t in_b) {
    if (in_a != in_b)
      differences.push_back({"memory", name, Number(in_a), Number(in_b), BytesText(in_a), BytesText(in_b)});
  };
  add_bytes("parameter_bytes", left.parameter_bytes, right.parameter_bytes);
  add_bytes("buffer_bytes", left.buffer_bytes, right.buffer_bytes);
  add_bytes("activation_bytes", left.activation_bytes, right.activation_bytes);
  add_bytes("cache_bytes", left.cache_bytes, right.cache_bytes);
  add_bytes("all_bytes", TotalBytes(left), TotalBytes(right));
  std::map<std::string, OpTotal> by_a = TotalsByOp(a.cost.collectives), by_b = TotalsByOp(b.cost.collectives);
  for (const auto& [op, total] : by_b) by_a.emplace(op, OpTotal());
  for (const auto& [op, total] : by_a) {
    const OpTotal other = by_b[op];
    if (total.count != other.count || total.bytes != other.bytes)
      differences.push_back({"collectives", op, OpJson(total), OpJson(other), OpText(total), OpText(other)});
  }
  const Cost &cost_a = a.cost.total, &cost_b = b.cost.total;
  if (cost_a.flops != cost_b.flops)
    differences.push_back({"cost", "flops", Number(cost_a.flops), Number(cost_b.flops), FlopsText(cost_a.flops),
                           FlopsText(cost_b.flops)});
  if (cost_a.seconds != cost_b.seconds)
    differences.push_back({"cost", "seconds", Number(cost_a.seconds), Number(cost_b.seconds),
                           SecondsText(cost_a.seconds), SecondsText(cost_b.seconds)});
  return differences;
}

std::string AgainstText(const Explanation& a, const Explanation& b, bool json) {
  const std::vector<Difference> differences = DifferencesOf(a, b);
  if (json) {
    List list;
    for (const Difference& difference : differences)
      list.push_back({Members{
          {"what", Text(difference.what)}, {"name", Text(difference.name)}, {"a", difference.a}, {"b", difference.b}}});
    return JsonText({Members{{"a", ExplainJson(a)}, {"b", ExplainJson(b)}, {"differences", {std::move(list)}}}});
  }
  auto head = [](const char* letter, const Explanation& one) {
    return absl::StrCat(letter, ": ", one.name, " on ", one.compiled.mesh.ToString(), ", ", one.cost.collectives.size(),
                        " collectives of ", BytesText(CollectiveBytes(one.cost.collectives)), ", ",
                        BytesText(TotalBytes(Busiest(one.memory))), " on the busiest rank, ",
                        SecondsText(one.cost.total.seconds), " estimated\n");
  };
  std::string text = absl::StrCat(head("a", a), head("b", b), "\n");
  if (a.found.has_value()) absl::StrAppend(&text, "plan found for a:\n", a.found_text, "\n");
  if (differences.empty()) return absl::StrCat(text, "no difference\n");
  Rows rows = {{"WHAT", "NAME", "A", "B"}};
  for (const Difference& difference : differences) {
    auto shown = [](const std::string& value) { return value.empty() ? std::string("none") : value; };
    const std::string name = difference.what == "style" ? ModuleText(difference.name) : difference.name;
    rows.push_back({difference.what, name, shown(difference.a_text), shown(difference.b_text)});
  }
  return absl::StrCat(text, Table(rows));
}

}  // namespace tp::client
