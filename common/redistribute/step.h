// Which single step turns one layout into another. Example: (S(0), S(0)) -> (S(0), R) is an all_gather on axis 1;
// (S(0), S(0)) -> (R, S(0)) is a permute, because axis 1 cuts inside of axis 0.
// Internal to common/redistribute. Pure.
#pragma once

#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/redistribute/plan.h"

namespace tp {

using PlacementRefs = absl::InlinedVector<const Placement*, 8>;  // one for each mesh axis, not owned
using AxisList = absl::InlinedVector<int, 8>;                    // ascending

PlacementRefs RefsOf(const Placements& placements);

// The op of a row of SEMANTICS 3's table that changes all of `axes` at once, over the flattened axes, from their
// placements in `from` to those in `to`; both agree on the other axes. nullopt where the axes do not all do the same,
// where another axis cuts one of their dims further inside, and for rows that take one axis only (all_to_all,
// reduce_scatter) or more than one step.
std::optional<RedistributeOp> TableOp(absl::Span<const int> axes, absl::Span<const Placement* const> from,
                                      absl::Span<const Placement* const> to);

// The step between two layouts that differ on axes of R and sharding kinds only: TableOp where there is one, else a
// permute over the axes that change and those that cut a dim inside of a changed cut.
struct Move {
  RedistributeOp op = RedistributeOp::kNone;
  AxisList axes = {};
};
Move MoveBetween(absl::Span<const Placement* const> from, absl::Span<const Placement* const> to);

}  // namespace tp
