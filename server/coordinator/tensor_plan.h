// How a named tensor changes its layout or its mesh: programs and transfers, their steps, and the memory that they
// need. Pure. Example:
//   TP_ASSIGN_OR_RETURN(MovePlan plan, PlanMove({DType::kF32, {5, 10}}, mesh4, {S(0)}, nullptr, {R}));
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/program.h"
#include "server/coordinator/events.h"

namespace tp::server {

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;  // global
};

// A redistribute on one mesh.
struct TransformPlan {
  std::shared_ptr<const ForwardProgram> program;
  Placements to;
  std::vector<StepCount> steps;
  std::vector<int64_t> output_bytes, scratch_bytes;  // by rank
};

// A move to another mesh; no placement is partial.
struct HopPlan {
  DType dtype = DType::kF32;
  Shape shape;
  Mesh source_mesh, target_mesh;
  Placements source, target;
  StepCount step;                     // permute, the target's axes joined
  std::vector<int64_t> output_bytes;  // by rank of the target
};

// What a tensor goes through: on its own mesh, to the other one, there. Without `hop` there is `first` only.
struct MovePlan {
  std::optional<TransformPlan> first;
  std::optional<HopPlan> hop;
  std::optional<TransformPlan> last;
  std::vector<StepCount> steps;  // all of them
};

bool HasPartial(const Placements& placements);
// INVALID_ARGUMENT "placements: tp=P(sum): WHY" where one is partial.
absl::Status RefusePartial(const Placements& placements, const Mesh& mesh, const std::string& why);
// Bytes of each rank's block.
std::vector<int64_t> BlockBytes(const Mesh& mesh, const TensorType& type, const Placements& placements);

// INVALID_ARGUMENT "placements: axes not in mesh: {x}", and as NormalizePlacements and ValidateForShape. An axis that
// is not named gets `absent`'s placement.
absl::StatusOr<Placements> ResolvePlacements(const Mesh& mesh, const TensorType& type, const NamedPlacements& named,
                                             const Placements& absent);

// PlanRedistribute's errors.
absl::StatusOr<TransformPlan> PlanTransform(const Mesh& mesh, const TensorType& type, const Placements& from,
                                            const Placements& to);
// To the layout without P that costs least: each P becomes R or S of some dim.
absl::StatusOr<TransformPlan> PlanWithoutPartial(const Mesh& mesh, const TensorType& type, const Placements& from);

// `workers`: of both meshes by rank, which tell what lies on a worker already. `target`: nullptr = the same mesh.
struct MeshPlace {
  Mesh mesh;
  std::vector<std::string> workers;
};
absl::StatusOr<MovePlan> PlanMove(const TensorType& type, const MeshPlace& source, const Placements& from,
                                  const MeshPlace* target, const Placements& to);

}  // namespace tp::server
