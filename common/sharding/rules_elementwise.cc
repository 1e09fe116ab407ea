// Functions of each element alone, with broadcasting. Which of them sums over ranks pass through: SEMANTICS 4.
#include <set>

#include "common/sharding/families.h"

namespace tp {
namespace {

bool IsUnary(const std::string& name) {
  static const auto* names =
      new std::set<std::string>{"neg",  "abs",     "exp",  "log",  "sqrt", "rsqrt",       "sin", "cos",
                                "tanh", "sigmoid", "silu", "relu", "gelu", "logical_not", "cast"};
  return names->contains(name);
}

bool IsBinary(const std::string& name) {
  static const auto* names = new std::set<std::string>{
      "add", "sub", "mul", "div", "pow", "maximum",     "minimum",    "floor_div", "remainder",  "eq",
      "ne",  "lt",  "le",  "gt",  "ge",  "logical_and", "logical_or", "where",     "masked_fill"};
  return names->contains(name);
}

bool WidensInteger(DType from, DType to) {
  return (from == DType::kI32 || from == DType::kI64) && (to == from || to == DType::kI64);
}

// True where f(term + term) is f(term) + f(term), so that the first input's terms are terms of the output.
bool KeepsTerms(const RuleContext& context) {
  const std::string& name = context.function;
  const Placement& terms = context.current[0];
  const DType from = context.inputs[0]->dtype, to = context.outputs[0]->dtype;
  const bool floating = IsFloating(from) && IsFloating(to) && IsSumLike(terms);
  const bool integers = WidensInteger(from, to) && terms == Placement::Partial();
  const bool by_scalar = context.inputs.size() == 2 && context.inputs[1] == nullptr;
  if (name == "cast") return floating || integers;
  if (name == "neg") return floating;
  if (name == "mul" && by_scalar) return floating || integers;
  if (name == "div" && by_scalar) return floating;
  return false;
}

}  // namespace

bool ElementwiseFamily(const RuleContext& context, AxisStrategyList* list) {
  const std::string& name = context.function;
  if (!IsUnary(name) && !IsBinary(name)) return false;
  if (KeepsTerms(context)) AppendPartial(context, false, list);
  if ((name == "add" || name == "sub") && context.inputs[1] != nullptr && IsSumLike(context.current[0]) &&
      IsFloating(context.outputs[0]->dtype)) {
    AppendPartial(context, true, list);
  }
  AppendLinked(context, BroadcastLinks(context), list);
  return true;
}

}  // namespace tp
