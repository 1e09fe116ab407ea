#include <type_traits>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker::cuda {
namespace {

// Integers wrap at the end, so all are computed in 64 unsigned bits; a NaN wins in max and min.
struct Combine {
  TermReduction op;
  TP_HD int64_t operator()(int64_t a, int64_t b) const {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    if (op == TermReduction::kSum) return static_cast<int64_t>(x + y);
    if (op == TermReduction::kProduct) return static_cast<int64_t>(x * y);
    return op == TermReduction::kMax ? (a < b ? b : a) : (b < a ? b : a);
  }
  template <class N>
  TP_HD N operator()(N a, N b) const {
    if (op == TermReduction::kSum) return a + b;
    if (op == TermReduction::kProduct) return a * b;
    return op == TermReduction::kMax ? (a < b || b != b ? b : a) : (b < a || b != b ? b : a);
  }
};

template <class T>
struct SumTerms {
  using Acc = std::conditional_t<std::is_floating_point_v<WideType<T>>, WideType<T>, int64_t>;
  Combine combine;
  bool divide;
  const T* terms;
  int64_t n, count;
  T* out;
  TP_HD void operator()(int64_t i) const {
    Acc total = static_cast<Acc>(Widen(terms[i]));
    for (int64_t t = 1; t < n; ++t) total = combine(total, static_cast<Acc>(Widen(terms[t * count + i])));
    if constexpr (std::is_floating_point_v<Acc>) {
      if (divide) total = total / static_cast<Acc>(n);
    }
    out[i] = Narrow<T>(total);
  }
};

}  // namespace

absl::Status ReduceTerms(cudaStream_t stream, TermReduction op, bool divide, DType dtype, const void* terms, int64_t n,
                         int64_t count, void* output) {
  if (n < 1) return absl::InvalidArgumentError(absl::StrCat("reduce_terms of ", n, " terms"));
  if (divide && !IsFloating(dtype)) return Unimplemented("an average", dtype);
  if (dtype == DType::kBool && op != TermReduction::kMax && op != TermReduction::kMin) {
    return Unimplemented("a sum or product", dtype);
  }
  return VisitElements(dtype, [&](auto type) {
    using T = decltype(type);
    return ForEach("reduce_terms", stream, count,
                   SumTerms<T>{Combine{op}, divide, static_cast<const T*>(terms), n, count, static_cast<T*>(output)});
  });
}

}  // namespace tp::worker::cuda
