// Element types of kernels by dtype or by size. Example:
//   return VisitFloats("scale", dtype, [&](auto type) { return Run<decltype(type)>(stream, view); });
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/numbers.h"
#include "worker/device/device.h"

namespace tp::worker::cuda {

// BOOL: whatever is not 0 counts as 1.
struct Flag {
  uint8_t bits;
};
TP_HD uint8_t Widen(Flag value) { return value.bits != 0 ? 1 : 0; }
template <>
struct Wide<Flag> {
  using type = uint8_t;
};
template <>
struct NarrowTo<Flag> {
  template <class From>
  TP_HD static Flag From_(From value) {
    return {static_cast<uint8_t>(value != 0 ? 1 : 0)};
  }
};

// Elements that are only moved.
struct alignas(16) Bytes16 {
  uint64_t low, high;
};

inline absl::Status Unimplemented(std::string_view kernel, DType dtype) {
  return absl::UnimplementedError(
      absl::StrCat(std::string(kernel), " of ", std::string(DTypeName(dtype)), " on the CUDA device"));
}

// visit(T{}) for F32, BF16 and F16.
template <class Visit>
absl::Status VisitFloats(std::string_view kernel, DType dtype, const Visit& visit) {
  if (dtype == DType::kF32) return visit(float{});
  if (dtype == DType::kBF16) return visit(BF16{});
  if (dtype == DType::kF16) return visit(F16{});
  return Unimplemented(kernel, dtype);
}

// visit(T{}) for every dtype.
template <class Visit>
absl::Status VisitElements(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF32:
      return visit(float{});
    case DType::kBF16:
      return visit(BF16{});
    case DType::kF16:
      return visit(F16{});
    case DType::kF64:
      return visit(double{});
    case DType::kI64:
      return visit(int64_t{});
    case DType::kI32:
      return visit(int32_t{});
    case DType::kU8:
      return visit(uint8_t{});
    case DType::kBool:
      return visit(Flag{});
  }
  return Unimplemented("an unknown type", dtype);
}

// visit(T{}) for a T of `bytes`: 1, 2, 4, 8 or 16.
template <class Visit>
absl::Status VisitSizes(int64_t bytes, const Visit& visit) {
  if (bytes == 1) return visit(uint8_t{});
  if (bytes == 2) return visit(uint16_t{});
  if (bytes == 4) return visit(uint32_t{});
  if (bytes == 8) return visit(uint64_t{});
  return visit(Bytes16{});
}

template <class T>
const T* As(const ConstTensorView& view) {
  return static_cast<const T*>(view.data);
}
template <class T>
T* As(const TensorView& view) {
  return static_cast<T*>(view.data);
}

}  // namespace tp::worker::cuda
