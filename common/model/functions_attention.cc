#include "common/base/status.h"
#include "common/model/functions.h"

namespace tp {
namespace {

TypeOutputs InferRotary(TypeInputs inputs, const Attributes& attributes) {
  TP_RETURN_IF_ERROR(NeedFloating("rotary", inputs));
  const SymShape& shape = inputs[0]->shape;
  if (shape.size() != 4) return Misfit("rotary needs [batch, time, heads, head_dim]", inputs);
  if (!shape[3].IsConstant() || shape[3].constant() % 2 != 0) return Misfit("rotary needs an even head_dim", inputs);
  if (!(AttributeOr<double>(attributes, "theta", 1e4) > 0)) return Wrong("rotary: theta must be above 0");
  return std::vector<TensorType>{*inputs[0]};
}

TypeOutputs InferAttention(TypeInputs inputs, const Attributes&) {
  TP_RETURN_IF_ERROR(NeedFloating("attention", inputs));
  TP_RETURN_IF_ERROR(NeedOneDType("attention", inputs));
  const SymShape& query = inputs[0]->shape;
  const SymShape& key = inputs[1]->shape;
  if (query.size() != 4 || key.size() != 4 || inputs[2]->shape != key) {
    return Misfit("attention needs [batch, time, heads, head_dim] each, key and value alike", inputs);
  }
  if (query[0] != key[0] || query[1] != key[1] || query[3] != key[3]) {
    return Misfit("attention: batch, time and head_dim of query and key must be equal", inputs);
  }
  if (!query[2].IsConstant() || !key[2].IsConstant() || !key[3].IsConstant() || key[2].constant() < 1 ||
      query[2].constant() % key[2].constant() != 0) {
    return Misfit("attention: the number of query heads must be a multiple of the number of key-value heads", inputs);
  }
  return std::vector<TensorType>{*inputs[0]};
}

}  // namespace

std::vector<FunctionDef> AttentionFunctions() {
  return {
      {"rotary", {{"input"}}, {{"theta", 10000.0}}, InferRotary},
      {"attention",
       {{"query"}, {"key"}, {"value"}},
       {{"causal", true}, {"scale", 0.0}, {"cache", true}},
       InferAttention},
  };
}

}  // namespace tp
