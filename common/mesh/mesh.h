// A device mesh: an n-D grid of ranks with named axes, row-major, last axis fastest. Which worker holds a rank is a
// table kept beside it (Foundation 5), so a mesh is a pure value. Example:
//   Mesh mesh = *Mesh::Create({{"dp", 2}, {"tp", 3}});
//   mesh.CoordinateOf(4) is [1, 1]; mesh.GroupAlong(1, 4) is [3, 4, 5].
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

struct MappedMesh;

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

  // The mesh of the axes `names`, in that order, through `rank`: the ranks that share its coordinates on the other
  // axes. INVALID_ARGUMENT for a name that is not in the mesh or stands twice, or a rank outside of it.
  absl::StatusOr<MappedMesh> Slice(absl::Span<const std::string> names, int rank) const;
  // All slices of these axes, each rank in exactly one, ascending by their first rank. Errors as for Slice.
  absl::StatusOr<std::vector<MappedMesh>> Submeshes(absl::Span<const std::string> names) const;
  // The mesh with the axes `names` made one, the first of them outermost; it stands where the leftmost stood. Without a
  // `name` the names joined by '_'. Ranks move where the axes are not adjacent and in order: MappedMesh::ranks says
  // where from. ALREADY_EXISTS for a name in use; INVALID_ARGUMENT for no axis, a repeated, unknown or bad name.
  absl::StatusOr<MappedMesh> Flatten(absl::Span<const std::string> names, std::string_view name = "") const;
  // The mesh with one axis cut into `parts`, the first outermost; every rank stays. INVALID_ARGUMENT where the product
  // of the sizes is not the axis's size; ALREADY_EXISTS for a name that another axis has.
  absl::StatusOr<Mesh> Unflatten(std::string_view name, std::vector<MeshAxis> parts) const;

  std::string ToString() const;  // "dp=2,tp=2"
  bool operator==(const Mesh& other) const { return axes_ == other.axes_; }

 private:
  // Indices of the named axes, in that order.
  absl::StatusOr<std::vector<int>> AxisIndices(absl::Span<const std::string> names) const;

  std::vector<MeshAxis> axes_;
  int rank_count_ = 1;
};

// A mesh made of ranks of another one. Example: dp=2,tp=2 flattened as (tp, dp) is tp_dp=4 with ranks 0, 2, 1, 3.
struct MappedMesh {
  Mesh mesh;
  std::vector<int> ranks;  // ranks[i] is the rank of the other mesh that is rank i here
  bool operator==(const MappedMesh&) const = default;
};

}  // namespace tp
