// Proposes a tensor-parallel plan for any model definition: which Linears are cut by rows and which by columns, and
// where the embedding lies. CompileForward is the judge, so a plan that is found works. Example, for a gated MLP
// down(silu(gate(x)) * up(x)): gate and up ColwiseParallel, down RowwiseParallel, one all_reduce.
//
// Every Linear that the model calls is cut, which divides its flops and memory over the axis; an Embedding only where
// that costs less or the memory limit asks for it. Among the ways to do that: memory within the limit, then least
// estimated time of the collectives (cost.h) at the nominal size of the symbols (64, or their limit), then fewest bytes
// received by the busiest rank, then fewest collectives, then least memory. A search by single changes from a start
// that the dataflow graph gives (a Linear that reads what a ColwiseParallel one made is RowwiseParallel), so the least
// found, not the least there is; never one of more bytes than the start, unless the limit asks for it. Layers that are
// alike are decided once, by a pattern with `*`.
//
// With `sequence_parallel` dim 1 is cut between the weights: outputs of RowwiseParallel and Embeddings are S(1), norms
// SequenceParallel, and modules that read the whole sequence get it by PrepareModuleInput. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"
#include "common/program/memory.h"

namespace tp {

struct AutoPlanOptions {
  bool sequence_parallel = false;
  int64_t memory_limit = 0;             // bytes of the busiest rank, all kinds of RankMemory together; 0: none
  std::map<std::string, Shape> shapes;  // of the model's inputs, at which memory is counted
};

struct AutoPlan {
  ParallelPlan plan;               // the submission's mesh, axis and batch_axes, with new entries
  std::vector<std::string> notes;  // for people: what is not as one might expect
  int64_t collective_bytes = 0;    // at the nominal size
  int collectives = 0;
  int tried = 0;  // plans that were judged
};

// The entries of the submission's own plan play no part; modules with a sharding of their own are left as they are.
// RESOURCE_EXHAUSTED with the numbers where no plan that was found fits the limit; else the errors of CompileForward,
// as for degrees over which heads can't be cut.
absl::StatusOr<AutoPlan> FindPlan(const Submission& submission, const AutoPlanOptions& options);

}  // namespace tp
