#include "worker/tensor/block.h"

#include <algorithm>

#include "common/base/status.h"

namespace tp::worker {
namespace {

// Calls `box(offset, sizes)` for boxes that make up elements [begin, end) of a row-major array, each of them one run
// of it: of dims `d` on, inside `offset` on the dims before. At most 2 x rank - 1 of them. Example: [1, 9) of [3, 4] is
// [1, 4) of row 0, row 1 whole, [0, 1) of row 2.
template <typename Box>
absl::Status ForEachRun(const Shape& shape, size_t d, Shape offset, int64_t begin, int64_t end, const Box& box) {
  if (begin == end) return absl::OkStatus();
  Shape sizes(shape.size(), 1);
  if (d == shape.size()) return box(offset, sizes);
  int64_t inner = 1;
  for (size_t i = d + 1; i < shape.size(); ++i) inner *= shape[i];
  int64_t first = begin / inner;
  const int64_t last = end / inner;
  if (begin % inner != 0) {
    offset[d] = first;
    TP_RETURN_IF_ERROR(ForEachRun(shape, d + 1, offset, begin % inner, std::min(inner, end - first * inner), box));
    ++first;
  }
  if (first < last) {
    offset[d] = first;
    sizes[d] = last - first;
    for (size_t i = d + 1; i < shape.size(); ++i) sizes[i] = shape[i];
    TP_RETURN_IF_ERROR(box(offset, sizes));
  }
  if (end % inner == 0 || last < first) return absl::OkStatus();
  offset[d] = last;
  return ForEachRun(shape, d + 1, offset, 0, end % inner, box);
}

// Calls `copy(offset_a, offset_b, offset_in_box, sizes)` for each piece of a box of the packed array that is a box of
// a's array and of b's.
template <typename Copy>
absl::Status ForEachPiece(const SharedPart& part, const Shape& offset, const Shape& sizes, const Copy& copy) {
  const size_t rank = part.dims.size();
  std::vector<size_t> first(rank), last(rank), at(rank);  // runs of each dim that the box touches
  for (size_t d = 0; d < rank; ++d) {
    const std::vector<SharedRun>& runs = part.dims[d];
    const auto before = [](const SharedRun& run, int64_t index) { return run.packed + run.size <= index; };
    first[d] = static_cast<size_t>(std::lower_bound(runs.begin(), runs.end(), offset[d], before) - runs.begin());
    last[d] = first[d];
    while (last[d] < runs.size() && runs[last[d]].packed < offset[d] + sizes[d]) ++last[d];
    at[d] = first[d];
  }
  Shape a(rank), b(rank), in_box(rank), piece(rank);
  const auto place = [&](size_t d) {
    const SharedRun& run = part.dims[d][at[d]];
    const int64_t begin = std::max(run.packed, offset[d]);
    a[d] = run.in_a + begin - run.packed;
    b[d] = run.in_b + begin - run.packed;
    in_box[d] = begin - offset[d];
    piece[d] = std::min(run.packed + run.size, offset[d] + sizes[d]) - begin;
  };
  for (size_t d = 0; d < rank; ++d) place(d);
  while (true) {
    TP_RETURN_IF_ERROR(copy(a, b, in_box, piece));
    size_t d = rank;
    while (d > 0 && ++at[d - 1] == last[d - 1]) {
      at[d - 1] = first[d - 1];
      place(--d);
    }
    if (d == 0) return absl::OkStatus();
    place(d - 1);
  }
}

// Calls `copy(box's data, box's shape, offset_a, offset_b, offset_in_box, sizes)` for all pieces of elements
// [begin, end) of the packed array.
template <typename Pointer, typename Copy>
absl::Status ForEachPackedPiece(const SharedPart& part, int64_t begin, int64_t end, int64_t item, Pointer* packed,
                                const Copy& copy) {
  Pointer* next = packed;
  return ForEachRun(part.shape, 0, Shape(part.shape.size(), 0), begin, end,
                    [&](const Shape& offset, const Shape& sizes) {
                      Pointer* const box = next;
                      next += ElementCount(sizes) * item;
                      return ForEachPiece(part, offset, sizes,
                                          [&](const Shape& a, const Shape& b, const Shape& in_box, const Shape& piece) {
                                            return copy(box, sizes, a, b, in_box, piece);
                                          });
                    });
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
  if (part.elements == 0) return absl::OkStatus();
  return ForEachPiece(part, Shape(part.shape.size(), 0), part.shape,
                      [&](const Shape& in_a, const Shape& in_b, const Shape&, const Shape& sizes) {
                        return device.CopyBox(stream, a, in_a, b, in_b, sizes);
                      });
}

absl::Status PackShared(Device& device, Stream& stream, const SharedPart& part, int64_t begin, int64_t end,
                        const ConstTensorView& a, void* packed) {
  return ForEachPackedPiece(
      part, begin, end, ItemSize(a.dtype), static_cast<char*>(packed),
      [&](char* box, const Shape& shape, const Shape& in_a, const Shape&, const Shape& at, const Shape& sizes) {
        return device.CopyBox(stream, a, in_a, {a.dtype, box, shape}, at, sizes);
      });
}

absl::Status UnpackShared(Device& device, Stream& stream, const SharedPart& part, int64_t begin, int64_t end,
                          const void* packed, const TensorView& b) {
  return ForEachPackedPiece(
      part, begin, end, ItemSize(b.dtype), static_cast<const char*>(packed),
      [&](const char* box, const Shape& shape, const Shape&, const Shape& in_b, const Shape& at, const Shape& sizes) {
        return device.CopyBox(stream, ConstTensorView(b.dtype, box, shape), at, b, in_b, sizes);
      });
}

}  // namespace tp::worker
