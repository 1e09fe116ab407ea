#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/shapes.h"

namespace tp::worker::cuda {
namespace {

// NaN is larger than everything else and equal to itself.
template <class N>
TP_HD bool Above(N x, N y) {
  if constexpr (std::is_floating_point_v<N>) {
    if (x != x || y != y) return x != x && y == y;
  }
  return x > y;
}

// An element and where it stands along the dim; nowhere: -1.
template <class N>
struct Candidate {
  N value;
  int64_t index;
};
// Which of two stands first: the larger (or smaller) one, of equal ones that of the lower index.
template <class N>
struct First {
  bool largest;
  TP_HD bool Before(const Candidate<N>& a, const Candidate<N>& b) const {
    const N& x = largest ? a.value : b.value;
    const N& y = largest ? b.value : a.value;
    return Above(x, y) || (!Above(y, x) && a.index < b.index);
  }
  TP_HD Candidate<N> operator()(const Candidate<N>& a, const Candidate<N>& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    return Before(a, b) ? a : b;
  }
};

// A block a row: the first `k` of it in order, one after the other. values or nullptr.
template <class T>
struct TakeFirst {
  int64_t count, inner, k;
  bool largest;
  const T* in;
  T* values;
  int64_t* indices;
  template <class B>
  TP_DEVICE void operator()(B& block, int64_t row) const {
    using N = WideType<T>;
    const int64_t outer = row / inner, rest = row - outer * inner;
    const T* from = in + outer * count * inner + rest;
    const First<N> first{largest};
    Candidate<N> last{N{0}, -1};
    for (int64_t i = 0; i < k; ++i) {
      const Candidate<N> next = block.template Reduce<Candidate<N>>(
          count, Candidate<N>{N{0}, -1},
          [&](int64_t at) {
            Candidate<N> candidate{Widen(from[at * inner]), at};
            if (last.index >= 0 && !first.Before(last, candidate)) candidate.index = -1;
            return candidate;
          },
          first);
      last = next;
      if (block.leader()) {
        const int64_t to = (outer * k + i) * inner + rest;
        indices[to] = next.index;
        if (values != nullptr) values[to] = from[next.index * inner];
      }
    }
  }
};

absl::Status Run(const char* kernel, cudaStream_t stream, const DimRows& rows, int64_t k, bool largest,
                 const ConstTensorView& input, const TensorView* values, const TensorView& indices) {
  return VisitElements(input.dtype, [&](auto type) -> absl::Status {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, Flag>) {
      return Unimplemented(kernel, input.dtype);
    } else {
      return ForBlocks(kernel, stream, rows.rows,
                       TakeFirst<T>{rows.count, rows.inner, k, largest, As<T>(input),
                                    values == nullptr ? nullptr : As<T>(*values), As<int64_t>(indices)});
    }
  });
}

absl::Status CheckResults(const char* kernel, const ConstTensorView& input, int64_t elements, const TensorView* values,
                          const TensorView& indices) {
  if (indices.dtype != DType::kI64) {
    return Unimplemented(absl::StrCat(std::string(kernel), "'s indices"), indices.dtype);
  }
  return CheckOrdered(kernel, input, elements, values, indices);
}

}  // namespace

absl::Status ArgExtreme(cudaStream_t stream, Extreme which, const ConstTensorView& input, int dim,
                        const TensorView* values, const TensorView& indices) {
  TP_ASSIGN_OR_RETURN(const DimRows rows, RowsAlong(input.shape, dim));
  TP_RETURN_IF_ERROR(CheckResults("argmax", input, rows.rows, values, indices));
  if (rows.rows == 0) return absl::OkStatus();
  if (rows.count == 0) return absl::InvalidArgumentError(absl::StrCat("argmax over the empty dim ", dim));
  return Run("argmax", stream, rows, 1, which == Extreme::kMax, input, values, indices);
}

absl::Status TopK(cudaStream_t stream, const ConstTensorView& input, int64_t k, int dim, const TensorView& values,
                  const TensorView& indices) {
  TP_ASSIGN_OR_RETURN(const DimRows rows, RowsAlong(input.shape, dim));
  TP_RETURN_IF_ERROR(CheckResults("topk", input, rows.rows * k, &values, indices));
  if (k < 0 || k > rows.count) {
    return absl::InvalidArgumentError(absl::StrCat("topk: k ", k, " of ", rows.count, " elements"));
  }
  if (rows.rows == 0 || k == 0) return absl::OkStatus();
  return Run("topk", stream, rows, k, /*largest=*/true, input, &values, indices);
}

}  // namespace tp::worker::cuda
