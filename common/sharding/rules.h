// Sharding rules of functions: for one mesh axis, which placements of the inputs a function can take as they are and
// what its outputs then are. One file a family (rules_*.cc); compile.cc chooses the cheapest for each axis. Example:
// linear with weight S(0): {inputs R, S(0), S(0); output S(-1)}. Source: SEMANTICS 4, PyTorch DTensor.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/placement.h"
#include "common/model/function.h"

namespace tp {

// What a rule sees. Dims of placements that it returns are normalised.
struct RuleContext {
  std::string function;
  const Attributes* attributes = nullptr;
  std::vector<const TensorType*> inputs;  // nullptr = omitted
  std::vector<const TensorType*> outputs;
  int axis_size = 1;
  // Placements that the inputs have on this axis now; rules whose strategies depend on groups (GS) read them.
  std::vector<Placement> current;
  // The axis cuts the batch of the whole program: each of its coordinates has sequences of its own, caches included.
  bool batch_axis = false;
};

struct AxisStrategy {
  std::vector<Placement> inputs;  // one for each input, omitted ones R
  std::vector<Placement> outputs;
  // linear, conv: the product is a sum over ranks and the bias is not added by it, but once, after the reduction.
  bool bias_after = false;
  // No other axis may cut the dims that the inputs are cut on: the cuts would nest otherwise in the output.
  bool alone = false;
  bool operator==(const AxisStrategy&) const = default;
};

// All strategies, in order of preference; the last is all Replicate. UNIMPLEMENTED for a function without a rule.
absl::StatusOr<std::vector<AxisStrategy>> AxisStrategies(const RuleContext& context);

}  // namespace tp
