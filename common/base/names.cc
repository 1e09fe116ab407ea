#include "common/base/names.h"

#include <algorithm>
#include <numeric>

namespace tp {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& candidates, size_t limit) {
  std::vector<std::pair<size_t, std::string>> ranked;
  ranked.reserve(candidates.size());
  constexpr size_t kMost = 256;  // the distance takes the product of both lengths
  name = name.substr(0, kMost);
  for (const std::string& candidate : candidates) {
    ranked.emplace_back(EditDistance(name, std::string_view(candidate).substr(0, kMost)), candidate);
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < ranked.size() && i < limit; ++i) nearest.push_back(std::move(ranked[i].second));
  return nearest;
}

std::string Cut(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;  // inside a UTF-8 character
  return std::string(text.substr(0, most)) + "...";
}

std::string JoinNames(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text = Cut(names[0]);
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 == names.size() ? " or " : ", ") + Cut(names[i]);
  return text;
}

}  // namespace tp
