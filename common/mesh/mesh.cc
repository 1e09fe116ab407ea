#include "common/mesh/mesh.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace tp {
namespace {

constexpr int kMaxRanks = 1 << 20;

bool IsAxisName(const std::string& name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<Mesh> Mesh::Create(std::vector<MeshAxis> axes) {
  Mesh mesh;
  for (size_t i = 0; i < axes.size(); ++i) {
    const MeshAxis& axis = axes[i];
    if (!IsAxisName(axis.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad mesh axis name \"", axis.name.substr(0, 64), "\"; expected [A-Za-z_][A-Za-z0-9_]*"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[j].name == axis.name) {
        return absl::InvalidArgumentError(absl::StrCat("mesh axis ", axis.name, " appears twice"));
      }
    }
    if (axis.size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("size of mesh axis ", axis.name, " is ", axis.size, "; expected at least 1"));
    }
    if (axis.size > kMaxRanks / mesh.rank_count_) {
      return absl::InvalidArgumentError(absl::StrCat("mesh has more than ", kMaxRanks, " ranks"));
    }
    mesh.rank_count_ *= axis.size;
  }
  mesh.axes_ = std::move(axes);
  return mesh;
}

absl::StatusOr<Mesh> Mesh::Parse(std::string_view text) {
  const std::string whole(text);
  if (absl::StripAsciiWhitespace(whole).empty()) return Mesh();
  std::vector<MeshAxis> axes;
  for (const absl::string_view part : absl::StrSplit(whole, ',')) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, '=');
    MeshAxis axis;
    if (sides.size() != 2 || !absl::SimpleAtoi(sides[1], &axis.size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad mesh \"", whole.substr(0, 128), "\"; expected NAME=SIZE[,NAME=SIZE...] as in dp=2,tp=2"));
    }
    axis.name = std::string(absl::StripAsciiWhitespace(sides[0]));
    axes.push_back(std::move(axis));
  }
  absl::StatusOr<Mesh> mesh = Create(std::move(axes));
  if (mesh.ok()) return mesh;
  return absl::InvalidArgumentError(absl::StrCat("bad mesh \"", whole.substr(0, 128), "\": ", mesh.status().message()));
}

absl::StatusOr<int> Mesh::AxisIndex(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return static_cast<int>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("axes not in mesh: {", std::string(name.substr(0, 64)),
                                                 "}; the mesh is ", axes_.empty() ? "without axes" : ToString()));
}

Coordinate Mesh::CoordinateOf(int rank) const {
  TP_CHECK(rank >= 0 && rank < rank_count_);
  Coordinate coordinate(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    coordinate[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return coordinate;
}

int Mesh::RankAt(absl::Span<const int> coordinate) const {
  TP_CHECK(coordinate.size() == axes_.size());
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    TP_CHECK(coordinate[i] >= 0 && coordinate[i] < axes_[i].size);
    rank = rank * axes_[i].size + coordinate[i];
  }
  return rank;
}

std::vector<int> Mesh::GroupAlong(int axis, int rank) const { return GroupAlong(absl::MakeConstSpan(&axis, 1), rank); }

std::vector<int> Mesh::GroupAlong(absl::Span<const int> axes, int rank) const {
  Coordinate coordinate = CoordinateOf(rank);
  for (const int axis : axes) coordinate[axis] = 0;
  std::vector<int> group;
  while (true) {
    group.push_back(RankAt(coordinate));
    size_t i = axes.size();
    while (i > 0 && ++coordinate[axes[i - 1]] == axes_[axes[i - 1]].size) coordinate[axes[--i]] = 0;
    if (i == 0) return group;
  }
}

std::string Mesh::ToString() const {
  return absl::StrJoin(axes_, ",",
                       [](std::string* out, const MeshAxis& axis) { absl::StrAppend(out, axis.name, "=", axis.size); });
}

}  // namespace tp
