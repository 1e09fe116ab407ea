// Checks the local shapes that ranks bring along (registration of local shards). Example: rows 2 2 1 0 on tp=4 with
// S(0) and the global shape [5, 3] are accepted; rows 2 1 1 1 are refused with the expected and the given shapes.
// Pure.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "common/layout/spec.h"

namespace tp {

// The global shape of the tensor whose block on rank i has the shape `locals[i]` (one for each rank of the mesh). Dims
// of `placements` may be negative. Without `global`, all locals must be equal, and the global shape is the one that
// cuts into them. INVALID_ARGUMENT, with the expected and the given shapes, where the locals do not follow the chunk
// rule (a block of R or P has the size that the other axes leave), differ in rank, or placements are wrong for dtype,
// mesh or shape (NormalizePlacements, ValidateForShape).
absl::StatusOr<Shape> GlobalShapeOfLocals(const Mesh& mesh, DType dtype, const Placements& placements,
                                          absl::Span<const Shape> locals, const std::optional<Shape>& global);

}  // namespace tp
