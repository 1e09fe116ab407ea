#include "server/coordinator/put_plan.h"

#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/layout/local_shards.h"
#include "server/coordinator/tensor_plan.h"

namespace tp::server {
namespace {

absl::Status CheckSource(int src_data_rank, const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.size > 1 && (src_data_rank < 0 || src_data_rank >= axis.size)) {
      return absl::InvalidArgumentError(absl::StrCat("src_data_rank: is ", src_data_rank,
                                                     "; must be smaller than every axis, ", axis.name, " has ",
                                                     axis.size, " ranks"));
    }
  }
  return absl::OkStatus();
}

// The first rank whose block is equal by the placements: coordinate 0 on axes of R, the first neighbour of a GS.
int FirstCopy(const Placements& placements, const Mesh& mesh, Coordinate coordinate) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& placement = placements[axis];
    if (placement.IsReplicate()) coordinate[axis] = 0;
    if (placement.kind == PlacementKind::kGroupShard) {
      const int neighbours = mesh.axis_size(static_cast<int>(axis)) / placement.groups;
      coordinate[axis] -= coordinate[axis] % neighbours;
    }
  }
  return mesh.RankAt(coordinate);
}

// The shapes of all ranks' blocks, from the request's list; fills `plan->locals`.
absl::StatusOr<std::vector<Shape>> LocalShapes(const PutTensorRequested& request, const Mesh& mesh,
                                               const Placements& placements, PutPlan* plan) {
  const int ranks = mesh.rank_count();
  std::vector<Shape> shapes(ranks);
  for (size_t i = 0; i < request.locals.size(); ++i) {
    const LocalBlockShape& local = request.locals[i];
    const std::string field = absl::StrCat("locals[", i, "]");
    if (local.rank < 0 || local.rank >= ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".rank: is ", local.rank, "; mesh ", mesh.ToString(), " has ranks 0 to ", ranks - 1));
    }
    if (plan->locals[local.rank] >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".rank: ", local.rank, " is given twice"));
    }
    plan->locals[local.rank] = static_cast<int>(i);
    shapes[local.rank] = local.shape;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (plan->locals[rank] >= 0) continue;
    if (!request.infer_shape) {
      shapes[rank] = LocalShape(request.shape, placements, mesh, mesh.CoordinateOf(rank));
      if (ElementCount(shapes[rank]) == 0) continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("locals: rank ", rank, " is missing",
                                                   request.infer_shape
                                                       ? "; without a global shape each rank gives its block"
                                                       : absl::StrCat("; its block is ", ShapeText(shapes[rank]))));
  }
  return shapes;
}

}  // namespace

absl::StatusOr<PutPlan> PlanPut(const PutTensorRequested& request, const Mesh& mesh) {
  const int ranks = mesh.rank_count();
  PutPlan plan;
  plan.locals.assign(ranks, -1);
  plan.shape = request.shape;
  const bool local = !request.locals.empty();
  if (request.infer_shape && !local) {
    return absl::InvalidArgumentError("infer_shape: only the shape of local blocks can be inferred");
  }
  if (local && request.infer_shape) {
    // The rank of the tensor is that of its blocks; sizes are checked below.
    plan.shape = request.locals[0].shape;
  }
  const absl::StatusOr<int64_t> size = CheckedBytes(plan.shape, request.dtype);
  if (!size.ok()) return Annotate(size.status(), "shape");
  if (local) {
    Placements given(mesh.axis_count());
    for (const auto& [axis, placement] : request.placements) {
      const absl::StatusOr<int> index = mesh.AxisIndex(axis);
      if (!index.ok()) return Annotate(index.status(), "placements");
      given[*index] = placement;
    }
    absl::StatusOr<Placements> normalised =
        NormalizePlacements(given, static_cast<int>(plan.shape.size()), request.dtype, mesh);
    if (!normalised.ok()) return Annotate(normalised.status(), "placements");
    if (!request.infer_shape) {
      const absl::Status valid = ValidateForShape(request.shape, *normalised, mesh);
      if (!valid.ok()) return Annotate(valid, "placements");
    }
    TP_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, LocalShapes(request, mesh, *normalised, &plan));
    absl::StatusOr<Shape> global =
        GlobalShapeOfLocals(mesh, request.dtype, *normalised, shapes,
                            request.infer_shape ? std::nullopt : std::optional<Shape>(request.shape));
    if (!global.ok()) return Annotate(global.status(), "locals");
    plan.shape = *std::move(global);
    const absl::StatusOr<int64_t> inferred = CheckedBytes(plan.shape, request.dtype);
    if (!inferred.ok()) return Annotate(inferred.status(), "locals");
  }
  const TensorType type{request.dtype, plan.shape};
  TP_ASSIGN_OR_RETURN(plan.placements,
                      ResolvePlacements(mesh, type, request.placements, Placements(mesh.axis_count())));
  if (!local) {
    TP_RETURN_IF_ERROR(RefusePartial(plan.placements, mesh,
                                     "a global tensor has no terms; put takes P for local blocks (locals), "
                                     "redistribute makes P of another layout"));
    if (!request.no_src_data_rank) TP_RETURN_IF_ERROR(CheckSource(request.src_data_rank, mesh));
  }
  plan.bytes = BlockBytes(mesh, type, plan.placements);
  for (int rank = 0; rank < ranks; ++rank) {
    const Coordinate coordinate = mesh.CoordinateOf(rank);
    plan.copy_of.push_back(FirstCopy(plan.placements, mesh, coordinate));
    bool receives = true;
    for (int axis = 0; axis < mesh.axis_count() && !local && !request.no_src_data_rank; ++axis) {
      const bool copies = plan.placements[axis].IsReplicate() && mesh.axis_size(axis) > 1;
      receives = receives && (!copies || coordinate[axis] == request.src_data_rank);
    }
    const bool empty = plan.bytes[rank] == 0;
    plan.origins.push_back(empty      ? NewTensor::Origin::kSource
                           : receives ? NewTensor::Origin::kTransfer
                                      : NewTensor::Origin::kBroadcast);
    plan.broadcast = plan.broadcast || plan.origins.back() == NewTensor::Origin::kBroadcast;
  }
  return plan;
}

}  // namespace tp::server
