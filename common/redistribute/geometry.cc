#include "common/redistribute/geometry.h"

#include <algorithm>

namespace tp {
namespace {

int64_t Length(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const Interval& interval : intervals) length += interval.end - interval.begin;
  return length;
}

int64_t CommonLength(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  int64_t length = 0;
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    length += std::max<int64_t>(0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return length;
}

}  // namespace

const std::vector<Interval>& Geometry::Owned(int dim, const Placements& placements, absl::Span<const int> coordinate) {
  std::vector<int64_t> key = {dim};
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& placement = placements[axis];
    if (!placement.Cuts(dim)) continue;
    key.insert(key.end(), {static_cast<int64_t>(axis), static_cast<int64_t>(placement.kind), placement.split_factor,
                           placement.groups, static_cast<int64_t>(placement.parts.size())});
    key.insert(key.end(), placement.parts.begin(), placement.parts.end());
  }
  const auto [found, is_new] = cuts_.try_emplace(std::move(key));
  Cut& cut = found->second;
  if (is_new) {
    size_t count = 1;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (!placements[axis].Cuts(dim)) continue;
      cut.axes.push_back(static_cast<int>(axis));
      count *= static_cast<size_t>(mesh_.axis_size(static_cast<int>(axis)));
    }
    cut.by_index.resize(count);
  }
  size_t index = 0;
  for (const int axis : cut.axes) {
    index = index * static_cast<size_t>(mesh_.axis_size(axis)) + static_cast<size_t>(coordinate[axis]);
  }
  std::vector<Interval>& owned = cut.by_index[index];
  if (owned.empty()) owned = OwnedIntervals(shape_[dim], dim, placements, mesh_, coordinate);
  return owned;
}

int64_t Geometry::LocalBytes(const Placements& placements, absl::Span<const int> coordinate) {
  Shape local;
  for (size_t d = 0; d < shape_.size(); ++d) {
    local.push_back(Length(Owned(static_cast<int>(d), placements, coordinate)));
  }
  return ElementCount(local) * item_size_;
}

int64_t Geometry::OverlapBytes(const Placements& a, absl::Span<const int> a_coordinate, const Placements& b,
                               absl::Span<const int> b_coordinate) {
  Shape common;
  for (size_t d = 0; d < shape_.size(); ++d) {
    const int dim = static_cast<int>(d);
    common.push_back(CommonLength(Owned(dim, a, a_coordinate), Owned(dim, b, b_coordinate)));
  }
  return ElementCount(common) * item_size_;
}

int64_t Geometry::MaxMissingBytes(const Placements& from, const Placements& to) {
  // Coordinates on axes that cut nothing make no difference.
  std::vector<int> axes;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis].IsSharding() || to[axis].IsSharding()) axes.push_back(static_cast<int>(axis));
  }
  int64_t most = 0;
  Coordinate coordinate(from.size(), 0);
  while (true) {
    most = std::max(most, LocalBytes(to, coordinate) - OverlapBytes(from, coordinate, to, coordinate));
    size_t i = axes.size();
    while (i > 0 && ++coordinate[axes[i - 1]] == mesh_.axis_size(axes[i - 1])) coordinate[axes[--i]] = 0;
    if (i == 0) return most;
  }
}

}  // namespace tp
