// Lookups by index and rows by index; indices are global.
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

// Elements along `dim` at the indices of in[1], seen as `index_shape`, which broadcasts to the output's. Where the
// input is cut along `dim`, this rank's block answers for its own indices, the others give zeros.
absl::Status GatherAlong(const Context& context, Values in, size_t dim, Shape index_shape,
                         std::optional<int64_t> ignored, const TensorView& output) {
  const int64_t size = (*in[0].global)[dim];
  const std::vector<Interval> owned =
      OwnedIntervals(size, static_cast<int>(dim), in[0].spec->placements, context.mesh, context.coordinate);
  if (owned.size() > 1) {
    return absl::UnimplementedError(
        absl::StrCat(context.instruction.function, " along a dim of which a rank holds ", owned.size(), " pieces"));
  }
  ConstTensorView index = in[1].view;
  index.shape = std::move(index_shape);
  return context.device.Gather(context.stream, in[0].view, index, static_cast<int>(dim), owned[0].begin, size, ignored,
                               output);
}

absl::Status IndexSelect(const Context& context, Values in, Values out) {
  const size_t rank = in[0].view.shape.size();
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 0, rank));
  Shape index_shape(rank, 1);
  index_shape[dim] = in[1].view.shape[0];
  return GatherAlong(context, in, dim, std::move(index_shape), std::nullopt, out[0].view);
}

absl::Status Gather(const Context& context, Values in, Values out) {
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 0, in[0].view.shape.size()));
  return GatherAlong(context, in, dim, in[1].view.shape, std::nullopt, out[0].view);
}

absl::Status Pick(const Context& context, Values in, Values out) {
  const auto dim = static_cast<size_t>(DimOf(context, "dim", 1, in[0].view.shape.size()));
  Shape index_shape = in[1].view.shape;
  index_shape.insert(index_shape.begin() + static_cast<int64_t>(dim), 1);
  TensorView output = out[0].view;
  output.shape = index_shape;
  return GatherAlong(context, in, dim, index_shape, Integer(context, "ignore_index", -100), output);
}

absl::Status Arange(const Context& context, Values, Values out) {
  const int64_t start = Integer(context, "start", 0);
  const int64_t step = Integer(context, "step", 1);
  const TensorView& whole = out[0].view;
  for (const Box& box : LocalBoxes(*out[0].global, out[0].spec->placements, context.mesh, context.coordinate)) {
    const TensorView part{whole.dtype, static_cast<char*>(whole.data) + box.local[0] * ItemSize(whole.dtype),
                          box.shape};
    TP_RETURN_IF_ERROR(context.device.Arange(context.stream, start + step * box.offset[0], step, part));
  }
  return absl::OkStatus();
}

absl::Status SelectRows(const Context& context, Values in, Values out) {
  TensorView output = out[0].view;  // [1, rows, ..]
  output.shape.erase(output.shape.begin());
  return context.device.SelectRows(context.stream, TokenRows(in[0].view), in[1].view, output);
}

}  // namespace

absl::Span<const NamedOperation> IndexOperations() {
  static constexpr NamedOperation kOperations[] = {{"index_select", IndexSelect},
                                                   {"gather", Gather},
                                                   {"pick", Pick},
                                                   {"arange", Arange},
                                                   {"select_rows", SelectRows}};
  return kOperations;
}

}  // namespace tp::worker::operations
