#include "worker/tensor/block.h"

#include <algorithm>

#include "common/base/status.h"

namespace tp::worker {
namespace {

// Calls `copy(offset_a, offset_b, packed_offset, sizes)` for each box of the part.
template <typename Copy>
absl::Status ForEachBox(const SharedPart& part, const Copy& copy) {
  if (part.elements == 0) return absl::OkStatus();
  const size_t rank = part.dims.size();
  std::vector<size_t> at(rank, 0);
  Shape a(rank), b(rank), packed(rank), sizes(rank);
  while (true) {
    for (size_t d = 0; d < rank; ++d) {
      const SharedRun& run = part.dims[d][at[d]];
      a[d] = run.in_a;
      b[d] = run.in_b;
      packed[d] = run.packed;
      sizes[d] = run.size;
    }
    TP_RETURN_IF_ERROR(copy(a, b, packed, sizes));
    size_t d = rank;
    while (d > 0 && ++at[d - 1] == part.dims[d - 1].size()) at[--d] = 0;
    if (d == 0) return absl::OkStatus();
  }
}

}  // namespace

Block BlockOf(absl::Span<const int64_t> global, const Placements& placements, const Mesh& mesh,
              absl::Span<const int> coordinate) {
  Block block;
  for (size_t d = 0; d < global.size(); ++d) {
    block.dims.push_back(OwnedIntervals(global[d], static_cast<int>(d), placements, mesh, coordinate));
    int64_t size = 0;
    for (const Interval& interval : block.dims.back()) size += interval.end - interval.begin;
    block.shape.push_back(size);
  }
  return block;
}

SharedPart SharedPartOf(const Block& a, const Block& b) {
  SharedPart part;
  part.elements = 1;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    std::vector<SharedRun> runs;
    int64_t packed = 0;
    size_t i = 0, j = 0;
    int64_t base_a = 0, base_b = 0;  // local positions of the intervals' begins
    while (i < a.dims[d].size() && j < b.dims[d].size()) {
      const Interval& x = a.dims[d][i];
      const Interval& y = b.dims[d][j];
      const int64_t begin = std::max(x.begin, y.begin), end = std::min(x.end, y.end);
      if (begin < end) {
        runs.push_back({base_a + begin - x.begin, base_b + begin - y.begin, packed, end - begin});
        packed += end - begin;
      }
      if (x.end <= y.end) {
        base_a += x.end - x.begin;
        ++i;
      } else {
        base_b += y.end - y.begin;
        ++j;
      }
    }
    part.dims.push_back(std::move(runs));
    part.shape.push_back(packed);
    part.elements *= packed;
  }
  return part;
}

absl::Status CopyShared(Device& device, Stream& stream, const SharedPart& part, const ConstTensorView& a,
                        const TensorView& b) {
  return ForEachBox(part, [&](const Shape& in_a, const Shape& in_b, const Shape&, const Shape& sizes) {
    return device.CopyBox(stream, a, in_a, b, in_b, sizes);
  });
}

absl::Status PackShared(Device& device, Stream& stream, const SharedPart& part, const ConstTensorView& a,
                        void* packed) {
  const TensorView to{a.dtype, packed, part.shape};
  return ForEachBox(part, [&](const Shape& in_a, const Shape&, const Shape& at, const Shape& sizes) {
    return device.CopyBox(stream, a, in_a, to, at, sizes);
  });
}

absl::Status UnpackShared(Device& device, Stream& stream, const SharedPart& part, const void* packed,
                          const TensorView& b) {
  const ConstTensorView from(b.dtype, packed, part.shape);
  return ForEachBox(part, [&](const Shape&, const Shape& in_b, const Shape& at, const Shape& sizes) {
    return device.CopyBox(stream, from, at, b, in_b, sizes);
  });
}

}  // namespace tp::worker
