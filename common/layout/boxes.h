// The boxes of a rank's block: one for each product of the intervals that it owns, in row-major order of their offsets.
// A plain Shard gives one box; SS(0,2) on two ranks of 8 rows gives rank 0 rows [0,2) and [4,6). Pure.
#pragma once

#include <vector>

#include "common/layout/spec.h"

namespace tp {

struct Box {
  Shape offset;  // global, of the first element
  Shape shape;
  Shape local;  // where its first element lies in the local block
  bool operator==(const Box&) const = default;
};

// None for a block without elements; a scalar has one. Needs validated placements.
std::vector<Box> LocalBoxes(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
                            absl::Span<const int> coordinate);

}  // namespace tp
