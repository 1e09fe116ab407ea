// What an automatic plan has to decide for a model, read off its dataflow graph: the Linears, Embeddings and norms that
// are called, those of equal layers as one, with the styles that each may have, first the one to start from. Example:
// down(silu(gate(x)) * up(x)): gate and up {Colwise, ...}, down {Rowwise, ...}. Pure. Internal to auto_plan.cc.
#pragma once

#include <string>
#include <vector>

#include "common/model/flatten.h"
#include "common/model/model.h"

namespace tp {

// One thing to decide. An option is the styles that the pattern gets: none, one, or several.
struct PlanCandidate {
  std::string pattern;
  bool is_linear = false, is_embedding = false;
  int source = -1;  // flat value that the first of its modules reads: equal for Linears that read one value
  std::vector<std::vector<Style>> options = {};
};

// In the order of the modules in the graph.
std::vector<PlanCandidate> PlanCandidates(const FlatModel& model, bool sequence_parallel);

// The modules (by pattern) that take the sequence whole: the outermost ones without a norm inside whose argument goes
// to the Linears of `colwise_patterns` only. Each entry is a PrepareModuleInput from S(1) to R.
std::vector<PlanEntry> GatheringModules(const FlatModel& model, const std::vector<std::string>& colwise_patterns);

}  // namespace tp
