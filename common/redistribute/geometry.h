// Which bytes of one tensor each rank holds under a layout, and how many two layouts share. Remembers the intervals it
// computed, so that a search over many layouts stays cheap. Example: 5 rows of 40 bytes, S(0) on tp=4:
// LocalBytes({S(0)}, {2}) is 40; OverlapBytes({S(0)}, {2}, {R}, {0}) is 40.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/layout/spec.h"

namespace tp {

// Thread-compatible; used by one thread. `mesh` must outlive it.
class Geometry {
 public:
  Geometry(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape)
      : mesh_(mesh), item_size_(ItemSize(dtype)), shape_(shape.begin(), shape.end()) {}

  // Bytes of the block at `coordinate`.
  int64_t LocalBytes(const Placements& placements, absl::Span<const int> coordinate);
  // Bytes that the block of `a` at one coordinate and the block of `b` at another have in common.
  int64_t OverlapBytes(const Placements& a, absl::Span<const int> a_coordinate, const Placements& b,
                       absl::Span<const int> b_coordinate);
  // Bytes of `to` that a rank lacks under `from`, at the rank that lacks most.
  int64_t MaxMissingBytes(const Placements& from, const Placements& to);

 private:
  struct Cut {
    std::vector<int> axes;                        // that cut the dim
    std::vector<std::vector<Interval>> by_index;  // row-major in the coordinates on `axes`; empty until asked for
  };
  const std::vector<Interval>& Owned(int dim, const Placements& placements, absl::Span<const int> coordinate);

  const Mesh& mesh_;
  const int64_t item_size_;
  const Shape shape_;
  std::map<std::vector<int64_t>, Cut> cuts_;  // key: the dim and the placements that cut it
};

}  // namespace tp
