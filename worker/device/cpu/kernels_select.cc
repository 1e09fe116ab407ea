#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/parallel.h"

namespace tp::worker::kernels {
namespace {

constexpr int64_t kGrainBytes = 1 << 16;

int64_t RowsOfGrain(int64_t row_bytes) { return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes)); }

// NaN is the largest; ties go to the lowest index.
template <typename T, typename Number>
int64_t IndexOfMax(const T* from, int64_t count, int64_t stride, const Number& number) {
  int64_t best = 0;
  auto most = number(from[0]);
  for (int64_t i = 1; i < count; ++i) {
    const auto value = number(from[i * stride]);
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>) {
      if (std::isnan(most)) break;
      if (!(value > most) && !std::isnan(value)) continue;
    } else {
      if (!(value > most)) continue;
    }
    best = i;
    most = value;
  }
  return best;
}

template <typename T, typename Number>
void ArgMaxRows(int threads, const ConstTensorView& input, int64_t count, int64_t inner, const TensorView& output,
                const Number& number) {
  auto* to = static_cast<int64_t*>(output.data);
  ParallelFor(threads, ElementCount(output.shape), RowsOfGrain(count * static_cast<int64_t>(sizeof(T))),
              [&](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  const T* from = static_cast<const T*>(input.data) + r / inner * count * inner + r % inner;
                  to[r] = IndexOfMax(from, count, inner, number);
                }
              });
}

}  // namespace

absl::Status Embedding(int threads, const ConstTensorView& ids, const ConstTensorView& table, int64_t row_begin,
                       int64_t vocabulary, const TensorView& output) {
  if (ids.dtype != DType::kI64) return Unimplemented("embedding's ids", ids.dtype);
  Shape expected = ids.shape;
  if (table.shape.size() == 2) expected.push_back(table.shape[1]);
  if (table.shape.size() != 2 || table.dtype != output.dtype || expected != output.shape) {
    return absl::InvalidArgumentError(absl::StrCat("embedding: ids ", ShapeText(ids.shape), ", table ",
                                                   ShapeText(table.shape), ", output ", ShapeText(output.shape)));
  }
  const int64_t rows = table.shape[0];
  const int64_t count = ElementCount(ids.shape);
  const auto* id = static_cast<const int64_t*>(ids.data);
  for (int64_t i = 0; i < count; ++i) {
    if (id[i] >= 0 && id[i] < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat("id ", id[i], " at position ", i, " outside [0, ", vocabulary, ")"));
  }
  const int64_t bytes = table.shape[1] * ItemSize(table.dtype);
  if (bytes == 0) return absl::OkStatus();
  const auto* from = static_cast<const char*>(table.data);
  auto* to = static_cast<char*>(output.data);
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
}

absl::Status SelectRows(int threads, const ConstTensorView& input, const ConstTensorView& rows,
                        const TensorView& output) {
  if (rows.dtype != DType::kI64) return Unimplemented("select_rows' indices", rows.dtype);
  const int64_t count = ElementCount(rows.shape);
  if (input.shape.empty() || input.dtype != output.dtype) {
    return absl::InvalidArgumentError("select_rows: the input needs a dim and the output's dtype");
  }
  const auto row_shape = absl::MakeConstSpan(input.shape).subspan(1);
  if (ElementCount(output.shape) != count * ElementCount(row_shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("select_rows: ", count, " rows of ", ShapeText(input.shape), " to ", ShapeText(output.shape)));
  }
  const auto* row = static_cast<const int64_t*>(rows.data);
  for (int64_t i = 0; i < count; ++i) {
    if (row[i] >= 0 && row[i] < input.shape[0]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("row ", row[i], " at position ", i, " outside [0, ", input.shape[0], ")"));
  }
  const int64_t bytes = ElementCount(row_shape) * ItemSize(input.dtype);
  if (bytes == 0) return absl::OkStatus();
  ParallelFor(threads, count, RowsOfGrain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<char*>(output.data) + i * bytes, static_cast<const char*>(input.data) + row[i] * bytes,
                  static_cast<size_t>(bytes));
    }
  });
  return absl::OkStatus();
}

absl::Status ArgMax(int threads, const ConstTensorView& input, int dim, const TensorView& output) {
  if (output.dtype != DType::kI64) return Unimplemented("argmax's output", output.dtype);
  TP_ASSIGN_OR_RETURN(const int at, NormalizeDim(dim, static_cast<int>(input.shape.size())));
  const auto shape = absl::MakeConstSpan(input.shape);
  const size_t axis = static_cast<size_t>(at);
  const int64_t count = shape[axis];
  const int64_t inner = ElementCount(shape.subspan(axis + 1));
  const int64_t rows = ElementCount(shape.first(axis)) * inner;
  if (ElementCount(output.shape) != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("argmax: ", ShapeText(shape), " over dim ", at, " to ", ShapeText(output.shape)));
  }
  if (rows == 0) return absl::OkStatus();
  if (count == 0) return absl::InvalidArgumentError(absl::StrCat("argmax over the empty dim ", at));
  const auto same = [](auto value) { return value; };
  switch (input.dtype) {
    case DType::kF32:
      ArgMaxRows<float>(threads, input, count, inner, output, same);
      break;
    case DType::kF64:
      ArgMaxRows<double>(threads, input, count, inner, output, same);
      break;
    case DType::kBF16:
      ArgMaxRows<uint16_t>(threads, input, count, inner, output, FloatFromBF16);
      break;
    case DType::kF16:
      ArgMaxRows<uint16_t>(threads, input, count, inner, output, FloatFromF16);
      break;
    case DType::kI64:
      ArgMaxRows<int64_t>(threads, input, count, inner, output, same);
      break;
    case DType::kI32:
      ArgMaxRows<int32_t>(threads, input, count, inner, output, same);
      break;
    case DType::kU8:
      ArgMaxRows<uint8_t>(threads, input, count, inner, output, same);
      break;
    case DType::kBool:
      return Unimplemented("argmax", input.dtype);
  }
  return absl::OkStatus();
}

}  // namespace tp::worker::kernels
