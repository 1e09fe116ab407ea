// DTensorSpec: what every rank needs to know of a distributed tensor, and the functions that turn it into local shapes
// and offsets: the chunk rule, uneven and empty shards included. Example: 5 rows over 4 ranks:
//   LocalShape({5, 10}, {Placement::Shard(0)}, mesh4, {2}) is [1, 10]; LocalOffset(...) is [4, 0].
// Pure functions of immutable values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/placement.h"
#include "common/mesh/mesh.h"
#include "common/tensor/dim.h"
#include "common/tensor/dtype.h"

namespace tp {

struct DTensorSpec {
  DType dtype = DType::kF32;
  SymShape shape;         // global
  Placements placements;  // one for each axis of the mesh; dims normalised
  bool operator==(const DTensorSpec&) const = default;
};

// Half-open range of global indices of one dim.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// Rank r of k holds [min(n, c*r), min(n, c*(r+1))) with c = ceil(n/k).
Interval ChunkOf(int64_t n, int64_t k, int64_t r);

// Normalises negative dims and checks ranges and counts (SEMANTICS 2): a dim outside [-rank, rank), a split factor,
// group count or ratio below 1, groups that do not divide the axis, a mix of partial ops other than sum with avg,
// a partial op that the dtype has not, a number of placements that is not the number of axes: INVALID_ARGUMENT.
absl::StatusOr<Placements> NormalizePlacements(const Placements& placements, int rank, DType dtype, const Mesh& mesh);
// INVALID_ARGUMENT: a dim that does not divide by the sum of parts; RESOURCE_EXHAUSTED: over 16384 pieces of a dim.
absl::Status ValidateForShape(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh);

// The global indices of dim `dim` that `coordinate` holds, ascending runs in local order; cuts of several axes nest
// left to right. One empty interval {n, n} at the global size where it holds none.
std::vector<Interval> OwnedIntervals(int64_t n, int dim, const Placements& placements, const Mesh& mesh,
                                     absl::Span<const int> coordinate);
// Shape of the local block. Needs validated placements.
Shape LocalShape(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
                 absl::Span<const int> coordinate);
// Global offset of the block's first element; the global size of the dim where the block is empty in it.
Shape LocalOffset(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
                  absl::Span<const int> coordinate);
// True for the one rank of each set of equal copies that answers for them: coordinate 0 on every axis of R or, inside
// the neighbours of a GS, the first. Every rank of a Partial is an owner of its term.
bool IsOwner(const Placements& placements, const Mesh& mesh, absl::Span<const int> coordinate);

// "F32[batch, 256] tp=S(1)".
std::string SpecText(const DTensorSpec& spec, const Mesh& mesh);

}  // namespace tp
