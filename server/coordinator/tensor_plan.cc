#include "server/coordinator/tensor_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/program/memory.h"
#include "common/program/redistribute_program.h"
#include "common/redistribute/transfer.h"

namespace tp::server {
namespace {

std::string AllAxes(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return absl::StrJoin(names, ",");
}

// `placements` with each P replaced in turn by R and by S of every dim, R first.
std::vector<Placements> CandidatesWithoutPartial(const Placements& placements, int rank) {
  std::vector<Placements> candidates = {placements};
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].IsPartial()) continue;
    std::vector<Placements> next;
    for (const Placements& candidate : candidates) {
      for (int dim = -1; dim < rank; ++dim) {
        next.push_back(candidate);
        next.back()[axis] = dim < 0 ? Placement::Replicate() : Placement::Shard(dim);
      }
    }
    candidates = std::move(next);
  }
  return candidates;
}

// The first dim that nothing cuts; -1 where there is none.
int UncutDim(const Placements& placements, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (std::none_of(placements.begin(), placements.end(), [d](const Placement& p) { return p.Cuts(d); })) return d;
  }
  return -1;
}

}  // namespace

bool HasPartial(const Placements& placements) {
  return std::any_of(placements.begin(), placements.end(), [](const Placement& p) { return p.IsPartial(); });
}

absl::Status RefusePartial(const Placements& placements, const Mesh& mesh, const std::string& why) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].IsPartial()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("placements: ", mesh.axes()[axis].name, "=", PlacementText(placements[axis]), ": ", why));
  }
  return absl::OkStatus();
}

std::vector<int64_t> BlockBytes(const Mesh& mesh, const TensorType& type, const Placements& placements) {
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    bytes.push_back(ElementCount(LocalShape(type.shape, placements, mesh, mesh.CoordinateOf(rank))) *
                    ItemSize(type.dtype));
  }
  return bytes;
}

absl::StatusOr<Placements> ResolvePlacements(const Mesh& mesh, const TensorType& type, const NamedPlacements& named,
                                             const Placements& absent) {
  Placements placements = absent;
  std::vector<std::string> unknown;
  for (const auto& [axis, placement] : named) {
    const absl::StatusOr<int> index = mesh.AxisIndex(axis);
    if (index.ok()) {
      placements[*index] = placement;
    } else {
      unknown.push_back(axis.substr(0, 64));
    }
  }
  if (!unknown.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("placements: axes not in mesh: {", absl::StrJoin(unknown, ", "),
                                                   "}; the mesh is ", mesh.ToString()));
  }
  absl::StatusOr<Placements> normalised =
      NormalizePlacements(placements, static_cast<int>(type.shape.size()), type.dtype, mesh);
  if (!normalised.ok()) return Annotate(normalised.status(), "placements");
  const absl::Status valid = ValidateForShape(type.shape, *normalised, mesh);
  if (!valid.ok()) return Annotate(valid, "placements");
  return normalised;
}

absl::StatusOr<TransformPlan> PlanTransform(const Mesh& mesh, const TensorType& type, const Placements& from,
                                            const Placements& to) {
  TP_ASSIGN_OR_RETURN(const RedistributePlan plan, PlanRedistribute(mesh, type.dtype, type.shape, from, to));
  TransformPlan result;
  result.to = to;
  auto program = std::make_shared<ForwardProgram>(RedistributeProgram(mesh, type.dtype, type.shape, plan, from));
  for (const RedistributeStep& step : plan.steps) {
    result.steps.push_back({std::string(RedistributeOpName(step.op)), StepAxesText(mesh, step),
                            StepBytes(mesh, type.dtype, type.shape, step)});
  }
  result.output_bytes = BlockBytes(mesh, type, to);
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    TP_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(*program, {}, mesh.CoordinateOf(rank)));
    result.scratch_bytes.push_back(memory.total_bytes);
  }
  result.program = std::move(program);
  return result;
}

absl::StatusOr<TransformPlan> PlanWithoutPartial(const Mesh& mesh, const TensorType& type, const Placements& from) {
  RedistributePlanner planner(mesh, type.dtype, type.shape);
  std::optional<std::pair<int64_t, size_t>> best;
  Placements best_to;
  absl::Status refused = absl::OkStatus();
  for (const Placements& to : CandidatesWithoutPartial(from, static_cast<int>(type.shape.size()))) {
    if (!ValidateForShape(type.shape, to, mesh).ok()) continue;
    const absl::StatusOr<RedistributePlan> plan = planner.Plan(from, to);
    if (!plan.ok()) {
      if (refused.ok()) refused = plan.status();
      continue;
    }
    const std::pair<int64_t, size_t> cost = {PlanBytes(mesh, type.dtype, type.shape, *plan), plan->steps.size()};
    if (best.has_value() && *best <= cost) continue;
    best = cost;
    best_to = to;
  }
  if (!best.has_value()) return refused;
  return PlanTransform(mesh, type, from, best_to);
}

absl::StatusOr<MovePlan> PlanMove(const TensorType& type, const MeshPlace& source, const Placements& from,
                                  const MeshPlace* target, const Placements& to) {
  MovePlan plan;
  const auto add = [&](const TransformPlan& transform) {
    plan.steps.insert(plan.steps.end(), transform.steps.begin(), transform.steps.end());
  };
  if (target == nullptr) {
    TP_ASSIGN_OR_RETURN(plan.first, PlanTransform(source.mesh, type, from, to));
    add(*plan.first);
    return plan;
  }
  HopPlan hop;
  hop.dtype = type.dtype;
  hop.shape = type.shape;
  hop.source_mesh = source.mesh;
  hop.target_mesh = target->mesh;
  hop.source = from;
  hop.target = to;
  if (HasPartial(from)) {
    TP_ASSIGN_OR_RETURN(plan.first, PlanWithoutPartial(source.mesh, type, from));
    hop.source = plan.first->to;
    add(*plan.first);
  }
  // Terms of a sum are made of a cut by a fill: exact, and each element travels once.
  const int cut = UncutDim(to, static_cast<int>(type.shape.size()));
  for (Placement& placement : hop.target) {
    if (!placement.IsPartial()) continue;
    placement = placement.op == ReduceOp::kSum && cut >= 0 ? Placement::Shard(cut) : Placement::Replicate();
  }
  TP_ASSIGN_OR_RETURN(const TransferPlan transfer,
                      PlanTransfer(type.dtype, type.shape, {source.mesh, hop.source, source.workers},
                                   {target->mesh, hop.target, target->workers}));
  hop.step = {std::string(RedistributeOpName(RedistributeOp::kPermute)), AllAxes(target->mesh), transfer.busiest_bytes};
  hop.output_bytes = BlockBytes(target->mesh, type, hop.target);
  plan.steps.push_back(hop.step);
  if (HasPartial(to)) {
    TP_ASSIGN_OR_RETURN(plan.last, PlanTransform(target->mesh, type, hop.target, to));
    add(*plan.last);
  }
  plan.hop = std::move(hop);
  return plan;
}

}  // namespace tp::server
