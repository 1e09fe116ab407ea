#include "client/tpctl/path_groups.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tp::client {
namespace {

constexpr size_t kRunsShown = 8;

bool IsNumber(const std::string& part) {
  return !part.empty() && part.size() <= 9 && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
}

// "{0-2,5}"; the number alone where there is one.
std::string NumbersText(const std::set<int64_t>& numbers) {
  if (numbers.size() == 1) return absl::StrCat(*numbers.begin());
  std::vector<std::string> runs;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const int64_t begin = *it;
    int64_t end = begin;
    while (++it != numbers.end() && *it == end + 1) ++end;
    runs.push_back(end == begin ? absl::StrCat(begin) : absl::StrCat(begin, "-", end));
  }
  if (runs.size() > kRunsShown) runs = {runs[0], runs[1], runs[2], "..", runs.back()};
  return absl::StrCat("{", absl::StrJoin(runs, ","), "}");
}

std::vector<std::string> PartsOf(const std::string& path) {
  if (path.empty()) return {};
  return absl::StrSplit(path, '.');
}

int64_t NumberOf(const std::string& part) {
  int64_t number = 0;
  return absl::SimpleAtoi(part, &number) ? number : 0;
}

PathGroup GroupOf(const std::vector<std::string>& parts, size_t first, size_t count) {
  return {absl::StrJoin(parts, "."), parts.empty() ? "" : parts.back(), static_cast<int>(parts.size()), first,
          static_cast<int>(count)};
}

}  // namespace

std::vector<PathGroup> GroupRows(const std::vector<PathRow>& rows) {
  std::vector<std::vector<size_t>> groups;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> parts = PartsOf(rows[i].path);
    for (std::string& part : parts) {
      if (IsNumber(part)) part = "*";
    }
    auto [place, added] = known.emplace(absl::StrCat(absl::StrJoin(parts, "."), "\n", rows[i].text), groups.size());
    if (added) groups.emplace_back();
    groups[place->second].push_back(i);
  }
  std::vector<PathGroup> found;
  for (const std::vector<size_t>& group : groups) {
    std::vector<std::string> parts = PartsOf(rows[group[0]].path);
    std::vector<std::set<int64_t>> numbers(parts.size());
    std::map<std::string, std::vector<size_t>> distinct;
    for (size_t row : group) {
      distinct[rows[row].path].push_back(row);
      const std::vector<std::string> own = PartsOf(rows[row].path);
      for (size_t part = 0; part < own.size(); ++part) {
        if (IsNumber(own[part])) numbers[part].insert(NumberOf(own[part]));
      }
    }
    size_t product = 1;
    for (const auto& of_part : numbers) product *= std::max<size_t>(1, of_part.size());
    if (product == distinct.size()) {
      for (size_t part = 0; part < parts.size(); ++part) {
        if (!numbers[part].empty()) parts[part] = NumbersText(numbers[part]);
      }
      found.push_back(GroupOf(parts, group[0], group.size()));
    } else {  // the numbers of two parts do not make a full table
      for (const auto& [path, own] : distinct) found.push_back(GroupOf(PartsOf(path), own[0], own.size()));
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return found;
}

namespace {

class Tree {
 public:
  explicit Tree(const std::vector<PathRow>& rows) : rows_(rows), children_(rows.size()), kinds_(rows.size()) {
    std::map<std::string, size_t> index;
    for (size_t i = 0; i < rows.size(); ++i) {
      index.emplace(rows[i].path, i);
      std::string parent = rows[i].path;
      bool found = false;
      while (!parent.empty() && !found) {
        const size_t dot = parent.rfind('.');
        parent.resize(dot == std::string::npos ? 0 : dot);
        auto place = index.find(parent);
        found = place != index.end() && place->second != i;
        if (found) children_[place->second].push_back(i);
      }
      if (!found) roots_.push_back(i);
    }
    std::map<std::string, size_t> kinds;
    for (size_t i = rows.size(); i-- > 0;) {  // children come after their parents
      std::string text = rows[i].text;
      for (size_t child : children_[i]) {
        absl::StrAppend(&text, "\n", rows[child].path.substr(rows[i].path.size()), " ", kinds_[child]);
      }
      kinds_[i] = kinds.emplace(std::move(text), kinds.size()).first->second;
    }
  }

  std::vector<PathGroup> Groups() {
    Emit(roots_, {}, 0, 1);
    return std::move(groups_);
  }

 private:
  // `parts`: the text of the path above, which has `above` parts in the rows; `times`: how many it stands for.
  void Emit(const std::vector<size_t>& rows, const std::vector<std::string>& parts, size_t above, size_t times) {
    struct Alike {
      size_t first = 0;
      std::set<int64_t> numbers = {};
    };
    std::vector<Alike> alike;
    std::map<std::pair<size_t, size_t>, size_t> known;  // kind and depth
    for (size_t row : rows) {
      const std::vector<std::string> own = PartsOf(rows_[row].path);
      const bool number = own.size() == above + 1 && IsNumber(own.back());
      if (!number) {
        alike.push_back({row});
        continue;
      }
      auto [place, added] = known.emplace(std::make_pair(kinds_[row], own.size()), alike.size());
      if (added) alike.push_back({row});
      alike[place->second].numbers.insert(NumberOf(own.back()));
    }
    for (const Alike& one : alike) {
      const std::vector<std::string> own = PartsOf(rows_[one.first].path);
      std::vector<std::string> path = parts;
      for (size_t part = above; part < own.size(); ++part) path.push_back(own[part]);
      if (!one.numbers.empty()) path.back() = NumbersText(one.numbers);
      const size_t all = times * std::max<size_t>(1, one.numbers.size());
      groups_.push_back(GroupOf(path, one.first, all));
      Emit(children_[one.first], path, own.size(), all);
    }
  }

  const std::vector<PathRow>& rows_;
  std::vector<size_t> roots_;
  std::vector<std::vector<size_t>> children_;
  std::vector<size_t> kinds_;  // equal for rows that are alike with all below
  std::vector<PathGroup> groups_;
};

}  // namespace

std::vector<PathGroup> GroupTrees(const std::vector<PathRow>& rows) { return Tree(rows).Groups(); }

}  // namespace tp::client
