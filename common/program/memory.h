// Memory and communication of a program on one rank, for bound symbols: what the executor uses and `explain` prints.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/program/compile.h"
#include "common/program/program.h"

namespace tp {

// Offsets in one arena by liveness; the executor allocates nothing else in a step. Aligned to 64 bytes.
struct MemoryPlan {
  std::vector<int64_t> value_offset;    // for each value; -1 for what lies outside: parameters, buffers, tensors
                                        // (operands and outputs), and values that nothing uses
  std::vector<int64_t> scratch_offset;  // for each instruction; -1 for none
  std::vector<int64_t> scratch_bytes;
  int64_t total_bytes = 0;
};
// Inputs, positions and rows live in the arena too; outputs stay live to the end. INVALID_ARGUMENT for unbound symbols,
// RESOURCE_EXHAUSTED where the total passes 2^62.
absl::StatusOr<MemoryPlan> PlanMemory(const ForwardProgram& program, const Bindings& bindings,
                                      absl::Span<const int> coordinate);

struct CollectiveRecord {
  std::string module;
  std::string op;
  std::string axis;   // "tp", several joined by ","
  int64_t bytes = 0;  // definition of SEMANTICS 3
  std::string reason;
  bool operator==(const CollectiveRecord&) const = default;
};
// The redistribute steps that move or change data, in program order; slices and other local steps are left out.
absl::StatusOr<std::vector<CollectiveRecord>> CollectivesOf(const ForwardProgram& program, const Bindings& bindings);

struct RankMemory {
  int rank = 0;
  int64_t parameter_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t cache_bytes = 0;  // of one sequence of max_positions (0 without generation)
};
// `widened`: weights of linear held as F32 where the processor has no product of the compute dtype.
absl::StatusOr<std::vector<RankMemory>> MemoryOf(const CompiledModel& model, const Bindings& bindings, bool widened);

// Bytes of one cache page of all caches on the rank at `coordinate`.
int64_t CachePageBytes(const ForwardProgram& program, absl::Span<const int> coordinate);

}  // namespace tp
