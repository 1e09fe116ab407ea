// What `tpctl explain` prints of one submission, and of the difference between two: tables for people, JSON for
// scripts. Pure. Example: Explanation one = *Explained(submission, compiled, bindings); puts(ExplainText(one,
// /*json=*/false)).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/tpctl/render.h"
#include "common/program/auto_plan.h"
#include "common/program/compile.h"
#include "common/program/cost.h"
#include "common/program/memory.h"

namespace tp::client {

struct Explanation {
  std::string name;
  CompiledModel compiled = {};
  Bindings bindings = {};
  CostModel model = {};
  ProgramCost cost = {};
  std::vector<RankMemory> memory = {};
  std::vector<std::string> warnings = {};  // those of compiled, and more
  std::optional<AutoPlan> found = std::nullopt;
  std::string found_text = {};  // the found plan as textproto
};

// Costs, memory and warnings of a compiled submission that is to keep a limit (0: none). The errors of CostOf and
// MemoryOf.
absl::StatusOr<Explanation> Explained(const Submission& submission, CompiledModel compiled, const Bindings& bindings,
                                      int64_t memory_limit = 0);

int64_t TotalBytes(const RankMemory& memory);
// The rank that needs most. `memory` is not empty.
const RankMemory& Busiest(const std::vector<RankMemory>& memory);

std::string ExplainText(const Explanation& explanation, bool json);
JsonNode ExplainJson(const Explanation& explanation);

// Plan a against plan b: styles of modules, placements of states, memory of the busiest rank, collectives by op, flops
// and time; only what differs. JSON: {a, b, programs_equal, differences: [{what, name, a, b}]}, a and b as explain
// prints them alone.
struct Difference {
  std::string what, name;  // "style" of a module, "placements" of a state, "memory", "collectives" of an op, "cost"
  JsonNode a, b;
  std::string a_text, b_text;
};
std::vector<Difference> DifferencesOf(const Explanation& a, const Explanation& b);
std::string AgainstText(const Explanation& a, const Explanation& b, bool json);

}  // namespace tp::client
