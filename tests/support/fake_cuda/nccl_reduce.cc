#include "nccl_reduce.h"

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "worker/device/cuda/numbers.h"

namespace tp_fake {
namespace {

using tp::worker::cuda::BF16;
using tp::worker::cuda::F16;
using tp::worker::cuda::Narrow;
using tp::worker::cuda::Widen;
using tp::worker::cuda::WideType;

template <class W>
W Combine(ncclRedOp_t op, W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    if (op == ncclProd) return a * b;
    if (op == ncclMax) return std::fmax(a, b);
    if (op == ncclMin) return std::fmin(a, b);
    return a + b;
  } else {
    if (op == ncclProd) return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    if (op == ncclMax) return a < b ? b : a;
    if (op == ncclMin) return b < a ? b : a;
    return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}

template <class T>
void Reduce(ncclRedOp_t op, const std::vector<const void*>& terms, size_t count, void* out) {
  using W = WideType<T>;
  for (size_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(terms[0])[i];
    for (size_t t = 1; t < terms.size(); ++t) {
      value = Narrow<T>(Combine<W>(op, Widen(value), Widen(static_cast<const T*>(terms[t])[i])));
    }
    if (op == ncclAvg) value = Narrow<T>(static_cast<W>(Widen(value) / static_cast<W>(terms.size())));
    static_cast<T*>(out)[i] = value;
  }
}

}  // namespace

size_t ElementBytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

void ReduceInto(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& terms, size_t count, void* out) {
  switch (type) {
    case ncclInt8:
      return Reduce<int8_t>(op, terms, count, out);
    case ncclUint8:
      return Reduce<uint8_t>(op, terms, count, out);
    case ncclInt32:
      return Reduce<int32_t>(op, terms, count, out);
    case ncclUint32:
      return Reduce<uint32_t>(op, terms, count, out);
    case ncclInt64:
      return Reduce<int64_t>(op, terms, count, out);
    case ncclUint64:
      return Reduce<uint64_t>(op, terms, count, out);
    case ncclFloat16:
      return Reduce<F16>(op, terms, count, out);
    case ncclBfloat16:
      return Reduce<BF16>(op, terms, count, out);
    case ncclFloat32:
      return Reduce<float>(op, terms, count, out);
    case ncclFloat64:
      return Reduce<double>(op, terms, count, out);
    default:
      return;  // refused before
  }
}

}  // namespace tp_fake
