// index_select, gather, pick, arange: what they look up along `dim` must be whole on a rank, except for pick.
#include "common/sharding/families.h"

namespace tp {
namespace {

// output[.., i, ..] = input[.., index[i], ..].
DimLinks IndexSelectLinks(const RuleContext& context, int dim) {
  DimLinks links = NoLinks(context);
  for (int own = 0; own < RankOf(context.inputs[0]); ++own) {
    if (own != dim) links[0][own] = own;
  }
  links[1][0] = dim;
  return links;
}

// The output is as the index; along other dims than `dim` it reads the input at its own position, so a cut there needs
// equal sizes.
DimLinks GatherLinks(const RuleContext& context, int dim) {
  DimLinks links = NoLinks(context);
  links[1][dim] = dim;
  for (int own = 0; own < RankOf(context.inputs[0]); ++own) {
    if (own == dim || context.inputs[0]->shape[own] != context.inputs[1]->shape[own]) continue;
    links[0][own] = own;
    links[1][own] = own;
  }
  return links;
}

// The index is as the input without `dim`; the output has 1 there.
DimLinks PickLinks(const RuleContext& context, int dim) {
  DimLinks links = NoLinks(context);
  for (int own = 0; own < RankOf(context.inputs[0]); ++own) {
    if (own == dim) continue;
    links[0][own] = own;
    links[1][own < dim ? own : own - 1] = own;
  }
  return links;
}

}  // namespace

bool IndexFamily(const RuleContext& context, AxisStrategyList* list) {
  const std::string& name = context.function;
  if (name == "arange") return true;
  if (name != "index_select" && name != "gather" && name != "pick") return false;
  const int dim = DimAttribute(context, "dim");
  if (name == "pick") {
    if (context.current[0].Cuts(dim) && context.inputs[0]->dtype != DType::kBool) {
      // The rank that has the element gives it, the others zeros.
      AxisStrategy terms = AllReplicate(context);
      terms.inputs[0] = Placement::Shard(dim);
      terms.outputs[0] = Placement::Partial();
      list->push_back(terms);
    }
    AppendLinked(context, PickLinks(context, dim), list);
    return true;
  }
  AppendPartial(context, false, list);
  AppendLinked(context, name == "gather" ? GatherLinks(context, dim) : IndexSelectLinks(context, dim), list);
  return true;
}

}  // namespace tp
