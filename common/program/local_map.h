// Inside a local_map functions act on each rank's own block as on a plain tensor: nothing is communicated, and a value
// means what out_src says at the exit. Here: which dims of a function's output are cut, as those of the blocks that it
// is made of. Example: sum over dim 1 of [4, 8] tp=S(1) makes [4] on every rank, whole in shape; out_src names it
// P(sum) where the ranks' terms are to be added. Pure. Internal to common/program. Source: SEMANTICS 7.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/layout/spec.h"
#include "common/model/flatten.h"

namespace tp {

// Placements (R or cuts) that give the output's blocks their local shapes; `inputs`: one for each argument, nullptr =
// omitted. Elementwise functions, softmax and norms, linear, matmul and bmm, sum, mean, max and min, transpose and
// permute over cut dims too; any other function where its rule takes the blocks as they lie (reshapes, slices and joins
// of other dims, look-ups along other dims); else UNIMPLEMENTED by name: sizes of the blocks would differ between ranks
// in ways that no placement says. INVALID_ARGUMENT where the blocks do not fit each other. A bias that the forward adds
// is added on every rank, as everything in it.
absl::StatusOr<Placements> LocalPlacements(const FlatNode& node, absl::Span<const DTensorSpec* const> inputs,
                                           const TensorType& output, const Mesh& mesh);

// INVALID_ARGUMENT with both where blocks made as `made` have not the local shapes of `named` on every rank.
absl::Status CheckLocalShapes(const DTensorSpec& made, const Placements& named, const Mesh& mesh);

}  // namespace tp
