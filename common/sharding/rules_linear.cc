// Products: linear, embedding, conv1d, conv2d, matmul, bmm.
#include "common/sharding/families.h"

namespace tp {
namespace {

void Linear(const RuleContext& context, AxisStrategyList* list) {
  const int last = RankOf(context.inputs[0]) - 1;
  const Placement& weight = context.current[1];
  const bool has_bias = context.inputs[2] != nullptr;
  if (weight.Cuts(0)) {
    // Each rank makes its own columns of the output; the bias is cut like the weight's rows.
    AxisStrategy columns = AllReplicate(context);
    columns.inputs[1] = weight;
    if (has_bias) columns.inputs[2] = weight;
    columns.outputs[0] = OnDim(weight, last);
    list->push_back(columns);
  }
  if (weight.Cuts(1)) {
    // Each rank makes a term of the whole output.
    AxisStrategy rows = AllReplicate(context);
    rows.inputs[1] = WithoutCopies(weight);
    rows.inputs[0] = OnDim(rows.inputs[1], last);
    rows.outputs[0] = Placement::Partial();
    rows.bias_after = has_bias;
    list->push_back(rows);
  }
  DimLinks links = NoLinks(context);
  for (int dim = 0; dim < last; ++dim) links[0][dim] = dim;
  AppendLinked(context, links, list);
}

void Embedding(const RuleContext& context, AxisStrategyList* list) {
  const Placement& weight = context.current[1];
  if (weight.Cuts(1)) {
    AxisStrategy columns = AllReplicate(context);
    columns.inputs[1] = weight;
    columns.outputs[0] = OnDim(weight, RankOf(context.outputs[0]) - 1);
    list->push_back(columns);
  }
  if (weight == Placement::Shard(0)) {
    // The masked lookup: ids of other ranks' rows give zeros. (Neighbours under GS hold the same rows: not a sum.)
    AxisStrategy vocabulary = AllReplicate(context);
    vocabulary.inputs[1] = weight;
    vocabulary.outputs[0] = Placement::Partial();
    list->push_back(vocabulary);
  }
  DimLinks links = NoLinks(context);
  for (int dim = 0; dim < RankOf(context.inputs[0]); ++dim) links[0][dim] = dim;
  AppendLinked(context, links, list);
}

// input [batch, in, size..], weight [out, in / groups, kernel..], output [batch, out, size'..].
void Convolution(const RuleContext& context, AxisStrategyList* list) {
  const Placement& input = context.current[0];
  const Placement& weight = context.current[1];
  const bool has_bias = context.inputs[2] != nullptr;
  const int64_t groups = AttributeOr<int64_t>(*context.attributes, "groups", 1);
  if (groups == 1 && weight.Cuts(0)) {
    AxisStrategy channels = AllReplicate(context);
    channels.inputs[1] = weight;
    if (has_bias) channels.inputs[2] = weight;
    channels.outputs[0] = OnDim(weight, 1);
    list->push_back(channels);
  }
  if (groups == 1 && (weight.Cuts(1) || input.Cuts(1))) {
    AxisStrategy terms = AllReplicate(context);
    terms.inputs[1] = WithoutCopies(weight.Cuts(1) ? weight : input);
    terms.inputs[0] = terms.inputs[1];
    terms.outputs[0] = Placement::Partial();
    terms.bias_after = has_bias;
    list->push_back(terms);
  }
  if (groups > 1 && groups % context.axis_size == 0 && (weight.Cuts(0) || input.Cuts(1))) {
    // Whole groups on each rank: its channels of the input make its channels of the output.
    AxisStrategy whole = AllReplicate(context);
    whole.inputs[0] = Placement::Shard(1);
    whole.inputs[1] = Placement::Shard(0);
    if (has_bias) whole.inputs[2] = Placement::Shard(0);
    whole.outputs[0] = Placement::Shard(1);
    whole.alone = true;
    list->push_back(whole);
  }
  DimLinks links = NoLinks(context);
  links[0][0] = 0;
  AppendLinked(context, links, list);
}

// matmul and bmm: [.., m, k] x [.., k, n]; an operand of one dim is [k].
void Product(const RuleContext& context, AxisStrategyList* list) {
  const int left = RankOf(context.inputs[0]), right = RankOf(context.inputs[1]);
  const SymShape& output = context.outputs[0]->shape;
  const int left_inner = left - 1, right_inner = right == 1 ? 0 : right - 2;
  const int batch = static_cast<int>(output.size()) - (left > 1 ? 1 : 0) - (right > 1 ? 1 : 0);
  DimLinks links = NoLinks(context);
  for (int i = 0; i < 2; ++i) {
    const int own_batch = RankOf(context.inputs[i]) - 2;  // dims before the last two
    for (int dim = 0; dim < own_batch; ++dim) {
      const int out = dim + batch - own_batch;
      if (context.inputs[i]->shape[dim] == output[out]) links[i][dim] = out;
    }
  }
  if (left > 1) links[0][left - 2] = batch;
  if (right > 1) links[1][right - 1] = batch + (left > 1 ? 1 : 0);
  AppendLinked(context, links, list);
  for (int i = 0; i < 2; ++i) {
    const Placement& cut = context.current[i];
    if (!cut.Cuts(i == 0 ? left_inner : right_inner)) continue;
    AxisStrategy terms = AllReplicate(context);
    terms.inputs[0] = OnDim(WithoutCopies(cut), left_inner);
    terms.inputs[1] = OnDim(WithoutCopies(cut), right_inner);
    terms.outputs[0] = Placement::Partial();
    list->push_back(terms);
  }
}

}  // namespace

bool LinearFamily(const RuleContext& context, AxisStrategyList* list) {
  const std::string& name = context.function;
  if (name == "linear") {
    Linear(context, list);
  } else if (name == "embedding") {
    Embedding(context, list);
  } else if (name == "conv1d" || name == "conv2d") {
    Convolution(context, list);
  } else if (name == "matmul" || name == "bmm") {
    Product(context, list);
  } else {
    return false;
  }
  return true;
}

}  // namespace tp
