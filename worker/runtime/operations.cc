#include "worker/runtime/operations.h"

#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "common/base/status.h"

namespace tp::worker {
namespace {

using Context = OperationContext;
using Values = absl::Span<const ValueView>;

// [a, b, rest..] -> [a * b, rest..].
template <typename View>
View TokenRows(View view) {
  Shape shape{view.shape[0] * view.shape[1]};
  shape.insert(shape.end(), view.shape.begin() + 2, view.shape.end());
  view.shape = std::move(shape);
  return view;
}

// [.., k] -> [m, k].
template <typename View>
View Rows(View view) {
  int64_t m = 1;
  for (size_t d = 0; d + 1 < view.shape.size(); ++d) m *= view.shape[d];
  view.shape = {m, view.shape.back()};
  return view;
}

int64_t BytesOf(const TensorView& view) { return ElementCount(view.shape) * ItemSize(view.dtype); }

int DimAttribute(const Context& context, const std::string& name, size_t rank) {
  const int64_t dim = AttributeOr<int64_t>(context.instruction.attributes, name, -1);
  return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}

absl::Status Linear(const Context& context, Values in, Values out) {
  const bool bias = in.size() > 2 && in[2].present;
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

absl::Status RmsNorm(const Context& context, Values in, Values out) {
  return context.device.RmsNorm(context.stream, in[0].view, in[1].view,
                                AttributeOr<double>(context.instruction.attributes, "eps", 1e-6), out[0].view);
}

absl::Status Rotary(const Context& context, Values in, Values out) {
  ConstTensorView positions = in[1].view;
  positions.shape = {ElementCount(positions.shape)};
  return context.device.Rotary(context.stream, TokenRows(in[0].view), positions,
                               AttributeOr<double>(context.instruction.attributes, "theta", 10000.0),
                               TokenRows(out[0].view));
}

absl::Status Attention(const Context& context, Values in, Values out) {
  const Attributes& attributes = context.instruction.attributes;
  AttentionArguments arguments;
  arguments.query = TokenRows(in[0].view);
  arguments.key = TokenRows(in[1].view);
  arguments.value = TokenRows(in[2].view);
  arguments.output = TokenRows(out[0].view);
  arguments.sequences = context.sequences;
  arguments.causal = AttributeOr<bool>(attributes, "causal", true);
  const double scale = AttributeOr<double>(attributes, "scale", 0);
  arguments.scale =
      static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(arguments.query.shape.back())));
  if (context.paged) {
    const int64_t cache = AttributeOr<int64_t>(attributes, "cache", -1);
    if (cache < 0 || cache >= static_cast<int64_t>(context.caches.size())) {
      return absl::InternalError(absl::StrCat("attention of '", context.instruction.module_path, "' has no cache"));
    }
    arguments.cache = &context.caches[static_cast<size_t>(cache)];
  }
  return context.device.Attention(context.stream, arguments);
}

template <UnaryOp op>
absl::Status Unary(const Context& context, Values in, Values out) {
  return context.device.Unary(context.stream, op, in[0].view, out[0].view);
}
absl::Status Gelu(const Context& context, Values in, Values out) {
  const bool tanh = AttributeOr<std::string>(context.instruction.attributes, "approximate", "none") == "tanh";
  return context.device.Unary(context.stream, tanh ? UnaryOp::kGeluTanh : UnaryOp::kGelu, in[0].view, out[0].view);
}
template <BinaryOp op>
absl::Status Binary(const Context& context, Values in, Values out) {
  return context.device.Binary(context.stream, op, in[0].view, in[1].view, out[0].view);
}

absl::Status Softmax(const Context& context, Values in, Values out) {
  return context.device.Softmax(context.stream, in[0].view, DimAttribute(context, "dim", in[0].view.shape.size()),
                                out[0].view);
}
absl::Status ArgMax(const Context& context, Values in, Values out) {
  return context.device.ArgMax(context.stream, in[0].view, DimAttribute(context, "dim", in[0].view.shape.size()),
                               out[0].view);
}
absl::Status Cast(const Context& context, Values in, Values out) {
  return context.device.Cast(context.stream, in[0].view, out[0].view);
}

absl::Status Copy(const Context& context, Values in, Values out) {
  const int64_t bytes = BytesOf(out[0].view);
  if (BytesOf(in[0].view) != bytes) {
    return absl::InternalError(absl::StrCat(context.instruction.function, ": local blocks ",
                                            ShapeText(in[0].view.shape), " -> ", ShapeText(out[0].view.shape)));
  }
  if (bytes == 0) return absl::OkStatus();
  return context.device.CopyOnDevice(context.stream, in[0].view.data, out[0].view.data, bytes);
}

absl::Status Transpose(const Context& context, Values in, Values out) {
  const size_t rank = in[0].view.shape.size();
  std::vector<int> permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[DimAttribute(context, "dim0", rank)], permutation[DimAttribute(context, "dim1", rank)]);
  return context.device.Transpose(context.stream, in[0].view, permutation, out[0].view);
}

absl::Status AddOnce(const Context& context, Values in, Values out) {
  for (int64_t axis : AttributeOr<std::vector<int64_t>>(context.instruction.attributes, "axes", {})) {
    if (context.coordinate[static_cast<size_t>(axis)] != 0) return Copy(context, in.subspan(0, 1), out);
  }
  return context.device.Binary(context.stream, BinaryOp::kAdd, in[0].view, in[1].view, out[0].view);
}

absl::Status SelectRows(const Context& context, Values in, Values out) {
  TensorView output = out[0].view;  // [1, rows, ..]
  output.shape.erase(output.shape.begin());
  return context.device.SelectRows(context.stream, TokenRows(in[0].view), in[1].view, output);
}

}  // namespace

Operation FindOperation(std::string_view function) {
  static const auto* const operations = new std::map<std::string, Operation, std::less<>>{
      {"linear", Linear},
      {"embedding", Embedding},
      {"rms_norm", RmsNorm},
      {"rotary", Rotary},
      {"attention", Attention},
      {"silu", Unary<UnaryOp::kSilu>},
      {"relu", Unary<UnaryOp::kRelu>},
      {"gelu", Gelu},
      {"add", Binary<BinaryOp::kAdd>},
      {"sub", Binary<BinaryOp::kSub>},
      {"mul", Binary<BinaryOp::kMul>},
      {"softmax", Softmax},
      {"reshape", Copy},
      {"transpose", Transpose},
      {"argmax", ArgMax},
      {"cast", Cast},
      {"add_once", AddOnce},
      {"select_rows", SelectRows},
  };
  const auto it = operations->find(function);
  return it == operations->end() ? nullptr : it->second;
}

}  // namespace tp::worker
