#include "server/coordinator/forward_shards.h"

#include <utility>

#include "common/base/status.h"
#include "server/coordinator/put_plan.h"

namespace tp::server {

absl::StatusOr<PlacedShards> PlaceShards(InputShards shards, const Mesh& mesh) {
  if (shards.locals.empty()) return absl::InvalidArgumentError("locals: there are none");
  PutTensorRequested put;
  put.placements = std::move(shards.placements);
  put.dtype = shards.dtype;
  put.shape = std::move(shards.shape);
  put.infer_shape = shards.infer_shape;
  put.locals = std::move(shards.locals);
  TP_ASSIGN_OR_RETURN(PutPlan plan, PlanPut(put, mesh));
  PlacedShards placed;
  placed.dtype = put.dtype;
  placed.shape = std::move(plan.shape);
  placed.placements = std::move(plan.placements);
  placed.copy_of = std::move(plan.copy_of);
  placed.data.resize(static_cast<size_t>(mesh.rank_count()));
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    const int local = plan.locals[rank];
    if (local < 0) continue;  // without elements
    std::string& data = shards.data[static_cast<size_t>(local)];
    if (static_cast<int64_t>(data.size()) != plan.bytes[rank]) {
      return absl::InvalidArgumentError(
          absl::StrCat("locals[", local, "]: expected ", plan.bytes[rank], " bytes, got ", data.size()));
    }
    placed.data[rank] = std::move(data);
    const int first = placed.copy_of[rank];
    if (placed.data[first] == placed.data[rank]) continue;
    return absl::InvalidArgumentError(absl::StrCat("locals: the blocks of rank ", first, " and rank ", rank,
                                                   " are equal copies by the placements, but their bytes differ"));
  }
  return placed;
}

bool SameLayout(const Placements& a, const Placements& b, const Mesh& mesh) {
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    if (mesh.axis_size(axis) > 1 && a[axis] != b[axis]) return false;
  }
  return true;
}

}  // namespace tp::server
