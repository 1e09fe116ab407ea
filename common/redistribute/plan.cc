#include "common/redistribute/plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/redistribute/geometry.h"
#include "common/redistribute/search.h"
#include "common/redistribute/step.h"

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

// What SEMANTICS 3 refuses, on one axis whose element map or terms change.
absl::Status CheckTransition(const Mesh& mesh, size_t axis, const Placement& from, const Placement& to) {
  if (to.IsPartial() && to.op == ReduceOp::kProduct) {
    return absl::InvalidArgumentError(
        absl::StrCat(Transition(mesh, axis, from, to), " is not defined: P(product) can't be a target"));
  }
  if (to.IsPartial() && to.op != ReduceOp::kSum && from.kind == PlacementKind::kShard) {
    return absl::InvalidArgumentError(
        absl::StrCat(Transition(mesh, axis, from, to), " is not defined: a shard can become P(sum) only"));
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

// The rows of SEMANTICS 3's table that are taken whatever else would cost less: every axis that changes is reduced, or
// one axis changes by a row of the table.
std::vector<RedistributeStep> TableSteps(const Mesh& mesh, Geometry& geometry, const Placements& from,
                                         const Placements& to) {
  std::vector<int> changed;
  bool reduces = true;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis] == to[axis]) continue;
    changed.push_back(static_cast<int>(axis));
    reduces = reduces && from[axis].IsPartial() && to[axis].IsReplicate();
  }
  std::vector<RedistributeStep> steps;
  if (reduces) {
    for (Placements at = from; at != to; at = steps.back().to) {
      RedistributeStep step{RedistributeOp::kAllReduce, {}, at, at};
      for (const int axis : changed) {
        if (!at[axis].IsPartial() || (!step.axes.empty() && at[axis].op != at[step.axes[0]].op)) continue;
        step.axes.push_back(axis);
        step.to[axis] = Placement::Replicate();
      }
      steps.push_back(std::move(step));
    }
    return steps;
  }
  if (changed.size() != 1) return {};
  const int axis = changed[0];
  Placements reduced = from;
  reduced[axis] = Placement::Replicate();
  const RedistributeStep reduce{RedistributeOp::kAllReduce, changed, from, reduced};
  if (from[axis].IsPartial() && to[axis].IsPartial()) {
    return {reduce, {TableOp(changed, RefsOf(reduced), RefsOf(to)).value(), changed, reduced, to}};
  }
  const std::optional<RedistributeOp> op = TableOp(changed, RefsOf(from), RefsOf(to));
  if (!op.has_value()) return {};
  const RedistributeStep step{*op, changed, from, to};
  // The largest piece counts N times: 1 element on 4 ranks is cheaper reduced everywhere.
  if (*op == RedistributeOp::kReduceScatter && StepBytes(mesh, geometry, step) > StepBytes(mesh, geometry, reduce)) {
    return {};
  }
  return {step};
}

// The steps between two canonical layouts that differ.
std::vector<RedistributeStep> StepsBetween(const Mesh& mesh, Geometry& geometry, int rank, const Placements& from,
                                           const Placements& to) {
  std::vector<RedistributeStep> steps = TableSteps(mesh, geometry, from, to);
  if (!steps.empty()) return steps;
  const auto is_partial = [](const Placement& placement) { return placement.IsPartial(); };
  if (std::none_of(from.begin(), from.end(), is_partial) && std::none_of(to.begin(), to.end(), is_partial)) {
    // No rank receives a byte twice, and none that it holds: no path costs less than one move.
    const Move move = MoveBetween(RefsOf(from), RefsOf(to));
    return {{move.op, {move.axes.begin(), move.axes.end()}, from, to}};
  }
  return SearchSteps(mesh, geometry, rank, from, to);
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

RedistributePlanner::RedistributePlanner(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape)
    : mesh_(mesh), dtype_(dtype), shape_(shape.begin(), shape.end()) {}
RedistributePlanner::~RedistributePlanner() = default;

absl::StatusOr<RedistributePlan> RedistributePlanner::Plan(const Placements& from, const Placements& to) {
  TP_RETURN_IF_ERROR(CheckedBytes(shape_, dtype_).status());
  TP_RETURN_IF_ERROR(CheckLayout(mesh_, dtype_, shape_, from, "source"));
  TP_RETURN_IF_ERROR(CheckLayout(mesh_, dtype_, shape_, to, "target"));
  RedistributePlan plan;
  if (from == to) return plan;
  Placements simple_from;
  Placements simple_to;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    const int size = mesh_.axis_size(static_cast<int>(axis));
    simple_from.push_back(Canonical(from[axis], size));
    simple_to.push_back(Canonical(to[axis], size));
    if (simple_from[axis] != simple_to[axis]) {
      TP_RETURN_IF_ERROR(CheckTransition(mesh_, axis, from[axis], to[axis]));
    }
  }
  if (simple_from == simple_to) {
    plan.steps.push_back(Rename(from, to));
    return plan;
  }
  if (geometry_ == nullptr) geometry_ = std::make_unique<Geometry>(mesh_, dtype_, shape_);
  plan.steps = StepsBetween(mesh_, *geometry_, static_cast<int>(shape_.size()), simple_from, simple_to);
  // The first and the last step take the given names of the element maps.
  plan.steps.front().from = from;
  plan.steps.back().to = to;
  return plan;
}

absl::StatusOr<RedistributePlan> PlanRedistribute(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                                  const Placements& from, const Placements& to) {
  return RedistributePlanner(mesh, dtype, shape).Plan(from, to);
}

}  // namespace tp
