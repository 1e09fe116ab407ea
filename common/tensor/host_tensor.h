// A dense row-major tensor in host memory. Example: `HostTensor t = MakeHostTensor<float>({2, 2}, {1, 2, 3, 4});`
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tp {

struct HostTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::string bytes;  // ElementCount(shape) * ItemSize(dtype) bytes, little endian

  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  bool operator==(const HostTensor& other) const = default;
};

// "expected N bytes, got M" (INVALID_ARGUMENT) where bytes do not fit the shape.
absl::Status ValidateHostTensor(const HostTensor& tensor);

template <typename T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kF32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kF64;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kU8;
}

template <typename T>
HostTensor MakeHostTensor(Shape shape, const std::vector<T>& values) {
  HostTensor tensor{DTypeOf<T>(), std::move(shape), std::string(values.size() * sizeof(T), '\0')};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// The values as `to`: floats rounded to nearest even, float to integer truncated, anything to BOOL by != 0.
HostTensor ConvertTo(const HostTensor& tensor, DType to);

// Copies a box of a row-major array: `sizes` elements from offset `from_offset` of `from` (shape `from_shape`) to
// offset `to_offset` of `to` (shape `to_shape`). All spans have one length (the rank); boxes must lie inside.
void CopyBox(const void* from, absl::Span<const int64_t> from_shape, absl::Span<const int64_t> from_offset, void* to,
             absl::Span<const int64_t> to_shape, absl::Span<const int64_t> to_offset, absl::Span<const int64_t> sizes,
             int64_t item_size);

}  // namespace tp
