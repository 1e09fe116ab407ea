#include "common/redistribute/plan.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/redistribute/search.h"

namespace tp {
namespace {

// The simplest placement with the same element map on an axis of `size` ranks.
Placement Canonical(const Placement& placement, int size) {
  if (size == 1) return Placement::Replicate();
  switch (placement.kind) {
    case PlacementKind::kReplicate:
    case PlacementKind::kShard:
    case PlacementKind::kPartial:
      return placement;
    case PlacementKind::kStridedShard:
      return placement.split_factor == 1 ? Placement::Shard(placement.dim) : placement;
    case PlacementKind::kGroupShard:
      if (placement.groups == 1) return Placement::Replicate();
      return placement.groups == size ? Placement::Shard(placement.dim) : placement;
    case PlacementKind::kInterleavedShard: {
      int64_t divisor = 0;
      for (const int64_t part : placement.parts) divisor = std::gcd(divisor, part);
      std::vector<int64_t> parts;
      bool equal = true;
      for (const int64_t part : placement.parts) {
        parts.push_back(part / divisor);
        equal = equal && parts.back() == 1;
      }
      if (parts.size() == 1) return Placement::Shard(placement.dim);
      // Equal parts of a dim that divides by their number are the chunks of a StridedShard.
      if (equal) return Placement::StridedShard(placement.dim, static_cast<int>(parts.size()));
      return Placement::InterleavedShard(placement.dim, std::move(parts));
    }
  }
  TP_CHECK(false);
}

std::string Transition(const Mesh& mesh, size_t axis, const Placement& from, const Placement& to) {
  return absl::StrCat("redistribute ", PlacementText(from), " -> ", PlacementText(to), " on mesh axis ",
                      mesh.axes()[axis].name);
}

bool IsStridedKind(const Placement& placement) {
  return placement.kind == PlacementKind::kStridedShard || placement.kind == PlacementKind::kInterleavedShard;
}

// What SEMANTICS 3 refuses, on one axis of more than one rank. `simple_*` are the canonical forms.
absl::Status CheckTransition(const Mesh& mesh, size_t axis, const Placement& from, const Placement& to,
                             const Placement& simple_from, const Placement& simple_to) {
  if (simple_from == simple_to) return absl::OkStatus();
  if (to.IsPartial() && to.op == ReduceOp::kProduct) {
    return absl::InvalidArgumentError(
        absl::StrCat(Transition(mesh, axis, from, to), " is not defined: P(product) can't be a target"));
  }
  if (to.IsPartial() && to.op != ReduceOp::kSum && from.kind == PlacementKind::kShard) {
    return absl::InvalidArgumentError(
        absl::StrCat(Transition(mesh, axis, from, to), " is not defined: a shard can become P(sum) only"));
  }
  if (IsStridedKind(simple_from) || (IsStridedKind(simple_to) && !simple_from.IsReplicate())) {
    return absl::UnimplementedError(absl::StrCat(Transition(mesh, axis, from, to), " is not built yet"));
  }
  return absl::OkStatus();
}

absl::Status CheckLayout(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const Placements& placements,
                         absl::string_view which) {
  const absl::StatusOr<Placements> normalized =
      NormalizePlacements(placements, static_cast<int>(shape.size()), dtype, mesh);
  if (!normalized.ok()) return Annotate(normalized.status(), which);
  if (*normalized != placements) {
    return absl::InvalidArgumentError(absl::StrCat(which, ": dims are not normalised"));
  }
  return Annotate(ValidateForShape(shape, placements, mesh), which);
}

// A step that only renames placements.
RedistributeStep Rename(const Placements& from, const Placements& to) {
  RedistributeStep step{RedistributeOp::kNone, {}, from, to};
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis] != to[axis]) step.axes.push_back(static_cast<int>(axis));
  }
  return step;
}

// `inner` with the placements of `outer` on axes of one rank: they agree there, so the first and the last step take
// them over without a step of its own.
Placements WithTrivialAxesOf(const Mesh& mesh, const Placements& outer, Placements inner) {
  for (size_t axis = 0; axis < inner.size(); ++axis) {
    if (mesh.axis_size(static_cast<int>(axis)) == 1) inner[axis] = outer[axis];
  }
  return inner;
}

}  // namespace

std::string_view RedistributeOpName(RedistributeOp op) {
  switch (op) {
    case RedistributeOp::kNone:
      return "none";
    case RedistributeOp::kSlice:
      return "slice";
    case RedistributeOp::kAllGather:
      return "all_gather";
    case RedistributeOp::kAllToAll:
      return "all_to_all";
    case RedistributeOp::kAllReduce:
      return "all_reduce";
    case RedistributeOp::kReduceScatter:
      return "reduce_scatter";
    case RedistributeOp::kDivide:
      return "divide";
    case RedistributeOp::kFill:
      return "fill";
    case RedistributeOp::kPermute:
      return "permute";
  }
  TP_CHECK(false);
}

absl::StatusOr<RedistributePlan> PlanRedistribute(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                                  const Placements& from, const Placements& to) {
  TP_RETURN_IF_ERROR(CheckedBytes(shape, dtype).status());
  TP_RETURN_IF_ERROR(CheckLayout(mesh, dtype, shape, from, "source"));
  TP_RETURN_IF_ERROR(CheckLayout(mesh, dtype, shape, to, "target"));
  RedistributePlan plan;
  if (from == to) return plan;
  Placements simple_from;
  Placements simple_to;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    const int size = mesh.axis_size(static_cast<int>(axis));
    simple_from.push_back(Canonical(from[axis], size));
    simple_to.push_back(Canonical(to[axis], size));
    TP_RETURN_IF_ERROR(CheckTransition(mesh, axis, from[axis], to[axis], simple_from[axis], simple_to[axis]));
    // Strided kinds keep the name of the target: nothing is won by the simplest one.
    if (IsStridedKind(simple_to[axis])) {
      if (simple_from[axis] == simple_to[axis]) simple_from[axis] = to[axis];
      simple_to[axis] = to[axis];
    }
  }
  if (simple_from == simple_to) {
    plan.steps.push_back(Rename(from, to));
    return plan;
  }
  std::optional<std::vector<RedistributeStep>> steps = SearchSteps(mesh, dtype, shape, simple_from, simple_to);
  if (!steps.has_value()) {
    return absl::UnimplementedError(absl::StrCat("redistribute ", PlacementsText(mesh, from), " -> ",
                                                 PlacementsText(mesh, to), " is not built yet"));
  }
  plan.steps = *std::move(steps);
  plan.steps.front().from = WithTrivialAxesOf(mesh, from, simple_from);
  plan.steps.back().to = WithTrivialAxesOf(mesh, to, simple_to);
  if (plan.steps.front().from != from) plan.steps.insert(plan.steps.begin(), Rename(from, plan.steps.front().from));
  if (plan.steps.back().to != to) plan.steps.push_back(Rename(plan.steps.back().to, to));
  return plan;
}

}  // namespace tp
