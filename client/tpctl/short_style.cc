#include "client/tpctl/short_style.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/model.h"

namespace tp::client {
namespace {

// At `separator` outside of brackets and quotes.
std::vector<std::string> SplitOutside(const std::string& text, const std::string& separator) {
  std::vector<std::string> pieces = {""};
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'') quoted = !quoted;
    if (!quoted && (c == '(' || c == '{' || c == '[')) ++depth;
    if (!quoted && (c == ')' || c == '}' || c == ']')) --depth;
    if (!quoted && depth == 0 && text.compare(i, separator.size(), separator) == 0) {
      pieces.emplace_back();
      i += separator.size() - 1;
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

struct Call {
  std::string name;
  std::vector<std::string> arguments;
};
Call Parse(const std::string& text) {
  const size_t open = text.find('(');
  if (open == std::string::npos || text.back() != ')') return {text, {}};
  return {text.substr(0, open), SplitOutside(text.substr(open + 1, text.size() - open - 2), ", ")};
}

const std::map<std::string, std::set<std::string>>& Defaults() {
  static const auto* defaults = [] {
    auto* map = new std::map<std::string, std::set<std::string>>;
    for (const Style& style :
         {Style(ColwiseParallel{}), Style(RowwiseParallel{}), Style(SequenceParallel{}), Style(PrepareModuleInput{}),
          Style(PrepareModuleOutput{}), Style(PrepareModuleInputOutput{}), Style(ShardingConfig{})}) {
      const Call call = Parse(StyleText(style));
      (*map)[call.name].insert(call.arguments.begin(), call.arguments.end());
    }
    return map;
  }();
  return *defaults;
}

// Shard(dim=1) -> S(1), Partial(sum) -> P(sum), Replicate() -> R; a tuple of one is that one.
std::string ShortLayouts(const std::string& text) {
  std::string shorter;
  for (size_t i = 0; i < text.size();) {
    const bool starts = i == 0 || (!absl::ascii_isalnum(text[i - 1]) && text[i - 1] != '_');
    bool replaced = false;
    for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"Replicate()", "R"},
                                   {"Shard(dim=", "S("},
                                   {"Partial(", "P("}}) {
      if (!starts || replaced || text.compare(i, from.size(), from) != 0) continue;
      shorter += to;
      i += from.size();
      replaced = true;
    }
    if (!replaced) shorter += text[i++];
  }
  const size_t equals = shorter.find('=');
  if (equals == std::string::npos) return shorter;
  const std::string value = shorter.substr(equals + 1);
  if (value.size() > 3 && value.front() == '(' && value.compare(value.size() - 2, 2, ",)") == 0 &&
      SplitOutside(value.substr(1, value.size() - 3), ", ").size() == 1) {
    shorter = absl::StrCat(shorter.substr(0, equals + 1), value.substr(1, value.size() - 3));
  }
  return shorter;
}

}  // namespace

std::string ShortStyle(const std::string& text) {
  std::vector<std::string> styles;
  for (const std::string& style : SplitOutside(text, "; ")) {
    const Call call = Parse(style);
    const auto defaults = Defaults().find(call.name);
    std::vector<std::string> arguments;
    for (const std::string& argument : call.arguments) {
      if (defaults != Defaults().end() && defaults->second.contains(argument)) continue;
      arguments.push_back(ShortLayouts(argument));
    }
    styles.push_back(arguments.empty() ? call.name : absl::StrCat(call.name, "(", absl::StrJoin(arguments, ", "), ")"));
  }
  return absl::StrJoin(styles, "; ");
}

}  // namespace tp::client
