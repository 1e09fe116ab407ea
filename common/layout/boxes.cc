#include "common/layout/boxes.h"

namespace tp {

std::vector<Box> LocalBoxes(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
                            absl::Span<const int> coordinate) {
  const size_t rank = global.size();
  std::vector<std::vector<Interval>> owned;
  for (size_t d = 0; d < rank; ++d) {
    owned.push_back(OwnedIntervals(global[d], static_cast<int>(d), placements, mesh, coordinate));
    int64_t size = 0;
    for (const Interval& interval : owned.back()) size += interval.end - interval.begin;
    if (size == 0) return {};
  }
  std::vector<Box> boxes;
  std::vector<size_t> at(rank, 0);
  Shape local(rank, 0);
  while (true) {
    Box box{Shape(rank), Shape(rank), local};
    for (size_t d = 0; d < rank; ++d) {
      box.offset[d] = owned[d][at[d]].begin;
      box.shape[d] = owned[d][at[d]].end - owned[d][at[d]].begin;
    }
    boxes.push_back(std::move(box));
    size_t d = rank;
    for (; d > 0; --d) {
      const Interval& passed = owned[d - 1][at[d - 1]];
      local[d - 1] += passed.end - passed.begin;
      if (++at[d - 1] < owned[d - 1].size()) break;
      at[d - 1] = 0;
      local[d - 1] = 0;
    }
    if (d == 0) return boxes;
  }
}

}  // namespace tp
