// Where the inputs of a function call must lie and where its outputs then are: for each mesh axis the strategy of
// common/sharding that moves the fewest bytes. Example: linear with x S(2) and weight S(1) on tp=2 gives inputs S(2),
// S(1) and output P(sum) with the bias after it. Pure. Internal to common/program.
#pragma once

#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flatten.h"
#include "common/program/builder.h"
#include "common/program/match.h"

namespace tp {

struct CallPlacements {
  std::vector<Placements> inputs;   // empty for omitted ones
  std::vector<Placements> outputs;  // one for each
  bool bias_after = false;          // the call leaves its bias out: it is added after the reduction
};

// `inputs`: values in the builder's program, -1 = omitted; moving one of `states` costs many times its bytes, so that
// states stay in place. UNIMPLEMENTED for a function without a rule.
absl::StatusOr<CallPlacements> ChoosePlacements(const FlatNode& node, const FlatModel& model, const ResolvedPlan& plan,
                                                const ProgramBuilder& builder, const std::vector<int>& inputs,
                                                const std::set<int>& states);

}  // namespace tp
