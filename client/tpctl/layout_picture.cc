#include "client/tpctl/layout_picture.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/layout/spec.h"

namespace tp::client {
namespace {

constexpr int64_t kMaxRows = 16, kMaxColumns = 24;
constexpr size_t kMaxWidth = 120;
constexpr int kMaxRanks = 4096;  // a picture of more tells nothing
constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// {0, 1, 2, 5} -> "0-2,5".
std::string RanksText(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i == 1   ? absl::StrCat(ranks[i])
                    : end - i == 2 ? absl::StrCat(ranks[i], ",", ranks[i] + 1)
                                   : absl::StrCat(ranks[i], "-", ranks[end - 1]));
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

// For each of `cells` positions spread over a dim of size n: does the rank hold it?
std::vector<bool> Held(int64_t n, int dim, int64_t cells, const TensorInfo& tensor, const Coordinate& coordinate) {
  const std::vector<Interval> owned = OwnedIntervals(n, dim, tensor.placements, tensor.mesh, coordinate);
  std::vector<bool> held(static_cast<size_t>(cells));
  for (int64_t cell = 0; cell < cells; ++cell) {
    const int64_t index = n / cells * cell + n % cells * cell / cells;
    for (const Interval& interval : owned) held[cell] = held[cell] || (interval.begin <= index && index < interval.end);
  }
  return held;
}

using Grid = std::vector<std::vector<std::string>>;  // a label for each cell

std::string Draw(const Grid& grid) {
  const size_t rows = grid.size(), columns = grid[0].size();
  size_t width = 0;
  for (const auto& row : grid)
    for (const std::string& label : row) width = std::max(width, label.size());
  // Labels on both sides of a line; outside is a label of its own.
  const auto at = [&](size_t row, size_t column) {
    return row < rows && column < columns ? grid[row][column] : std::string("\n");
  };
  std::string text;
  for (size_t row = 0; row <= rows; ++row) {
    std::string line;
    bool any = false;
    for (size_t column = 0; column <= columns; ++column) {
      const std::string above = at(row - 1, column), below = at(row, column);
      const std::string above_left = at(row - 1, column - 1), below_left = at(row, column - 1);
      const bool flat = above != below, flat_left = above_left != below_left;
      const bool upright = above != above_left || below != below_left;
      line += (flat || flat_left) && upright ? '+' : flat && flat_left ? '-' : upright ? '|' : ' ';
      if (column == columns) break;
      line += std::string(width + 2, flat ? '-' : ' ');
      any = any || flat;
    }
    if (any) text += line + "\n";
    if (row == rows) break;
    line.clear();
    for (size_t column = 0; column <= columns; ++column) {
      line += at(row, column) != at(row, column - 1) ? '|' : ' ';
      if (column < columns) line += " " + grid[row][column] + std::string(width + 1 - grid[row][column].size(), ' ');
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string LayoutPicture(const TensorInfo& tensor) {
  const size_t dims = tensor.shape.size();
  if ((dims != 1 && dims != 2) || ElementCount(tensor.shape) == 0 || tensor.mesh.rank_count() > kMaxRanks) return "";
  const int64_t n0 = dims == 2 ? tensor.shape[0] : 1, n1 = tensor.shape.back();
  const int64_t rows = std::min(n0, kMaxRows), columns = std::min(n1, kMaxColumns);
  std::vector<std::vector<std::vector<int>>> holders(rows, std::vector<std::vector<int>>(columns));
  for (int rank = 0; rank < tensor.mesh.rank_count(); ++rank) {
    const Coordinate coordinate = tensor.mesh.CoordinateOf(rank);
    const std::vector<bool> down = dims == 2 ? Held(n0, 0, rows, tensor, coordinate) : std::vector<bool>(1, true);
    const std::vector<bool> across = Held(n1, static_cast<int>(dims) - 1, columns, tensor, coordinate);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        if (down[row] && across[column]) holders[row][column].push_back(rank);
  }
  std::map<std::vector<int>, size_t> regions;  // in the order of their first cell
  std::vector<std::string> labels;
  size_t width = 0;
  for (const auto& row : holders)
    for (const auto& ranks : row)
      if (regions.emplace(ranks, regions.size()).second) {
        labels.push_back(RanksText(ranks));
        width = std::max(width, labels.back().size());
      }
  std::string legend;
  if (static_cast<size_t>(columns) * (width + 3) > kMaxWidth && labels.size() < sizeof kLetters) {
    for (size_t i = 0; i < labels.size(); ++i) {
      absl::StrAppend(&legend, std::string(1, kLetters[i]), ": rank",
                      labels[i].find_first_of(",-") == labels[i].npos ? " " : "s ", labels[i], "\n");
      labels[i] = std::string(1, kLetters[i]);
    }
  }
  Grid grid(rows);
  for (int64_t row = 0; row < rows; ++row)
    for (const auto& ranks : holders[row]) grid[row].push_back(labels[regions.at(ranks)]);
  std::string text = Draw(grid) + legend;
  if (rows < n0 || columns < n1)
    absl::StrAppend(&text, "a cell stands for about ", dims == 2 ? absl::StrCat((n0 + rows - 1) / rows, "x") : "",
                    (n1 + columns - 1) / columns, " elements and names the ranks of the first\n");
  return text;
}

}  // namespace tp::client
