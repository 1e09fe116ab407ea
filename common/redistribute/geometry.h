// Which bytes of one tensor each rank holds under a layout, and how many two layouts share. Remembers the intervals it
// computed, so that a search over many layouts stays cheap. Example: 5 rows of 40 bytes, S(0) on tp=4:
// LocalBytes({S(0)}, {2}) is 40; OverlapBytes({S(0)}, {2}, {R}, {0}) is 40.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "common/layout/spec.h"

namespace tp {

// Thread-compatible; used by one thread. `mesh` must outlive it.
class Geometry {
 public:
  // How a layout cuts each dim: one number for each, equal for layouts that place the dim alike.
  using Cuts = absl::InlinedVector<int, 4>;

  Geometry(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape)
      : mesh_(mesh), item_size_(ItemSize(dtype)), shape_(shape.begin(), shape.end()) {}

  // Bytes of the block at `coordinate`.
  int64_t LocalBytes(const Placements& placements, absl::Span<const int> coordinate);
  // Bytes of the largest block.
  int64_t MaxLocalBytes(const Placements& placements);
  // Bytes that the block of `a` at one coordinate and the block of `b` at another have in common.
  int64_t OverlapBytes(const Placements& a, absl::Span<const int> a_coordinate, const Placements& b,
                       absl::Span<const int> b_coordinate);
  // Bytes of `to` that a rank lacks under `from`, at the rank that lacks most.
  int64_t MaxMissingBytes(const Placements& from, const Placements& to);

  // The same by numbers.
  Cuts CutsOf(absl::Span<const Placement* const> placements);
  int64_t MaxLocalBytes(const Cuts& cuts);
  int64_t MaxMissingBytes(const Cuts& from, const Cuts& to);

 private:
  // One way to cut one dim.
  struct Cut {
    int dim = 0;
    Placements placements = {};                        // R where the axis does not cut the dim
    std::vector<int> axes = {};                        // that cut the dim
    std::vector<std::vector<Interval>> by_index = {};  // row-major in the coordinates on `axes`; empty until asked for
    int64_t most = 0;                                  // elements of the longest block
  };
  // Elements that two cuts of one dim share on each rank, row-major in the coordinates on `axes`.
  struct Overlap {
    std::vector<int> axes = {};
    std::vector<int64_t> to = {};  // elements under the second
    std::vector<int64_t> common = {};
  };

  Cut& CutOf(int dim, absl::Span<const Placement* const> placements);
  int CutNumber(int dim, absl::Span<const Placement* const> placements);
  const std::vector<Interval>& Owned(Cut& cut, absl::Span<const int> coordinate);
  const Overlap& OverlapOf(int from, int to);
  int PlacementNumber(const Placement& placement);

  const Mesh& mesh_;
  const int64_t item_size_;
  const Shape shape_;
  std::vector<Placement> known_;                                       // placements by number
  std::vector<std::unique_ptr<Cut>> cuts_;                             // by number
  absl::flat_hash_map<absl::InlinedVector<int, 6>, int> cut_numbers_;  // key: the dim and pairs of axis and placement
  absl::flat_hash_map<std::pair<int, int>, std::unique_ptr<Overlap>> overlaps_;
};

}  // namespace tp
