// Rotary embedding and attention: [batch, time, heads, head_dim], flattened to tokens.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker/runtime/operation_families.h"

namespace tp::worker::operations {
namespace {

absl::Status Rotary(const Context& context, Values in, Values out) {
  ConstTensorView positions = in[1].view;
  positions.shape = {ElementCount(positions.shape)};
  return context.device.Rotary(context.stream, TokenRows(in[0].view), positions, Number(context, "theta", 10000.0),
                               TokenRows(out[0].view));
}

absl::Status Attention(const Context& context, Values in, Values out) {
  AttentionArguments arguments;
  arguments.query = TokenRows(in[0].view);
  arguments.key = TokenRows(in[1].view);
  arguments.value = TokenRows(in[2].view);
  arguments.output = TokenRows(out[0].view);
  arguments.sequences = context.sequences;
  arguments.causal = AttributeOr<bool>(context.instruction.attributes, "causal", true);
  const double scale = Number(context, "scale", 0);
  arguments.scale =
      static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(arguments.query.shape.back())));
  if (context.paged) {  // a decode step: past positions are in the cache only
    const int64_t cache = Integer(context, "cache_index", -1);
    if (cache < 0 || cache >= static_cast<int64_t>(context.caches.size())) {
      return absl::InternalError(absl::StrCat("attention of '", context.instruction.module_path, "' has no cache"));
    }
    arguments.cache = &context.caches[static_cast<size_t>(cache)];
  }
  return context.device.Attention(context.stream, arguments);
}

}  // namespace

absl::Span<const NamedOperation> AttentionOperations() {
  static constexpr NamedOperation kOperations[] = {{"rotary", Rotary}, {"attention", Attention}};
  return kOperations;
}

}  // namespace tp::worker::operations
