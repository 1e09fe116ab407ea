#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/broadcast.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"
#include "worker/device/shapes.h"
#include "worker/device/strided.h"

namespace tp::worker::kernels {
namespace {

constexpr int64_t kGrainBytes = 1 << 16;

int64_t RowsOfGrain(int64_t row_bytes) { return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes)); }

// Calls visit with the indices as their own type.
template <typename Visit>
absl::Status VisitIndices(std::string_view kernel, const ConstTensorView& index, const Visit& visit) {
  if (index.dtype == DType::kI64) return visit(static_cast<const int64_t*>(index.data));
  if (index.dtype == DType::kI32) return visit(static_cast<const int32_t*>(index.data));
  return Unimplemented(absl::StrCat(std::string(kernel), "'s indices"), index.dtype);
}

// INVALID_ARGUMENT naming the first index outside [0, limit) that is not `ignored`.
template <typename Index>
absl::Status CheckIndices(const char* what, const Index* index, int64_t count, int64_t limit,
                          std::optional<int64_t> ignored) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = index[i];
    if ((value >= 0 && value < limit) || value == ignored) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, " ", value, " at position ", i, " outside [0, ", limit, ")"));
  }
  return absl::OkStatus();
}

// What Gather reads: elements of type T along the dim.
template <typename T, typename Index>
void GatherElements(int threads, const StridedLoop<2>& loop, const T* input, int64_t dim_stride, int64_t begin_index,
                    int64_t dim_size, const Index* index, T* output) {
  const int64_t inner = loop.inner();
  const int64_t index_stride = loop.inner_stride(0);
  const int64_t input_stride = loop.inner_stride(1);
  ParallelFor(threads, loop.outer(), std::max<int64_t>(1, (int64_t{1} << 14) / inner), [&](int64_t begin, int64_t end) {
    loop.ForRows(begin, end, [&](int64_t r, const std::array<int64_t, 2>& offsets) {
      T* to = output + r * inner;
      if (index_stride == 0 && input_stride == 1) {  // a row of neighbours
        const int64_t at = static_cast<int64_t>(index[offsets[0]]) - begin_index;
        if (at >= 0 && at < dim_size) {
          std::memcpy(to, input + offsets[1] + at * dim_stride, static_cast<size_t>(inner) * sizeof(T));
        } else {
          std::fill(to, to + inner, T{0});
        }
        return;
      }
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t at = static_cast<int64_t>(index[offsets[0] + i * index_stride]) - begin_index;
        to[i] = at >= 0 && at < dim_size ? input[offsets[1] + i * input_stride + at * dim_stride] : T{0};
      }
    });
  });
}

template <typename Index>
absl::Status GatherTyped(int threads, const ConstTensorView& input, const Index* index, int64_t index_count,
                         const StridedLoop<2>& loop, int64_t dim_stride, int64_t dim_size, int64_t begin, int64_t limit,
                         std::optional<int64_t> ignored, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckIndices("index", index, index_count, limit, ignored));
  if (ElementCount(output.shape) == 0) return absl::OkStatus();
  const auto run = [&](auto type) {
    using T = decltype(type);
    GatherElements(threads, loop, static_cast<const T*>(input.data), dim_stride, begin, dim_size, index,
                   static_cast<T*>(output.data));
    return absl::OkStatus();
  };
  switch (ItemSize(input.dtype)) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

}  // namespace

absl::Status Embedding(int threads, const ConstTensorView& ids, const ConstTensorView& table, int64_t row_begin,
                       int64_t vocabulary, const TensorView& output) {
  TP_RETURN_IF_ERROR(CheckEmbedding(ids, table, output));
  const int64_t rows = table.shape[0];
  const int64_t count = ElementCount(ids.shape);
  const int64_t bytes = table.shape[1] * ItemSize(table.dtype);
  const auto* from = static_cast<const char*>(table.data);
  auto* to = static_cast<char*>(output.data);
  return VisitIndices("embedding", ids, [&](const auto* id) -> absl::Status {
    TP_RETURN_IF_ERROR(CheckIndices("id", id, count, vocabulary, std::nullopt));
    if (bytes == 0) return absl::OkStatus();
    ParallelFor(threads, count, RowsOfGrain(bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = id[i] - row_begin;
        if (row >= 0 && row < rows) {
          std::memcpy(to + i * bytes, from + row * bytes, static_cast<size_t>(bytes));
        } else {
          std::memset(to + i * bytes, 0, static_cast<size_t>(bytes));
        }
      }
    });
    return absl::OkStatus();
  });
}

absl::Status SelectRows(int threads, const ConstTensorView& input, const ConstTensorView& rows,
                        const TensorView& output) {
  if (rows.dtype != DType::kI64) return Unimplemented("select_rows' indices", rows.dtype);
  const int64_t count = ElementCount(rows.shape);
  TP_RETURN_IF_ERROR(CheckSelectRows(input, rows, output));
  const auto* row = static_cast<const int64_t*>(rows.data);
  TP_RETURN_IF_ERROR(CheckIndices("row", row, count, input.shape[0], std::nullopt));
  const int64_t bytes = ElementCount(absl::MakeConstSpan(input.shape).subspan(1)) * ItemSize(input.dtype);
  if (bytes == 0) return absl::OkStatus();
  ParallelFor(threads, count, RowsOfGrain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<char*>(output.data) + i * bytes, static_cast<const char*>(input.data) + row[i] * bytes,
                  static_cast<size_t>(bytes));
    }
  });
  return absl::OkStatus();
}

absl::Status Gather(int threads, const ConstTensorView& input, const ConstTensorView& index, int dim, int64_t begin,
                    int64_t limit, std::optional<int64_t> ignored, const TensorView& output) {
  TP_ASSIGN_OR_RETURN(const GatherPlan plan, PlanGather(input, index, dim, output));
  return VisitIndices("gather", index, [&](const auto* indices) {
    return GatherTyped(threads, input, indices, ElementCount(index.shape), plan.loop, plan.dim_stride, plan.dim_size,
                       begin, limit, ignored, output);
  });
}

}  // namespace tp::worker::kernels
