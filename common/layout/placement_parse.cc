// ParsePlacement and ParsePlacements: the text forms of placements read back.
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/layout/placement.h"

namespace tp {
namespace {

constexpr int64_t kMaxParts = 1 << 16;

// `text` cut at the commas that stand outside of brackets and parentheses, without spaces around.
std::vector<std::string> SplitOutside(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  for (std::string& part : parts) absl::StripAsciiWhitespace(&part);
  return parts;
}

std::optional<std::vector<int64_t>> ParseParts(const std::string& text) {
  std::vector<int64_t> parts;
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) {
    if (value < 1 || value > kMaxParts) return std::nullopt;
    parts.assign(static_cast<size_t>(value), 1);
    return parts;
  }
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  for (const std::string& part : SplitOutside(std::string_view(text).substr(1, text.size() - 2))) {
    if (!absl::SimpleAtoi(part, &value)) return std::nullopt;
    parts.push_back(value);
  }
  return parts;
}

std::optional<ReduceOp> ParseReduceOp(const std::string& name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (name == ReduceOpName(op)) return op;
  }
  return std::nullopt;
}

std::optional<Placement> TryParse(std::string_view text) {
  const std::string whole(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  if (whole == "R") return Placement::Replicate();
  const size_t open = whole.find('(');
  if (open == std::string::npos || whole.back() != ')') return std::nullopt;
  const std::string kind = whole.substr(0, open);
  const std::vector<std::string> arguments =
      SplitOutside(std::string_view(whole).substr(open + 1, whole.size() - open - 2));
  if (kind == "P") {
    if (arguments.size() != 1) return std::nullopt;
    const std::optional<ReduceOp> op = ParseReduceOp(arguments[0]);
    return op.has_value() ? std::optional<Placement>(Placement::Partial(*op)) : std::nullopt;
  }
  int dim = 0;
  if (!absl::SimpleAtoi(arguments[0], &dim)) return std::nullopt;
  if (kind == "S") return arguments.size() == 1 ? std::optional<Placement>(Placement::Shard(dim)) : std::nullopt;
  if (arguments.size() != 2) return std::nullopt;
  if (kind == "IS") {
    std::optional<std::vector<int64_t>> parts = ParseParts(arguments[1]);
    if (!parts.has_value()) return std::nullopt;
    return Placement::InterleavedShard(dim, *std::move(parts));
  }
  int count = 0;
  if (!absl::SimpleAtoi(arguments[1], &count)) return std::nullopt;
  if (kind == "SS") return Placement::StridedShard(dim, count);
  if (kind == "GS") return Placement::GroupShard(dim, count);
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Placement> ParsePlacement(std::string_view text) {
  std::optional<Placement> placement = TryParse(text);
  if (placement.has_value()) return *std::move(placement);
  return absl::InvalidArgumentError(
      absl::StrCat("bad placement \"", std::string(text.substr(0, 64)),
                   "\"; known forms: R, S(dim), P(sum|avg|min|max|product), SS(dim,factor), IS(dim,parts), "
                   "IS(dim,[a,b,...]), GS(dim,groups)"));
}

absl::StatusOr<std::vector<std::pair<std::string, Placement>>> ParseNamedPlacements(std::string_view text) {
  std::vector<std::pair<std::string, Placement>> named;
  const std::string whole(text);
  if (absl::StripAsciiWhitespace(whole).empty()) return named;
  for (const std::string& part : SplitOutside(whole)) {
    const std::vector<std::string> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    std::string name(absl::StripAsciiWhitespace(sides[0]));
    if (sides.size() != 2 || name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad placements \"", whole.substr(0, 128), "\"; expected AXIS=PLACEMENT[,AXIS=PLACEMENT...]"));
    }
    for (const auto& [known, unused] : named) {
      if (known == name) return absl::InvalidArgumentError(absl::StrCat("mesh axis ", name, " is placed twice"));
    }
    TP_ASSIGN_OR_RETURN(Placement placement, ParsePlacement(sides[1]));
    named.emplace_back(std::move(name), std::move(placement));
  }
  return named;
}

absl::StatusOr<Placements> ParsePlacements(const Mesh& mesh, std::string_view text, const Placement& absent) {
  TP_ASSIGN_OR_RETURN(auto named, ParseNamedPlacements(text));
  Placements placements(mesh.axes().size(), absent);
  for (auto& [name, placement] : named) {
    TP_ASSIGN_OR_RETURN(const int axis, mesh.AxisIndex(name));
    placements[axis] = std::move(placement);
  }
  return placements;
}

}  // namespace tp
