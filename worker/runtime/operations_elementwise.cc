// Functions of one element at a time, with numpy's broadcasting.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

template <UnaryOp op>
absl::Status Unary(const Context& context, Values in, Values out) {
  return context.device.Unary(context.stream, op, in[0].view, out[0].view);
}
absl::Status Gelu(const Context& context, Values in, Values out) {
  const bool tanh = AttributeOr<std::string>(context.instruction.attributes, "approximate", "none") == "tanh";
  return context.device.Unary(context.stream, tanh ? UnaryOp::kGeluTanh : UnaryOp::kGelu, in[0].view, out[0].view);
}
absl::Status Cast(const Context& context, Values in, Values out) {
  return context.device.Cast(context.stream, in[0].view, out[0].view);
}

// With `other`, or the number `scalar` where it is omitted.
template <BinaryOp op>
absl::Status Binary(const Context& context, Values in, Values out) {
  if (Present(in, 1)) return context.device.Binary(context.stream, op, in[0].view, in[1].view, out[0].view);
  const double scalar = Number(context, "scalar", std::numeric_limits<double>::quiet_NaN());
  if (std::isnan(scalar)) {
    return absl::InternalError(absl::StrCat(context.instruction.function, ": neither other nor scalar"));
  }
  return context.device.BinaryScalar(context.stream, op, in[0].view, scalar, out[0].view);
}

absl::Status Where(const Context& context, Values in, Values out) {
  return context.device.Where(context.stream, in[0].view, in[1].view, in[2].view, out[0].view);
}
absl::Status MaskedFill(const Context& context, Values in, Values out) {
  return context.device.MaskedFill(context.stream, in[0].view, in[1].view, Number(context, "value", 0), out[0].view);
}

absl::Status AddOnce(const Context& context, Values in, Values out) {
  for (int64_t axis : AttributeOr<std::vector<int64_t>>(context.instruction.attributes, "axes", {})) {
    if (context.coordinate[static_cast<size_t>(axis)] != 0) return CopyElements(context, in.subspan(0, 1), out);
  }
  return context.device.Binary(context.stream, BinaryOp::kAdd, in[0].view, in[1].view, out[0].view);
}

}  // namespace

absl::Span<const NamedOperation> ElementwiseOperations() {
  static constexpr NamedOperation kOperations[] = {
      {"neg", Unary<UnaryOp::kNegate>},
      {"abs", Unary<UnaryOp::kAbs>},
      {"exp", Unary<UnaryOp::kExp>},
      {"log", Unary<UnaryOp::kLog>},
      {"sqrt", Unary<UnaryOp::kSqrt>},
      {"rsqrt", Unary<UnaryOp::kRsqrt>},
      {"sin", Unary<UnaryOp::kSin>},
      {"cos", Unary<UnaryOp::kCos>},
      {"tanh", Unary<UnaryOp::kTanh>},
      {"sigmoid", Unary<UnaryOp::kSigmoid>},
      {"silu", Unary<UnaryOp::kSilu>},
      {"relu", Unary<UnaryOp::kRelu>},
      {"gelu", Gelu},
      {"logical_not", Unary<UnaryOp::kNot>},
      {"cast", Cast},
      {"add", Binary<BinaryOp::kAdd>},
      {"sub", Binary<BinaryOp::kSub>},
      {"mul", Binary<BinaryOp::kMul>},
      {"div", Binary<BinaryOp::kDiv>},
      {"pow", Binary<BinaryOp::kPow>},
      {"maximum", Binary<BinaryOp::kMaximum>},
      {"minimum", Binary<BinaryOp::kMinimum>},
      {"floor_div", Binary<BinaryOp::kFloorDiv>},
      {"remainder", Binary<BinaryOp::kRemainder>},
      {"eq", Binary<BinaryOp::kEqual>},
      {"ne", Binary<BinaryOp::kNotEqual>},
      {"lt", Binary<BinaryOp::kLess>},
      {"le", Binary<BinaryOp::kLessEqual>},
      {"gt", Binary<BinaryOp::kGreater>},
      {"ge", Binary<BinaryOp::kGreaterEqual>},
      {"logical_and", Binary<BinaryOp::kAnd>},
      {"logical_or", Binary<BinaryOp::kOr>},
      {"where", Where},
      {"masked_fill", MaskedFill},
      {"add_once", AddOnce},
  };
  return kOperations;
}

}  // namespace tp::worker::operations
