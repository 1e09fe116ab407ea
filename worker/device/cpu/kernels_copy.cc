#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/host_tensor.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/shapes.h"
#include "worker/device/strided.h"

namespace tp::worker::kernels {
namespace {

template <typename T>
void Move(int threads, const StridedLoop<2>& loop, const void* input, void* output) {
  const auto* from = static_cast<const T*>(input);
  auto* to = static_cast<T*>(output);
  const int64_t inner = loop.inner();
  const int64_t from_stride = loop.inner_stride(0);
  const int64_t to_stride = loop.inner_stride(1);
  ParallelFor(threads, loop.outer(), std::max<int64_t>(1, (int64_t{1} << 14) / inner), [&](int64_t begin, int64_t end) {
    loop.ForRows(begin, end, [&](int64_t, const std::array<int64_t, 2>& offsets) {
      const T* source = from + offsets[0];
      T* target = to + offsets[1];
      if (from_stride == 1 && to_stride == 1) {
        std::memcpy(target, source, static_cast<size_t>(inner) * sizeof(T));
      } else if (to_stride == 1) {
        for (int64_t i = 0; i < inner; ++i) target[i] = source[i * from_stride];
      } else {
        for (int64_t i = 0; i < inner; ++i) target[i * to_stride] = source[i * from_stride];
      }
    });
  });
}

}  // namespace

absl::Status CopyStrided(int threads, const ConstTensorView& from, absl::Span<const int64_t> from_strides,
                         const TensorView& to, absl::Span<const int64_t> to_strides, absl::Span<const int64_t> sizes) {
  TP_ASSIGN_OR_RETURN(const StridedLoop<2> loop, CopyLoop(from, from_strides, to, to_strides, sizes));
  if (ElementCount(sizes) == 0) return absl::OkStatus();
  switch (ItemSize(from.dtype)) {
    case 1:
      Move<uint8_t>(threads, loop, from.data, to.data);
      break;
    case 2:
      Move<uint16_t>(threads, loop, from.data, to.data);
      break;
    case 4:
      Move<uint32_t>(threads, loop, from.data, to.data);
      break;
    default:
      Move<uint64_t>(threads, loop, from.data, to.data);
      break;
  }
  return absl::OkStatus();
}

absl::Status Transpose(int threads, const ConstTensorView& input, absl::Span<const int> permutation,
                       const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const Shape strides, TransposeStrides(input, permutation, output));
  return CopyStrided(threads, input, strides, output, RowMajorStrides(output.shape), output.shape);
}

absl::Status Arange(int64_t start, int64_t step, const TensorView& output) {
  if (output.dtype != DType::kI64 && output.dtype != DType::kI32 && output.dtype != DType::kF32 &&
      output.dtype != DType::kBF16) {
    return Unimplemented("arange", output.dtype);
  }
  std::vector<int64_t> values(static_cast<size_t>(ElementCount(output.shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = start + step * static_cast<int64_t>(i);
  const HostTensor converted =
      ConvertTo(MakeHostTensor<int64_t>({static_cast<int64_t>(values.size())}, values), output.dtype);
  if (!values.empty()) std::memcpy(output.data, converted.bytes.data(), converted.bytes.size());
  return absl::OkStatus();
}

}  // namespace tp::worker::kernels
