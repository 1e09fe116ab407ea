#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cuda/convert.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/strided_index.h"
#include "worker/device/shapes.h"

namespace tp::worker::cuda {
namespace {

template <class T>
struct Move {
  StridedIndex<2> index;
  const T* from;
  T* to;
  TP_HD void operator()(int64_t i) const {
    int64_t at[2];
    index.Locate(i, at);
    to[at[1]] = from[at[0]];
  }
};

// `loop` over larger items, while neighbours in the last dim can be moved together; the item's bytes.
int64_t JoinItems(StridedLoop<2>& loop, const void* from, const void* to, int64_t item) {
  const auto joins = [&] {
    if (item >= 16 || loop.inner_stride(0) != 1 || loop.inner_stride(1) != 1 || loop.inner() % 2 != 0) return false;
    const auto at = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    bool even = at % static_cast<uintptr_t>(2 * item) == 0;
    for (const Shape& strides : loop.strides) {
      for (size_t d = 0; d + 1 < strides.size(); ++d) even = even && strides[d] % 2 == 0;
    }
    return even;
  };
  while (joins()) {
    item *= 2;
    loop.sizes.back() /= 2;
    for (Shape& strides : loop.strides) {
      for (size_t d = 0; d + 1 < strides.size(); ++d) strides[d] /= 2;
    }
  }
  return item;
}

struct Count {
  int64_t start, step;
  template <class T>
  TP_HD T At(int64_t i) const {
    const uint64_t value = static_cast<uint64_t>(start) + static_cast<uint64_t>(step) * static_cast<uint64_t>(i);
    return Convert<T>(static_cast<int64_t>(value));
  }
};
template <class T>
struct FillCount {
  Count count;
  T* out;
  TP_HD void operator()(int64_t i) const { out[i] = count.template At<T>(i); }
};

}  // namespace

absl::Status CopyStrided(cudaStream_t stream, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                         const TensorView& to, absl::Span<const int64_t> to_strides, absl::Span<const int64_t> sizes) {
  TP_ASSIGN_OR_RETURN(StridedLoop<2> loop, CopyLoop(from, from_strides, to, to_strides, sizes));
  if (ElementCount(sizes) == 0) return absl::OkStatus();
  int64_t item = ItemSize(from.dtype);
  if (loop.sizes.size() == 1 && loop.inner_stride(0) == 1 && loop.inner_stride(1) == 1) {
    return CudaStatus(
        cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(loop.inner() * item), cudaMemcpyDeviceToDevice, stream),
        "copy");
  }
  item = JoinItems(loop, from.data, to.data, item);
  TP_ASSIGN_OR_RETURN(const StridedIndex<2> index, StridedIndex<2>::Create("copy", loop));
  return VisitSizes(item, [&](auto type) {
    using T = decltype(type);
    return ForEach("copy", stream, ElementCount(loop.sizes), Move<T>{index, As<T>(from), As<T>(to)});
  });
}

absl::Status CopyBox(cudaStream_t stream, const ConstTensorView& from, absl::Span<const int64_t> from_offset,
                     const TensorView& to, absl::Span<const int64_t> to_offset, absl::Span<const int64_t> sizes) {
  if (from.dtype != to.dtype) return absl::InvalidArgumentError("copy_box: two dtypes");
  const size_t rank = sizes.size();
  bool fits =
      from.shape.size() == rank && to.shape.size() == rank && from_offset.size() == rank && to_offset.size() == rank;
  const Shape from_strides = RowMajorStrides(from.shape), to_strides = RowMajorStrides(to.shape);
  int64_t from_at = 0, to_at = 0;
  for (size_t d = 0; d < rank && fits; ++d) {
    fits = from_offset[d] >= 0 && from_offset[d] + sizes[d] <= from.shape[d] && to_offset[d] >= 0 &&
           to_offset[d] + sizes[d] <= to.shape[d];
    from_at += from_offset[d] * from_strides[d];
    to_at += to_offset[d] * to_strides[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("copy_box: a box of ", ShapeText(sizes), " at ",
                                                   ShapeText(from_offset), " of ", ShapeText(from.shape), " to ",
                                                   ShapeText(to_offset), " of ", ShapeText(to.shape)));
  }
  if (ElementCount(sizes) == 0) return absl::OkStatus();
  const int64_t item = ItemSize(from.dtype);
  return CopyStrided(stream, ConstTensorView(from.dtype, As<char>(from) + from_at * item, {}), from_strides,
                     TensorView{to.dtype, As<char>(to) + to_at * item, {}}, to_strides, sizes);
}

absl::Status Transpose(cudaStream_t stream, const ConstTensorView& input, absl::Span<const int> permutation,
                       const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const Shape strides, TransposeStrides(input, permutation, output));
  return CopyStrided(stream, input, strides, output, RowMajorStrides(output.shape), output.shape);
}

absl::Status Arange(cudaStream_t stream, int64_t start, int64_t step, const TensorView& output) {
  const auto fill = [&](auto type) {
    using T = decltype(type);
    return ForEach("arange", stream, ElementCount(output.shape), FillCount<T>{{start, step}, As<T>(output)});
  };
  switch (output.dtype) {
    case DType::kI64:
      return fill(int64_t{});
    case DType::kI32:
      return fill(int32_t{});
    case DType::kF32:
      return fill(float{});
    case DType::kBF16:
      return fill(BF16{});
    default:
      return Unimplemented("arange", output.dtype);
  }
}

}  // namespace tp::worker::cuda
