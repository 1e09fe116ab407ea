#include "common/layout/local_shards.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace tp {
namespace {

constexpr size_t kMaxListed = 16;

std::string ShapesText(absl::Span<const Shape> shapes) {
  const size_t listed = std::min(shapes.size(), kMaxListed);
  return absl::StrCat(
      absl::StrJoin(shapes.subspan(0, listed), " ",
                    [](std::string* out, const Shape& shape) { absl::StrAppend(out, ShapeText(shape)); }),
      listed < shapes.size() ? " ..." : "");
}

// Blocks of one size on all ranks: as many as the axes cut the dim into.
absl::StatusOr<Shape> GlobalOfEqualLocals(const Mesh& mesh, const Placements& placements, const Shape& local) {
  Shape global = local;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& placement = placements[axis];
    if (!placement.IsSharding()) continue;
    const int blocks =
        placement.kind == PlacementKind::kGroupShard ? placement.groups : mesh.axis_size(static_cast<int>(axis));
    int64_t& size = global[static_cast<size_t>(placement.dim)];
    if (__builtin_mul_overflow(size, int64_t{blocks}, &size)) {
      return absl::InvalidArgumentError(absl::StrCat("the global size of dim ", placement.dim, " overflows"));
    }
  }
  return global;
}

}  // namespace

absl::StatusOr<Shape> GlobalShapeOfLocals(const Mesh& mesh, DType dtype, const Placements& placements,
                                          absl::Span<const Shape> locals, const std::optional<Shape>& global) {
  if (locals.size() != static_cast<size_t>(mesh.rank_count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("one local shard for each rank: expected ", mesh.rank_count(), ", got ", locals.size()));
  }
  const size_t rank = global.has_value() ? global->size() : locals[0].size();
  for (size_t i = 0; i < locals.size(); ++i) {
    if (locals[i].size() != rank) {
      return absl::InvalidArgumentError(absl::StrCat("local shard of rank ", i, " has ", locals[i].size(),
                                                     " dims, expected ", rank, ": ", ShapeText(locals[i])));
    }
    TP_RETURN_IF_ERROR(Annotate(CheckedBytes(locals[i], dtype).status(), absl::StrCat("local shard of rank ", i)));
  }
  TP_ASSIGN_OR_RETURN(const Placements normalized,
                      NormalizePlacements(placements, static_cast<int>(rank), dtype, mesh));
  Shape shape;
  if (global.has_value()) {
    shape = *global;
  } else {
    if (std::any_of(locals.begin(), locals.end(), [&](const Shape& local) { return local != locals[0]; })) {
      return absl::InvalidArgumentError(absl::StrCat("local shards without a global shape must be equal: expected ",
                                                     ShapeText(locals[0]), " on every rank, given ", ShapesText(locals),
                                                     "; give the global shape"));
    }
    TP_ASSIGN_OR_RETURN(shape, GlobalOfEqualLocals(mesh, normalized, locals[0]));
  }
  TP_RETURN_IF_ERROR(Annotate(CheckedBytes(shape, dtype).status(), "global shape"));
  TP_RETURN_IF_ERROR(ValidateForShape(shape, normalized, mesh));
  std::vector<Shape> expected;
  for (int i = 0; i < mesh.rank_count(); ++i) {
    expected.push_back(LocalShape(shape, normalized, mesh, mesh.CoordinateOf(i)));
  }
  for (size_t i = 0; i < locals.size(); ++i) {
    if (locals[i] == expected[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "local shards do not follow the chunk rule of ", ShapeText(shape), " ", PlacementsText(mesh, normalized),
        " (first on rank ", i, "): expected ", ShapesText(expected), ", given ", ShapesText(locals)));
  }
  return shape;
}

}  // namespace tp
