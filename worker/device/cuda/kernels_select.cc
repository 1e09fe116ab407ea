#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cuda/elements.h"
#include "worker/device/cuda/faults.h"
#include "worker/device/cuda/kernels.h"
#include "worker/device/cuda/strided_index.h"
#include "worker/device/shapes.h"

namespace tp::worker::cuda {
namespace {

// visit with the indices as their own type.
template <class Visit>
absl::Status VisitIndices(std::string_view kernel, const ConstTensorView& index, const Visit& visit) {
  if (index.dtype == DType::kI64) return visit(As<int64_t>(index));
  if (index.dtype == DType::kI32) return visit(As<int32_t>(index));
  return Unimplemented(absl::StrCat(std::string(kernel), "'s indices"), index.dtype);
}

struct Outside {
  int64_t limit;
  bool ignores;
  int64_t ignored;
  TP_HD bool operator()(int64_t value) const { return (value < 0 || value >= limit) && !(ignores && value == ignored); }
};

// Rows of `units` elements of T; rows outside [begin, begin + rows) give zeros.
template <class T, class Index>
struct TakeRows {
  const Index* index;
  int64_t begin, rows, units;
  const T* from;
  T* to;
  TP_HD void operator()(int64_t i) const {
    const int64_t position = i / units;
    const int64_t row = static_cast<int64_t>(index[position]) - begin;
    to[i] = row >= 0 && row < rows ? from[row * units + i - position * units] : T{};
  }
};

template <class Index>
absl::Status Take(const char* kernel, cudaStream_t stream, const Index* index, int64_t count, int64_t begin,
                  int64_t rows, int64_t row_bytes, const void* from, void* to) {
  if (row_bytes == 0) return absl::OkStatus();
  const auto at = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  int64_t unit = 16;
  while (row_bytes % unit != 0 || at % static_cast<uintptr_t>(unit) != 0) unit /= 2;
  const int64_t units = row_bytes / unit;
  return VisitSizes(unit, [&](auto type) {
    using T = decltype(type);
    return ForEach(kernel, stream, count * units,
                   TakeRows<T, Index>{index, begin, rows, units, static_cast<const T*>(from), static_cast<T*>(to)});
  });
}

template <class T, class Index>
struct GatherEach {
  StridedIndex<2> index;
  int64_t dim_stride, dim_size, begin;
  const Index* at_dim;
  const T* in;
  T* out;
  TP_HD void operator()(int64_t i) const {
    int64_t at[2];
    index.Locate(i, at);
    const int64_t row = static_cast<int64_t>(at_dim[at[0]]) - begin;
    out[i] = row >= 0 && row < dim_size ? in[at[1] + row * dim_stride] : T{};
  }
};

}  // namespace

absl::Status Embedding(cudaStream_t stream, KernelFault* fault, const ConstTensorView& ids,
                       const ConstTensorView& table, int64_t row_begin, int64_t vocabulary, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckEmbedding(ids, table, output));
  const int64_t count = ElementCount(ids.shape);
  return VisitIndices("embedding", ids, [&](const auto* id) -> absl::Status {
    TP_RETURN_IF_ERROR(CheckElements("embedding", stream, fault, KernelFault::kIdOutside, id, count, vocabulary,
                                     Outside{vocabulary, false, 0}));
    return Take("embedding", stream, id, count, row_begin, table.shape[0], table.shape[1] * ItemSize(table.dtype),
                table.data, output.data);
  });
}

absl::Status SelectRows(cudaStream_t stream, KernelFault* fault, const ConstTensorView& input,
                        const ConstTensorView& rows, const TensorView& output) {
  if (rows.dtype != DType::kI64) return Unimplemented("select_rows' indices", rows.dtype);
  TP_RETURN_IF_ERROR(CheckSelectRows(input, rows, output));
  const int64_t count = ElementCount(rows.shape), limit = input.shape[0];
  TP_RETURN_IF_ERROR(CheckElements("select_rows", stream, fault, KernelFault::kRowOutside, As<int64_t>(rows), count,
                                   limit, Outside{limit, false, 0}));
  const int64_t row_bytes = ElementCount(absl::MakeConstSpan(input.shape).subspan(1)) * ItemSize(input.dtype);
  return Take("select_rows", stream, As<int64_t>(rows), count, 0, limit, row_bytes, input.data, output.data);
}

absl::Status Gather(cudaStream_t stream, KernelFault* fault, const ConstTensorView& input, const ConstTensorView& index,
                    int dim, int64_t begin, int64_t limit, std::optional<int64_t> ignored, const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const GatherPlan plan, PlanGather(input, index, dim, output));
  const int64_t count = ElementCount(output.shape);
  return VisitIndices("gather", index, [&](const auto* indices) -> absl::Status {
    TP_RETURN_IF_ERROR(CheckElements("gather", stream, fault, KernelFault::kIndexOutside, indices,
                                     ElementCount(index.shape), limit,
                                     Outside{limit, ignored.has_value(), ignored.value_or(0)}));
    if (count == 0) return absl::OkStatus();
    TP_ASSIGN_OR_RETURN(const StridedIndex<2> walk, StridedIndex<2>::Create("gather", plan.loop));
    return VisitSizes(ItemSize(input.dtype), [&](auto type) {
      using T = decltype(type);
      using Index = std::remove_const_t<std::remove_pointer_t<decltype(indices)>>;
      return ForEach(
          "gather", stream, count,
          GatherEach<T, Index>{walk, plan.dim_stride, plan.dim_size, begin, indices, As<T>(input), As<T>(output)});
    });
  });
}

}  // namespace tp::worker::cuda
