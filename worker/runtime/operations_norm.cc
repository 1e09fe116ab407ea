// Norms and softmax.
#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

absl::Status RmsNorm(const Context& context, Values in, Values out) {
  return context.device.RmsNorm(context.stream, in[0].view, in[1].view, Number(context, "eps", 1e-6), out[0].view);
}

absl::Status LayerNorm(const Context& context, Values in, Values out) {
  const ConstTensorView weight = Present(in, 1) ? ConstTensorView(in[1].view) : ConstTensorView();
  const ConstTensorView bias = Present(in, 2) ? ConstTensorView(in[2].view) : ConstTensorView();
  return context.device.LayerNorm(context.stream, in[0].view, Present(in, 1) ? &weight : nullptr,
                                  Present(in, 2) ? &bias : nullptr, static_cast<int>(Integer(context, "dims", 1)),
                                  Number(context, "eps", 1e-5), out[0].view);
}

absl::Status Softmax(const Context& context, Values in, Values out) {
  return context.device.Softmax(context.stream, in[0].view, DimOf(context, "dim", -1, in[0].view.shape.size()),
                                out[0].view);
}
absl::Status LogSoftmax(const Context& context, Values in, Values out) {
  return context.device.LogSoftmax(context.stream, in[0].view, DimOf(context, "dim", -1, in[0].view.shape.size()),
                                   out[0].view);
}

}  // namespace

absl::Span<const NamedOperation> NormOperations() {
  static constexpr NamedOperation kOperations[] = {
      {"rms_norm", RmsNorm}, {"layer_norm", LayerNorm}, {"softmax", Softmax}, {"log_softmax", LogSoftmax}};
  return kOperations;
}

}  // namespace tp::worker::operations
