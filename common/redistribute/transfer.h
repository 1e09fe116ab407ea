// Redistribute to another mesh: which rank of the source sends which part of its block to which rank of the target, by
// the intersection of blocks. Nothing passes a third place. Example: 8 rows, S(0) on workers A, B to R on workers B, C:
// (0 -> 0) and (0 -> 1) carry A's rows, (1 -> 1) carries B's rows to C, and (1 -> 0) is a local copy on B.
// Pure; a plan holds for the given shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/layout/spec.h"

namespace tp {

// One side of a transfer. Placements are normalised and without terms; `workers` has the worker of each rank.
struct TransferSide {
  Mesh mesh = {};
  Placements placements = {};
  std::vector<std::string> workers = {};
};

struct TransferPart {
  int source = 0;      // rank of the source mesh
  int target = 0;      // rank of the target mesh
  int64_t bytes = 0;   // of the intersection of the two blocks
  bool local = false;  // both ranks are of one worker: a copy
  bool operator==(const TransferPart&) const = default;
};

struct TransferPlan {
  // Ascending by (target, source), each with more than 0 bytes. The blocks of the sources of one target partition the
  // target's block.
  std::vector<TransferPart> transfers = {};
  int64_t total_bytes = 0;    // that pass between workers
  int64_t busiest_bytes = 0;  // received by the target rank that receives most: bytes of the step (SEMANTICS 3)
};

// Each target rank gets each part of its block once. Of the ranks with equal copies (axes of R, neighbours of a GS) one
// on the target's own worker is taken, else the one that has sent the fewest bytes so far, ties to the lowest rank.
// INVALID_ARGUMENT for placements that do not fit dtype, shape or mesh, for Partial (reduce first), and for a number of
// workers that is not the mesh's.
absl::StatusOr<TransferPlan> PlanTransfer(DType dtype, absl::Span<const int64_t> shape, const TransferSide& source,
                                          const TransferSide& target);

}  // namespace tp
