// Bytes and scratch memory of steps.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/redistribute/geometry.h"
#include "common/redistribute/plan.h"
#include "common/redistribute/search.h"

namespace tp {
namespace {

constexpr int64_t kScratchAlignment = 64;

int64_t Padded(int64_t bytes) { return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment; }

int64_t GroupSize(const Mesh& mesh, const RedistributeStep& step) {
  int64_t size = 1;
  for (const int axis : step.axes) size *= mesh.axis_size(axis);
  return size;
}

int64_t Saturated(__int128 value) { return static_cast<int64_t>(std::min<__int128>(value, INT64_MAX)); }

}  // namespace

int64_t StepBytes(const Mesh& mesh, Geometry& geometry, const RedistributeStep& step) {
  const __int128 n = GroupSize(mesh, step);
  switch (step.op) {
    case RedistributeOp::kNone:
    case RedistributeOp::kSlice:
    case RedistributeOp::kDivide:
    case RedistributeOp::kFill:
      return 0;
    case RedistributeOp::kAllGather:
    case RedistributeOp::kAllToAll:
    case RedistributeOp::kPermute:
      return geometry.MaxMissingBytes(step.from, step.to);
    case RedistributeOp::kAllReduce:
      return Saturated(2 * (n - 1) * geometry.MaxLocalBytes(step.from) / n);
    case RedistributeOp::kReduceScatter:
      return Saturated((n - 1) * geometry.MaxLocalBytes(step.to));
  }
  TP_CHECK(false);
}

int64_t StepBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step) {
  Geometry geometry(mesh, dtype, shape);
  return StepBytes(mesh, geometry, step);
}

int64_t PlanBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributePlan& plan) {
  Geometry geometry(mesh, dtype, shape);
  __int128 bytes = 0;
  for (const RedistributeStep& step : plan.steps) bytes += StepBytes(mesh, geometry, step);
  return Saturated(bytes);
}

bool SuppliesBlock(const Mesh& mesh, const RedistributeStep& step, absl::Span<const int> sender,
                   absl::Span<const int> receiver) {
  for (size_t i = 0; i < step.from.size(); ++i) {
    const int axis = static_cast<int>(i);
    if (std::find(step.axes.begin(), step.axes.end(), axis) == step.axes.end()) {
      if (sender[i] != receiver[i]) return false;
    } else if (!step.from[i].IsSharding()) {
      if (sender[i] != receiver[i]) return false;  // equal copies: each rank keeps to its own
    } else if (step.from[i].kind == PlacementKind::kGroupShard) {
      const int neighbours = mesh.axis_size(axis) / step.from[i].groups;
      if (sender[i] % neighbours != receiver[i] % neighbours) return false;
    }
  }
  return true;
}

int64_t StepScratchBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step,
                         absl::Span<const int> coordinate) {
  Geometry geometry(mesh, dtype, shape);
  const int self = mesh.RankAt(coordinate);
  int64_t bytes = 0;
  switch (step.op) {
    case RedistributeOp::kNone:
    case RedistributeOp::kSlice:
    case RedistributeOp::kDivide:
    case RedistributeOp::kFill:
      return 0;
    case RedistributeOp::kAllReduce:
      return 2 * Padded(geometry.LocalBytes(step.from, coordinate));
    case RedistributeOp::kReduceScatter:
      for (const int rank : mesh.GroupAlong(step.axes, self)) {
        bytes += Padded(geometry.LocalBytes(step.to, mesh.CoordinateOf(rank)));
      }
      return bytes + GroupSize(mesh, step) * Padded(geometry.LocalBytes(step.to, coordinate));
    case RedistributeOp::kAllGather:
    case RedistributeOp::kAllToAll:
    case RedistributeOp::kPermute:
      for (const int rank : mesh.GroupAlong(step.axes, self)) {
        if (rank == self) continue;
        const Coordinate peer = mesh.CoordinateOf(rank);
        if (SuppliesBlock(mesh, step, peer, coordinate)) {
          bytes += Padded(geometry.OverlapBytes(step.from, peer, step.to, coordinate));
        }
        if (step.op != RedistributeOp::kAllGather && SuppliesBlock(mesh, step, coordinate, peer)) {
          bytes += Padded(geometry.OverlapBytes(step.from, coordinate, step.to, peer));
        }
      }
      return bytes;
  }
  TP_CHECK(false);
}

std::string StepAxesText(const Mesh& mesh, const RedistributeStep& step) {
  return absl::StrJoin(step.axes, ",", [&mesh](std::string* out, int axis) {
    out->append(mesh.axes()[static_cast<size_t>(axis)].name);
  });
}

}  // namespace tp
