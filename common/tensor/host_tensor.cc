#include "common/tensor/host_tensor.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace tp {
namespace {

// A wide value as float, rounded to odd: a second rounding to 16 bits then equals one rounding of the wide value.
float RoundToOdd(long double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(nearest) || static_cast<long double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<long double>(nearest)) > std::fabs(value)) --bits;  // one step towards 0
  return std::bit_cast<float>(bits | 1u);
}

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct Boolean {
  uint8_t value;
};

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The number that an element stands for.
float Number(BF16 value) { return FloatFromBF16(value.bits); }
float Number(F16 value) { return FloatFromF16(value.bits); }
uint8_t Number(Boolean value) { return value.value != 0 ? 1 : 0; }
template <typename T>
T Number(T value) {
  return value;
}

// Towards 0; what does not fit becomes the nearest integer that does, NaN becomes 0.
template <typename To, typename From>
To Truncate(From value) {
  if (std::isnan(value)) return 0;
  const From low = static_cast<From>(std::numeric_limits<To>::min());
  if (value <= low) return std::numeric_limits<To>::min();
  // max() + 1 is a power of two, exact in every From.
  const From high = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  if (value >= high) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <typename To, typename N>
To Encode(N number) {
  if constexpr (std::is_same_v<To, Boolean>) {
    return Boolean{static_cast<uint8_t>(number != 0 ? 1 : 0)};
  } else if constexpr (std::is_same_v<To, BF16> || std::is_same_v<To, F16>) {
    float value;
    if constexpr (std::is_same_v<N, float>) {
      value = number;
    } else {
      value = RoundToOdd(static_cast<long double>(number));
    }
    if constexpr (std::is_same_v<To, BF16>)
      return BF16{BF16FromFloat(value)};
    else
      return F16{F16FromFloat(value)};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<N>) {
    return Truncate<To>(number);
  } else {
    return static_cast<To>(number);
  }
}

template <typename From, typename To>
void ConvertAll(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const To value = Encode<To>(Number(Load<From>(from + i * static_cast<int64_t>(sizeof(From)))));
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &value, sizeof(To));
  }
}

// Calls `visit` with a value of the type that stores `dtype`.
template <typename Visitor>
void VisitDType(DType dtype, Visitor visit) {
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
      return visit(Boolean{});
  }
}

}  // namespace

absl::Status ValidateHostTensor(const HostTensor& tensor) {
  TP_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(tensor.shape, tensor.dtype));
  if (static_cast<uint64_t>(bytes) != tensor.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", bytes, " bytes, got ", tensor.bytes.size(), " for ",
                                                   std::string(DTypeName(tensor.dtype)), ShapeText(tensor.shape)));
  }
  return absl::OkStatus();
}

HostTensor ConvertTo(const HostTensor& tensor, DType to) {
  if (tensor.dtype == to) return tensor;
  const int64_t count = ElementCount(tensor.shape);
  HostTensor result{to, tensor.shape, std::string(static_cast<size_t>(count * ItemSize(to)), '\0')};
  VisitDType(tensor.dtype, [&](auto source) {
    VisitDType(to, [&](auto target) {
      ConvertAll<decltype(source), decltype(target)>(tensor.bytes.data(), result.bytes.data(), count);
    });
  });
  return result;
}

void CopyBox(const void* from, absl::Span<const int64_t> from_shape, absl::Span<const int64_t> from_offset, void* to,
             absl::Span<const int64_t> to_shape, absl::Span<const int64_t> to_offset, absl::Span<const int64_t> sizes,
             int64_t item_size) {
  const size_t rank = sizes.size();
  TP_CHECK(from_shape.size() == rank && from_offset.size() == rank && to_shape.size() == rank &&
           to_offset.size() == rank);
  for (const int64_t size : sizes) {
    if (size == 0) return;
  }
  // The longest run that lies in one piece on both sides: whole trailing dims and a range of the dim before them.
  size_t run_dim = rank;
  int64_t run = item_size;
  while (run_dim > 0) {
    --run_dim;
    run *= sizes[run_dim];
    if (sizes[run_dim] != from_shape[run_dim] || sizes[run_dim] != to_shape[run_dim]) break;
  }
  const Shape from_strides = RowMajorStrides(from_shape);
  const Shape to_strides = RowMajorStrides(to_shape);
  int64_t from_at = 0;
  int64_t to_at = 0;
  for (size_t d = 0; d < rank; ++d) {
    TP_CHECK(from_offset[d] >= 0 && from_offset[d] + sizes[d] <= from_shape[d]);
    TP_CHECK(to_offset[d] >= 0 && to_offset[d] + sizes[d] <= to_shape[d]);
    from_at += from_offset[d] * from_strides[d];
    to_at += to_offset[d] * to_strides[d];
  }
  Shape index(run_dim, 0);
  while (true) {
    std::memcpy(static_cast<char*>(to) + to_at * item_size, static_cast<const char*>(from) + from_at * item_size,
                static_cast<size_t>(run));
    size_t d = run_dim;
    while (d > 0) {
      --d;
      from_at += from_strides[d];
      to_at += to_strides[d];
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
      from_at -= sizes[d] * from_strides[d];
      to_at -= sizes[d] * to_strides[d];
      if (d == 0) return;
    }
    if (run_dim == 0) return;
  }
}

}  // namespace tp
