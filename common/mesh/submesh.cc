// Meshes made of other meshes: slice, submeshes, flatten, unflatten.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/mesh/mesh.h"

namespace tp {

absl::StatusOr<std::vector<int>> Mesh::AxisIndices(absl::Span<const std::string> names) const {
  std::vector<int> indices;
  for (const std::string& name : names) {
    TP_ASSIGN_OR_RETURN(const int axis, AxisIndex(name));
    if (std::find(indices.begin(), indices.end(), axis) != indices.end()) {
      return absl::InvalidArgumentError(absl::StrCat("mesh axis ", name, " is named twice"));
    }
    indices.push_back(axis);
  }
  return indices;
}

absl::StatusOr<MappedMesh> Mesh::Slice(absl::Span<const std::string> names, int rank) const {
  if (rank < 0 || rank >= rank_count_) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in a mesh of ", rank_count_, " ranks"));
  }
  TP_ASSIGN_OR_RETURN(const std::vector<int> indices, AxisIndices(names));
  std::vector<MeshAxis> axes;
  for (const int axis : indices) axes.push_back(axes_[static_cast<size_t>(axis)]);
  MappedMesh sliced;
  TP_ASSIGN_OR_RETURN(sliced.mesh, Create(std::move(axes)));
  sliced.ranks = GroupAlong(absl::MakeConstSpan(indices), rank);
  return sliced;
}

absl::StatusOr<std::vector<MappedMesh>> Mesh::Submeshes(absl::Span<const std::string> names) const {
  TP_ASSIGN_OR_RETURN(const std::vector<int> indices, AxisIndices(names));
  std::vector<MappedMesh> all;
  for (int rank = 0; rank < rank_count_; ++rank) {
    const Coordinate at = CoordinateOf(rank);
    if (std::any_of(indices.begin(), indices.end(), [&](int axis) { return at[static_cast<size_t>(axis)] != 0; })) {
      continue;
    }
    TP_ASSIGN_OR_RETURN(MappedMesh sliced, Slice(names, rank));
    all.push_back(std::move(sliced));
  }
  return all;
}

absl::StatusOr<MappedMesh> Mesh::Flatten(absl::Span<const std::string> names, std::string_view name) const {
  TP_ASSIGN_OR_RETURN(const std::vector<int> indices, AxisIndices(names));
  if (indices.empty()) return absl::InvalidArgumentError("flatten needs at least one mesh axis");
  MeshAxis flat{name.empty() ? absl::StrJoin(names, "_") : std::string(name), 1};
  for (const int axis : indices) flat.size *= axis_size(axis);
  for (const MeshAxis& axis : axes_) {
    if (axis.name == flat.name && !(names.size() == 1 && names[0] == flat.name)) {
      return absl::AlreadyExistsError(absl::StrCat("mesh axis ", flat.name, " exists in ", ToString()));
    }
  }
  // The axes of the new mesh as lists of axes of this one, outermost first.
  const int leftmost = *std::min_element(indices.begin(), indices.end());
  std::vector<MeshAxis> axes;
  std::vector<int> order;
  for (int axis = 0; axis < axis_count(); ++axis) {
    if (axis == leftmost) {
      axes.push_back(flat);
      order.insert(order.end(), indices.begin(), indices.end());
    } else if (std::find(indices.begin(), indices.end(), axis) == indices.end()) {
      axes.push_back(axes_[static_cast<size_t>(axis)]);
      order.push_back(axis);
    }
  }
  MappedMesh flattened;
  TP_ASSIGN_OR_RETURN(flattened.mesh, Create(std::move(axes)));
  flattened.ranks = GroupAlong(absl::MakeConstSpan(order), 0);
  return flattened;
}

absl::StatusOr<Mesh> Mesh::Unflatten(std::string_view name, std::vector<MeshAxis> parts) const {
  TP_ASSIGN_OR_RETURN(const int axis, AxisIndex(name));
  // Checks names and sizes, and that the product does not overflow.
  TP_ASSIGN_OR_RETURN(const Mesh inner, Create(parts));
  if (inner.rank_count() != axis_size(axis)) {
    return absl::InvalidArgumentError(absl::StrCat("mesh axis ", std::string(name), " has ", axis_size(axis),
                                                   " ranks; ", parts.empty() ? "no axes" : inner.ToString(), " has ",
                                                   inner.rank_count()));
  }
  std::vector<MeshAxis> axes;
  for (int other = 0; other < axis_count(); ++other) {
    if (other == axis) {
      axes.insert(axes.end(), parts.begin(), parts.end());
      continue;
    }
    for (const MeshAxis& part : parts) {
      if (part.name == axes_[static_cast<size_t>(other)].name) {
        return absl::AlreadyExistsError(absl::StrCat("mesh axis ", part.name, " exists in ", ToString()));
      }
    }
    axes.push_back(axes_[static_cast<size_t>(other)]);
  }
  return Create(std::move(axes));
}

}  // namespace tp
