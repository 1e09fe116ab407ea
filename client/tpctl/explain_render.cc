#include "client/tpctl/explain_render.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/tpctl/explain_parts.h"
#include "common/base/count.h"
#include "common/base/status.h"
#include "common/program/warnings.h"

namespace tp::client {
namespace {

using Members = JsonNode::Members;
using List = JsonNode::List;

JsonNode Texts(const std::vector<std::string>& texts) {
  List list;
  for (const std::string& text : texts) list.push_back(TextNode(text));
  return {std::move(list)};
}

JsonNode TotalsJson(const Explanation& explanation) {
  Members by_op;
  for (const auto& [op, total] : TotalsByOp(explanation.cost.collectives)) by_op.emplace_back(op, OpJson(total));
  const CostModel& model = explanation.model;
  return {Members{{"collectives", NumberNode(static_cast<int64_t>(explanation.cost.collectives.size()))},
                  {"bytes", NumberNode(CollectiveBytes(explanation.cost.collectives))},
                  {"by_op", {std::move(by_op)}},
                  {"flops", NumberNode(explanation.cost.total.flops)},
                  {"memory_traffic_bytes", NumberNode(explanation.cost.total.memory_bytes)},
                  {"seconds", NumberNode(explanation.cost.total.seconds)},
                  {"busiest_rank_bytes", NumberNode(TotalBytes(Busiest(explanation.memory)))},
                  {"cost_model",
                   {Members{{"flops_per_second", NumberNode(model.flops_per_second)},
                            {"memory_bytes_per_second", NumberNode(model.memory_bytes_per_second)},
                            {"link_bytes_per_second", NumberNode(model.link_bytes_per_second)},
                            {"hop_seconds", NumberNode(model.hop_seconds)}}}}}};
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
      for (int64_t size : placed.state.shape) shape.push_back(NumberNode(size));
      parameters.push_back(
          {Members{{"name", TextNode(placed.state.name)},
                   {"shape", {std::move(shape)}},
                   {"dtype", TextNode(DTypeName(placed.state.dtype))},
                   {"placements", TextNode(PlacementsText(explanation.compiled.mesh, placed.placements))},
                   {"buffer", {placed.state.buffer}}}});
    }
    const Cost cost = CostOfModule(explanation, module.path);
    modules.push_back({Members{{"path", TextNode(module.path)},
                               {"kind", TextNode(module.type_name)},
                               {"style", TextNode(module.style)},
                               {"parameters", {std::move(parameters)}},
                               {"inputs", Texts(module.inputs)},
                               {"outputs", Texts(module.outputs)},
                               {"flops", NumberNode(cost.flops)},
                               {"seconds", NumberNode(cost.seconds)}}});
  }
  return {std::move(modules)};
}

JsonNode FoundJson(const Explanation& explanation) {
  List entries;
  for (const PlanEntry& entry : explanation.found->plan.entries)
    entries.push_back({Members{{"pattern", TextNode(entry.pattern)}, {"style", TextNode(StyleText(entry.style))}}});
  return {Members{{"entries", {std::move(entries)}},
                  {"notes", Texts(explanation.found->notes)},
                  {"tried", NumberNode(int64_t{explanation.found->tried})},
                  {"textproto", TextNode(explanation.found_text)}}};
}

}  // namespace

JsonNode TextNode(std::string_view text) { return {std::string(text)}; }
JsonNode NumberNode(int64_t number) { return {number}; }
JsonNode NumberNode(double number) {
  if (std::floor(number) == number && std::abs(number) < 9e15) return {static_cast<int64_t>(number)};
  return {number};
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

std::string ModuleText(const std::string& path) { return path.empty() ? "(root)" : path; }

Cost CostOfModule(const Explanation& explanation, const std::string& path) {
  auto it = explanation.cost.modules.find(path);
  return it == explanation.cost.modules.end() ? Cost() : it->second;
}

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
  return {Members{{"count", NumberNode(total.count)}, {"bytes", NumberNode(total.bytes)}}};
}

int64_t CollectiveBytes(const std::vector<CollectiveCost>& collectives) {
  int64_t bytes = 0;
  for (const CollectiveCost& cost : collectives) bytes += cost.record.bytes;
  return bytes;
}

int64_t TotalBytes(const RankMemory& memory) {
  return memory.parameter_bytes + memory.buffer_bytes + memory.activation_bytes + memory.cache_bytes;
}

const RankMemory& Busiest(const std::vector<RankMemory>& memory) {
  return *std::max_element(memory.begin(), memory.end(), [](const RankMemory& left, const RankMemory& right) {
    return TotalBytes(left) < TotalBytes(right);
  });
}

absl::StatusOr<Explanation> Explained(const Submission& submission, CompiledModel compiled, const Bindings& bindings,
                                      int64_t memory_limit) {
  Explanation explanation{.name = submission.name};
  explanation.bindings = bindings;
  TP_ASSIGN_OR_RETURN(explanation.cost, CostOf(compiled.program, bindings, explanation.model));
  TP_ASSIGN_OR_RETURN(explanation.memory, MemoryOf(compiled, bindings, /*widened=*/false));
  explanation.warnings = compiled.warnings;
  TP_ASSIGN_OR_RETURN(const std::vector<std::string> warnings,
                      PlanWarnings(submission, compiled, bindings, memory_limit));
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
  for (const MeshAxis& axis : compiled.mesh.axes()) mesh.emplace_back(axis.name, NumberNode(int64_t{axis.size}));
  for (const auto& [symbol, value] : explanation.bindings) sizes.emplace_back(symbol, NumberNode(value));
  List ranks, collectives;
  for (const RankMemory& memory : explanation.memory)
    ranks.push_back({Members{{"rank", NumberNode(int64_t{memory.rank})},
                             {"parameter_bytes", NumberNode(memory.parameter_bytes)},
                             {"buffer_bytes", NumberNode(memory.buffer_bytes)},
                             {"activation_bytes", NumberNode(memory.activation_bytes)},
                             {"cache_bytes", NumberNode(memory.cache_bytes)}}});
  for (const CollectiveCost& cost : explanation.cost.collectives)
    collectives.push_back({Members{{"module", TextNode(cost.record.module)},
                                   {"op", TextNode(cost.record.op)},
                                   {"axis", TextNode(cost.record.axis)},
                                   {"bytes", NumberNode(cost.record.bytes)},
                                   {"group_size", NumberNode(int64_t{cost.group_size})},
                                   {"groups", NumberNode(int64_t{cost.groups})},
                                   {"seconds", NumberNode(cost.seconds)},
                                   {"reason", TextNode(cost.record.reason)}}});
  Members all = {{"name", TextNode(explanation.name)},
                 {"mesh", {std::move(mesh)}},
                 {"sizes", {std::move(sizes)}},
                 {"fingerprint", TextNode(compiled.fingerprint)},
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

}  // namespace tp::client
