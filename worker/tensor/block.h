// Blocks of a distributed tensor as lists of index intervals, and the box copies that move the common part of two
// blocks. A rank's block is a product of interval lists, one list a dim, stored dense in ascending order. Example:
// SS(0,2) on two ranks of 8 rows: rank 0 holds {[0,2), [4,6)}; what it shares with rows [1,5) is row 1 (its row 1) and
// row 4 (its row 2). Pure values and functions, but for the copies, which go through a Device.
#pragma once

#include <vector>

#include "common/layout/spec.h"
#include "worker/device/device.h"

namespace tp::worker {

using Intervals = std::vector<Interval>;

struct Block {
  std::vector<Intervals> dims;  // global indices, ascending; an empty dim has no elements in its intervals
  Shape shape;                  // of the dense local array
  bool operator==(const Block&) const = default;
};

// The block of the rank at `coordinate`.
Block BlockOf(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
              absl::Span<const int> coordinate);

// Indices that two blocks share, one list of runs a dim; positions are local ones.
struct SharedRun {
  int64_t in_a = 0, in_b = 0,
          packed = 0;  // first index in a's array, in b's, and in the packed array of the common part
  int64_t size = 0;
};
struct SharedPart {
  std::vector<std::vector<SharedRun>> dims;
  Shape shape;  // of the packed array
  int64_t elements = 0;
};
SharedPart SharedPartOf(const Block& a, const Block& b);

// The common part from a's array to b's array.
absl::Status CopyShared(Device& device, Stream& stream, const SharedPart& part, const ConstTensorView& a,
                        const TensorView& b);
// Elements [begin, end) of the packed array, in its order: from a's array to `packed`, and from there to b's array.
// 0 <= begin <= end <= part.elements; `packed` holds just those.
absl::Status PackShared(Device& device, Stream& stream, const SharedPart& part, int64_t begin, int64_t end,
                        const ConstTensorView& a, void* packed);
absl::Status UnpackShared(Device& device, Stream& stream, const SharedPart& part, int64_t begin, int64_t end,
                          const void* packed, const TensorView& b);

}  // namespace tp::worker
