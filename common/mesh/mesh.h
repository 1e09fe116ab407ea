// A device mesh: an n-D grid of ranks with named axes, row-major, last axis fastest. Which worker holds a rank is a
// table kept beside it (Foundation 5), so a mesh is a pure value. Example:
//   Mesh mesh = *Mesh::Create({{"dp", 2}, {"tp", 3}});  mesh.CoordinateOf(4) is [1, 1]; mesh.GroupAlong(1, 4) is [3, 4,
//   5].
// Immutable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tp {

struct MeshAxis {
  std::string name;
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

using Coordinate = std::vector<int>;  // one index for each axis

class Mesh {
 public:
  Mesh() = default;  // no axis, one rank
  // INVALID_ARGUMENT for a bad or repeated name, a size below 1, or more than 2^20 ranks.
  static absl::StatusOr<Mesh> Create(std::vector<MeshAxis> axes);
  // "tp=4" or "dp=2,tp=2". INVALID_ARGUMENT with the text otherwise.
  static absl::StatusOr<Mesh> Parse(std::string_view text);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int axis_count() const { return static_cast<int>(axes_.size()); }
  int axis_size(int axis) const { return axes_[axis].size; }
  int rank_count() const { return rank_count_; }
  // Index of a named axis. INVALID_ARGUMENT "axes not in mesh: {name}" listing the mesh's axes.
  absl::StatusOr<int> AxisIndex(std::string_view name) const;
  Coordinate CoordinateOf(int rank) const;
  int RankAt(absl::Span<const int> coordinate) const;
  // Ranks along one axis through `rank`, in axis order; with several axes, row-major in the given order of axes.
  std::vector<int> GroupAlong(int axis, int rank) const;
  std::vector<int> GroupAlong(absl::Span<const int> axes, int rank) const;
  std::string ToString() const;  // "dp=2,tp=2"
  bool operator==(const Mesh& other) const { return axes_ == other.axes_; }

 private:
  std::vector<MeshAxis> axes_;
  int rank_count_ = 1;
};

}  // namespace tp
