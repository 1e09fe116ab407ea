#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/shapes.h"

namespace tp::worker::kernels {
namespace {

int64_t Grain(const DimRows& rows) {
  return std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(1, rows.count));
}

// NaN is larger than everything else and equal to itself.
template <typename N>
bool Above(N x, N y) {
  if constexpr (std::is_floating_point_v<N>) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
  }
  return x > y;
}

// visit(T{}, the function that makes a number of an element of type T).
template <typename Visit>
absl::Status VisitNumbers(std::string_view kernel, DType dtype, const Visit& visit) {
  const auto same = [](auto value) { return value; };
  switch (dtype) {
    case DType::kF32:
      return visit(float{}, same);
    case DType::kF64:
      return visit(double{}, same);
    case DType::kBF16:
      return visit(uint16_t{}, FloatFromBF16);
    case DType::kF16:
      return visit(uint16_t{}, FloatFromF16);
    case DType::kI64:
      return visit(int64_t{}, same);
    case DType::kI32:
      return visit(int32_t{}, same);
    case DType::kU8:
      return visit(uint8_t{}, same);
    case DType::kBool:
      break;
  }
  return Unimplemented(kernel, dtype);
}

absl::Status CheckOutputs(std::string_view kernel, const ConstTensorView& input, int64_t elements,
                          const TensorView* values, const TensorView& indices) {
  if (indices.dtype != DType::kI64)
    return Unimplemented(absl::StrCat(std::string(kernel), "'s indices"), indices.dtype);
  return CheckOrdered(kernel, input, elements, values, indices);
}

}  // namespace

absl::Status ArgExtreme(int threads, Extreme which, const ConstTensorView& input, int dim, const TensorView* values,
                        const TensorView& indices) {
  TP_ASSIGN_OR_RETURN(const DimRows rows, RowsAlong(input.shape, dim));
  TP_RETURN_IF_ERROR(CheckOutputs("argmax", input, rows.rows, values, indices));
  if (rows.rows == 0) return absl::OkStatus();
  if (rows.count == 0) return absl::InvalidArgumentError(absl::StrCat("argmax over the empty dim ", dim));
  return VisitNumbers("argmax", input.dtype, [&](auto type, const auto& number) {
    using T = decltype(type);
    ParallelFor(threads, rows.rows, Grain(rows), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* from = static_cast<const T*>(input.data) + rows.first(r);
        int64_t best = 0;
        auto extreme = number(from[0]);
        for (int64_t i = 1; i < rows.count; ++i) {
          const auto value = number(from[i * rows.inner]);
          if (!(which == Extreme::kMax ? Above(value, extreme) : Above(extreme, value))) continue;
          best = i;
          extreme = value;
        }
        static_cast<int64_t*>(indices.data)[r] = best;
        if (values != nullptr) static_cast<T*>(values->data)[r] = from[best * rows.inner];
      }
    });
    return absl::OkStatus();
  });
}

absl::Status TopK(int threads, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                  const TensorView& indices) {
  TP_ASSIGN_OR_RETURN(const DimRows rows, RowsAlong(input.shape, dim));
  TP_RETURN_IF_ERROR(CheckOutputs("topk", input, rows.rows * k, &values, indices));
  if (k < 0 || k > rows.count) {
    return absl::InvalidArgumentError(absl::StrCat("topk: k ", k, " of ", rows.count, " elements"));
  }
  if (rows.rows == 0 || k == 0) return absl::OkStatus();
  return VisitNumbers("topk", input.dtype, [&](auto type, const auto& number) {
    using T = decltype(type);
    ParallelFor(threads, rows.rows, Grain(rows), [&](int64_t begin, int64_t end) {
      std::vector<int64_t> order(static_cast<size_t>(rows.count));
      for (int64_t r = begin; r < end; ++r) {
        const T* from = static_cast<const T*>(input.data) + rows.first(r);
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t x, int64_t y) {
          const auto a = number(from[x * rows.inner]);
          const auto b = number(from[y * rows.inner]);
          return Above(a, b) || (!Above(b, a) && x < y);
        });
        const int64_t to = r / rows.inner * k * rows.inner + r % rows.inner;
        for (int64_t i = 0; i < k; ++i) {
          const int64_t at = order[static_cast<size_t>(i)];
          static_cast<int64_t*>(indices.data)[to + i * rows.inner] = at;
          static_cast<T*>(values.data)[to + i * rows.inner] = from[at * rows.inner];
        }
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace tp::worker::kernels
