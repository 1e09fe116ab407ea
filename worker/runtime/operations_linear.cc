// Products with weights and of activations, convolutions, lookups.
#include <memory>

#include "common/base/status.h"
#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

// [.., k] -> [m, k].
template <typename View>
View Rows(View view) {
  int64_t m = 1;
  for (size_t d = 0; d + 1 < view.shape.size(); ++d) m *= view.shape[d];
  view.shape = {m, view.shape.back()};
  return view;
}

absl::Status Linear(const Context& context, Values in, Values out) {
  const bool bias = Present(in, 2);
  const ConstTensorView bias_view = bias ? ConstTensorView(in[2].view) : ConstTensorView();
  std::unique_ptr<PackedWeight> packed;  // of a weight that is computed by the program
  const PackedWeight* weight = in[1].packed;
  if (weight == nullptr) {
    TP_ASSIGN_OR_RETURN(packed, context.device.PackWeight(context.stream, in[1].view));
    weight = packed.get();
  }
  TP_RETURN_IF_ERROR(
      context.device.Linear(context.stream, Rows(in[0].view), *weight, bias ? &bias_view : nullptr, Rows(out[0].view)));
  return packed == nullptr ? absl::OkStatus() : context.device.Synchronize(context.stream);
}

absl::Status Embedding(const Context& context, Values in, Values out) {
  const Shape offset = LocalOffset(*in[1].global, in[1].spec->placements, context.mesh, context.coordinate);
  return context.device.Embedding(context.stream, in[0].view, in[1].view, offset[0], (*in[1].global)[0], out[0].view);
}

// One number for all dims, or one each.
Shape SpatialAttribute(const Context& context, const std::string& name, int64_t fallback, size_t dims) {
  auto values = AttributeOr<std::vector<int64_t>>(context.instruction.attributes, name, {});
  if (values.empty()) values.push_back(fallback);
  if (values.size() == 1) values.resize(dims, values[0]);
  return values;
}

absl::Status Convolution(const Context& context, Values in, Values out) {
  ConvolutionArguments arguments;
  arguments.input = in[0].view;
  arguments.weight = in[1].view;
  const ConstTensorView bias = Present(in, 2) ? ConstTensorView(in[2].view) : ConstTensorView();
  if (Present(in, 2)) arguments.bias = &bias;
  arguments.output = out[0].view;
  const size_t dims = in[0].view.shape.size() - 2;
  arguments.stride = SpatialAttribute(context, "stride", 1, dims);
  arguments.padding = SpatialAttribute(context, "padding", 0, dims);
  arguments.dilation = SpatialAttribute(context, "dilation", 1, dims);
  return context.device.Convolution(context.stream, arguments);
}

// A 1-D operand is a row on the left and a column on the right; the result lacks that dim.
absl::Status MatMul(const Context& context, Values in, Values out) {
  ConstTensorView a = in[0].view, b = in[1].view;
  TensorView output = out[0].view;
  const bool column = b.shape.size() == 1;
  if (a.shape.size() == 1) {
    a.shape.insert(a.shape.begin(), 1);
    output.shape.insert(column ? output.shape.end() : output.shape.end() - 1, 1);
  }
  if (column) {
    b.shape.push_back(1);
    output.shape.push_back(1);
  }
  return context.device.MatMul(context.stream, a, b, output);
}

}  // namespace

absl::Span<const NamedOperation> LinearOperations() {
  static constexpr NamedOperation kOperations[] = {{"linear", Linear},      {"embedding", Embedding},
                                                   {"conv1d", Convolution}, {"conv2d", Convolution},
                                                   {"matmul", MatMul},      {"bmm", MatMul}};
  return kOperations;
}

}  // namespace tp::worker::operations
