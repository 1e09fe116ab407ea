#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/cpu/strided.h"

namespace tp::worker::kernels {
namespace {

template <typename T>
void Move(int threads, const StridedLoop<1>& loop, const void* input, void* output) {
  const auto* from = static_cast<const T*>(input);
  auto* to = static_cast<T*>(output);
  const int64_t inner = loop.inner();
  const int64_t stride = loop.inner_stride(0);
  ParallelFor(threads, loop.outer(), std::max<int64_t>(1, (int64_t{1} << 14) / inner), [&](int64_t begin, int64_t end) {
    loop.ForRows(begin, end, [&](int64_t r, const std::array<int64_t, 1>& offsets) {
      if (stride == 1) {
        std::memcpy(to + r * inner, from + offsets[0], static_cast<size_t>(inner) * sizeof(T));
      } else {
        for (int64_t i = 0; i < inner; ++i) to[r * inner + i] = from[offsets[0] + i * stride];
      }
    });
  });
}

}  // namespace

absl::Status Transpose(int threads, const ConstTensorView& input, absl::Span<const int> permutation,
                       const TensorView& output) {
  const size_t rank = input.shape.size();
  bool fits = permutation.size() == rank && output.shape.size() == rank && input.dtype == output.dtype;
  std::vector<bool> used(rank, false);
  for (size_t d = 0; d < rank && fits; ++d) {
    const size_t from = static_cast<size_t>(permutation[d]);
    fits = permutation[d] >= 0 && from < rank && !used[from] && output.shape[d] == input.shape[from];
    if (fits) used[from] = true;
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("transpose: ", ShapeText(input.shape), " to ",
                                                   ShapeText(output.shape), " by a permutation of ", permutation.size(),
                                                   " dims"));
  }
  if (ElementCount(input.shape) == 0) return absl::OkStatus();
  const Shape input_strides = RowMajorStrides(input.shape);
  Shape strides(rank);
  for (size_t d = 0; d < rank; ++d) strides[d] = input_strides[static_cast<size_t>(permutation[d])];
  const auto loop = StridedLoop<1>::Create(output.shape, {strides});
  switch (ItemSize(input.dtype)) {
    case 1:
      Move<uint8_t>(threads, loop, input.data, output.data);
      break;
    case 2:
      Move<uint16_t>(threads, loop, input.data, output.data);
      break;
    case 4:
      Move<uint32_t>(threads, loop, input.data, output.data);
      break;
    default:
      Move<uint64_t>(threads, loop, input.data, output.data);
      break;
  }
  return absl::OkStatus();
}

}  // namespace tp::worker::kernels
