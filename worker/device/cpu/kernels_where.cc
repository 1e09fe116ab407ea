#include <algorithm>

#include "common/base/status.h"
#include "worker/device/broadcast.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"

namespace tp::worker::kernels {
namespace {

template <typename T>
void Choose(int threads, const StridedLoop<3>& loop, const void* condition, const void* a, const void* b,
            void* output) {
  const auto* chooses = static_cast<const uint8_t*>(condition);
  const auto* from_a = static_cast<const T*>(a);
  const auto* from_b = static_cast<const T*>(b);
  auto* to = static_cast<T*>(output);
  const int64_t inner = loop.inner();
  const int64_t sc = loop.inner_stride(0), sa = loop.inner_stride(1), sb = loop.inner_stride(2);
  ParallelFor(threads, loop.outer(), std::max<int64_t>(1, (int64_t{1} << 14) / inner), [&](int64_t begin, int64_t end) {
    loop.ForRows(begin, end, [&](int64_t r, const std::array<int64_t, 3>& offsets) {
      for (int64_t i = 0; i < inner; ++i) {
        to[r * inner + i] =
            chooses[offsets[0] + i * sc] != 0 ? from_a[offsets[1] + i * sa] : from_b[offsets[2] + i * sb];
      }
    });
  });
}

}  // namespace

absl::Status Where(int threads, const ConstTensorView& condition, const ConstTensorView& a, const ConstTensorView& b,
                   const TensorView& output) {
  if (condition.dtype != DType::kBool) return Unimplemented("a condition", condition.dtype);
  TP_ASSIGN_OR_RETURN(const StridedLoop<3> loop, WhereLoop(condition, a, b, output));
  if (ElementCount(output.shape) == 0) return absl::OkStatus();
  switch (ItemSize(output.dtype)) {
    case 1:
      Choose<uint8_t>(threads, loop, condition.data, a.data, b.data, output.data);
      break;
    case 2:
      Choose<uint16_t>(threads, loop, condition.data, a.data, b.data, output.data);
      break;
    case 4:
      Choose<uint32_t>(threads, loop, condition.data, a.data, b.data, output.data);
      break;
    default:
      Choose<uint64_t>(threads, loop, condition.data, a.data, b.data, output.data);
      break;
  }
  return absl::OkStatus();
}

absl::Status MaskedFill(int threads, const ConstTensorView& input, const ConstTensorView& mask, double value,
                        const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const Element element, EncodeElement("masked_fill", input.dtype, value));
  return Where(threads, mask, ConstTensorView(input.dtype, element.bytes, {}), input, output);
}

}  // namespace tp::worker::kernels
