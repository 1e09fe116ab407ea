// The difference between two explanations.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/tpctl/explain_parts.h"
#include "client/tpctl/path_groups.h"
#include "client/tpctl/short_style.h"
#include "common/base/count.h"

namespace tp::client {
namespace {

using Members = JsonNode::Members;
using List = JsonNode::List;
using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kCellWidth = 56;

std::string OpText(const OpTotal& total, bool exact) {
  if (total.count == 0) return "none";
  return absl::StrCat(total.count, ", ", exact ? absl::StrCat(total.bytes, " bytes") : BytesText(total.bytes));
}

// Texts of two numbers, all of their digits where the short forms are alike.
std::pair<std::string, std::string> Texts(double a, double b, const std::string& short_a, const std::string& short_b,
                                          const char* unit) {
  if (short_a != short_b) return {short_a, short_b};
  return {absl::StrFormat("%.12g%s", a, unit), absl::StrFormat("%.12g%s", b, unit)};
}

// A difference's name in the words of the tables.
std::string NameText(const Difference& difference) {
  static const auto* words = new std::map<std::string, std::string>{
      {"parameter_bytes", "parameters"},       {"buffer_bytes", "buffers"}, {"activation_bytes", "activations"},
      {"cache_bytes", "cache (one sequence)"}, {"all_bytes", "all"},        {"seconds", "time"}};
  if (difference.what == "style") return ModuleText(difference.name);
  if (difference.what != "memory" && difference.what != "cost") return difference.name;
  auto word = words->find(difference.name);
  return word == words->end() ? difference.name : word->second;
}

std::string WhatText(const Difference& difference) {
  if (difference.what == "memory") return "busiest rank";
  return difference.what == "cost" ? "one forward" : difference.what;
}

std::string Verdict(const Explanation& a, const Explanation& b, bool differ) {
  if (a.compiled.fingerprint == b.compiled.fingerprint) {
    const std::string equal = absl::StrCat("the programs are equal (fingerprint ", a.compiled.fingerprint, ")");
    return absl::StrCat(equal, differ ? "; what differs is how they came to be:\n" : "\n");
  }
  return differ ? "" : "no difference in styles, placements, collectives, memory and cost; the fingerprints differ\n";
}

std::string DifferencesTable(const std::vector<Difference>& differences) {
  Rows cells;
  std::vector<PathRow> all;
  for (const Difference& difference : differences) {
    auto shown = [&](const std::string& value) {
      if (value.empty()) return std::string("none");
      return difference.what == "style" ? ShortStyle(value) : value;
    };
    cells.push_back({WhatText(difference), "", absl::StrJoin(Wrapped(shown(difference.a_text), kCellWidth), "\n"),
                     shown(difference.b_text)});
    // Two styles can be alike in short.
    all.push_back({NameText(difference), absl::StrJoin({cells.back()[0], difference.a_text, difference.b_text}, "\n")});
  }
  Rows rows = {{"WHAT", "NAME", "A", "B"}};
  for (const PathGroup& group : GroupRows(all)) {
    rows.push_back(cells[group.first]);
    rows.back()[1] = group.path;
  }
  return Table(rows, kTableWidth);
}

}  // namespace

std::vector<Difference> DifferencesOf(const Explanation& a, const Explanation& b) {
  std::vector<Difference> differences;
  auto add_texts = [&](const std::string& what, const std::string& name, const std::string& left,
                       const std::string& right) {
    if (left != right) differences.push_back({what, name, TextNode(left), TextNode(right), left, right});
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
    if (in_a == in_b) return;
    const auto [text_a, text_b] =
        Texts(static_cast<double>(in_a), static_cast<double>(in_b), BytesText(in_a), BytesText(in_b), " bytes");
    differences.push_back({"memory", name, NumberNode(in_a), NumberNode(in_b), text_a, text_b});
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
    if (total.count == other.count && total.bytes == other.bytes) continue;
    const bool exact = OpText(total, false) == OpText(other, false);
    differences.push_back(
        {"collectives", op, OpJson(total), OpJson(other), OpText(total, exact), OpText(other, exact)});
  }
  auto add_cost = [&](const char* name, double in_a, double in_b, std::string (*text)(double), const char* unit) {
    if (in_a == in_b) return;
    const auto [text_a, text_b] = Texts(in_a, in_b, text(in_a), text(in_b), unit);
    differences.push_back({"cost", name, NumberNode(in_a), NumberNode(in_b), text_a, text_b});
  };
  add_cost("flops", a.cost.total.flops, b.cost.total.flops, FlopsText, "");
  add_cost("seconds", a.cost.total.seconds, b.cost.total.seconds, SecondsText, " s");
  return differences;
}

std::string AgainstText(const Explanation& a, const Explanation& b, bool json) {
  const std::vector<Difference> differences = DifferencesOf(a, b);
  if (json) {
    List list;
    for (const Difference& difference : differences)
      list.push_back({Members{{"what", TextNode(difference.what)},
                              {"name", TextNode(difference.name)},
                              {"a", difference.a},
                              {"b", difference.b}}});
    return JsonText({Members{{"a", ExplainJson(a)},
                             {"b", ExplainJson(b)},
                             {"programs_equal", {a.compiled.fingerprint == b.compiled.fingerprint}},
                             {"differences", {std::move(list)}}}});
  }
  auto head = [](const char* letter, const Explanation& one) {
    return absl::StrCat(letter, ": ", one.name, " on ", one.compiled.mesh.ToString(), ", ",
                        CountText(one.cost.collectives.size(), "collective"), " of ",
                        BytesText(CollectiveBytes(one.cost.collectives)), ", ",
                        BytesText(TotalBytes(Busiest(one.memory))), " on the busiest rank, ",
                        SecondsText(one.cost.total.seconds), " estimated\n");
  };
  std::string text = absl::StrCat(head("a", a), head("b", b), "\n");
  if (a.found.has_value()) absl::StrAppend(&text, "plan found for a:\n", a.found_text, "\n");
  absl::StrAppend(&text, Verdict(a, b, !differences.empty()));
  return differences.empty() ? text : text + DifferencesTable(differences);
}

}  // namespace tp::client
