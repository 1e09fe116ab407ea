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

absl::InlinedVector<const Placement*, 8> Pointers(const Placements& placements) {
  absl::InlinedVector<const Placement*, 8> pointers;
  for (const Placement& placement : placements) pointers.push_back(&placement);
  return pointers;
}

// Moves to the next coordinate on `axes`, last fastest; false behind the last one.
bool Next(const Mesh& mesh, absl::Span<const int> axes, absl::Span<int> coordinate) {
  size_t i = axes.size();
  while (i > 0 && ++coordinate[axes[i - 1]] == mesh.axis_size(axes[i - 1])) coordinate[axes[--i]] = 0;
  return i > 0;
}

std::vector<int> Union(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> axes;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(axes));
  return axes;
}

}  // namespace

int Geometry::PlacementNumber(const Placement& placement) {
  for (size_t i = 0; i < known_.size(); ++i) {
    if (known_[i].kind == placement.kind && known_[i] == placement) return static_cast<int>(i);
  }
  known_.push_back(placement);
  return static_cast<int>(known_.size()) - 1;
}

int Geometry::CutNumber(int dim, absl::Span<const Placement* const> placements) {
  absl::InlinedVector<int, 6> key = {dim};
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis]->Cuts(dim)) continue;
    key.push_back(static_cast<int>(axis));
    key.push_back(PlacementNumber(*placements[axis]));
  }
  const auto [found, is_new] = cut_numbers_.try_emplace(std::move(key), static_cast<int>(cuts_.size()));
  if (!is_new) return found->second;
  auto cut = std::make_unique<Cut>();
  cut->dim = dim;
  size_t count = 1;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const bool cuts = placements[axis]->Cuts(dim);
    cut->placements.push_back(cuts ? *placements[axis] : Placement::Replicate());
    if (!cuts) continue;
    cut->axes.push_back(static_cast<int>(axis));
    count *= static_cast<size_t>(mesh_.axis_size(static_cast<int>(axis)));
  }
  cut->by_index.resize(count);
  // Not always the first one's: SS(0,3) on 2 ranks keeps 2 of 4 elements (chunks of 2, 2, 0), but 3 of 3.
  Coordinate coordinate(placements.size(), 0);
  do {
    cut->most = std::max(cut->most, Length(Owned(*cut, coordinate)));
  } while (Next(mesh_, cut->axes, absl::MakeSpan(coordinate)));
  cuts_.push_back(std::move(cut));
  return static_cast<int>(cuts_.size()) - 1;
}

Geometry::Cut& Geometry::CutOf(int dim, absl::Span<const Placement* const> placements) {
  return *cuts_[static_cast<size_t>(CutNumber(dim, placements))];
}

const std::vector<Interval>& Geometry::Owned(Cut& cut, absl::Span<const int> coordinate) {
  size_t index = 0;
  for (const int axis : cut.axes) {
    index = index * static_cast<size_t>(mesh_.axis_size(axis)) + static_cast<size_t>(coordinate[axis]);
  }
  std::vector<Interval>& owned = cut.by_index[index];
  if (owned.empty()) owned = OwnedIntervals(shape_[cut.dim], cut.dim, cut.placements, mesh_, coordinate);
  return owned;
}

const Geometry::Overlap& Geometry::OverlapOf(int from, int to) {
  std::unique_ptr<Overlap>& overlap = overlaps_[{from, to}];
  if (overlap != nullptr) return *overlap;
  overlap = std::make_unique<Overlap>();
  Cut& a = *cuts_[static_cast<size_t>(from)];
  Cut& b = *cuts_[static_cast<size_t>(to)];
  overlap->axes = Union(a.axes, b.axes);
  Coordinate coordinate(a.placements.size(), 0);
  do {
    const std::vector<Interval>& wanted = Owned(b, coordinate);
    overlap->to.push_back(Length(wanted));
    overlap->common.push_back(from == to ? overlap->to.back() : CommonLength(Owned(a, coordinate), wanted));
  } while (Next(mesh_, overlap->axes, absl::MakeSpan(coordinate)));
  return *overlap;
}

int64_t Geometry::LocalBytes(const Placements& placements, absl::Span<const int> coordinate) {
  const auto pointers = Pointers(placements);
  Shape local;
  for (size_t d = 0; d < shape_.size(); ++d) {
    local.push_back(Length(Owned(CutOf(static_cast<int>(d), pointers), coordinate)));
  }
  return ElementCount(local) * item_size_;
}

int64_t Geometry::OverlapBytes(const Placements& a, absl::Span<const int> a_coordinate, const Placements& b,
                               absl::Span<const int> b_coordinate) {
  const auto of_a = Pointers(a), of_b = Pointers(b);
  Shape common;
  for (size_t d = 0; d < shape_.size(); ++d) {
    const int dim = static_cast<int>(d);
    common.push_back(CommonLength(Owned(CutOf(dim, of_a), a_coordinate), Owned(CutOf(dim, of_b), b_coordinate)));
  }
  return ElementCount(common) * item_size_;
}

int64_t Geometry::MaxMissingBytes(const Placements& from, const Placements& to) {
  return MaxMissingBytes(CutsOf(Pointers(from)), CutsOf(Pointers(to)));
}

Geometry::Cuts Geometry::CutsOf(absl::Span<const Placement* const> placements) {
  Cuts cuts;
  for (size_t d = 0; d < shape_.size(); ++d) cuts.push_back(CutNumber(static_cast<int>(d), placements));
  return cuts;
}

int64_t Geometry::MaxLocalBytes(const Placements& placements) { return MaxLocalBytes(CutsOf(Pointers(placements))); }

int64_t Geometry::MaxLocalBytes(const Cuts& cuts) {
  // An axis cuts one dim, so that some rank holds the longest block of every dim.
  int64_t bytes = item_size_;
  for (const int cut : cuts) bytes *= cuts_[static_cast<size_t>(cut)]->most;
  return bytes;
}

int64_t Geometry::MaxMissingBytes(const Cuts& from, const Cuts& to) {
  // Only coordinates on axes that cut something make a difference.
  absl::InlinedVector<const Overlap*, 4> overlaps;
  std::vector<int> axes;
  int64_t same = item_size_;  // of the dims that both cut alike and not at all
  for (size_t d = 0; d < from.size(); ++d) {
    const Cut& cut = *cuts_[static_cast<size_t>(to[d])];
    if (from[d] == to[d] && cut.axes.empty()) {
      same *= shape_[d];
      continue;
    }
    overlaps.push_back(&OverlapOf(from[d], to[d]));
    if (axes.empty()) {
      axes = overlaps.back()->axes;
    } else if (axes != overlaps.back()->axes) {
      axes = Union(axes, overlaps.back()->axes);
    }
  }
  int64_t most = 0;
  if (overlaps.size() == 1) {
    for (size_t i = 0; i < overlaps[0]->to.size(); ++i) {
      most = std::max(most, overlaps[0]->to[i] - overlaps[0]->common[i]);
    }
    return most * same;
  }
  Coordinate coordinate(static_cast<size_t>(mesh_.axis_count()), 0);
  do {
    int64_t wanted = 1, common = 1;
    for (const Overlap* overlap : overlaps) {
      size_t index = 0;
      for (const int axis : overlap->axes) {
        index = index * static_cast<size_t>(mesh_.axis_size(axis)) + static_cast<size_t>(coordinate[axis]);
      }
      wanted *= overlap->to[index];
      common *= overlap->common[index];
    }
    most = std::max(most, wanted - common);
  } while (Next(mesh_, axes, absl::MakeSpan(coordinate)));
  return most * same;
}

}  // namespace tp
