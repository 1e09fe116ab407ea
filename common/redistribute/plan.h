// Plans a redistribute: the steps that turn one layout of a tensor into another on one mesh. Where one axis changes,
// the row of the table of SEMANTICS 3 if it is legal, and where all that changes is P -> R, one all_reduce for each op
// over the flattened axes; else by least bytes, then fewest steps, then the order of (axes, op as in RedistributeOp).
// Without terms that is always one step: slice or all_gather, over the flattened axes where all that changes does that,
// all_to_all, or permute. Example: 5 rows, S(0) -> R on tp=4 is one all_gather. Pure; a plan is valid at every size of
// the symbols, costs are compared at the given concrete shape.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/spec.h"

namespace tp {

class Geometry;

// In the order of the table of SEMANTICS 3; the order breaks ties.
enum class RedistributeOp {
  kNone,
  kSlice,
  kAllGather,
  kAllToAll,
  kAllReduce,
  kReduceScatter,
  kDivide,
  kFill,
  kPermute
};
// "none", "slice", "all_gather", "all_to_all", "all_reduce", "reduce_scatter", "divide", "fill", "permute".
std::string_view RedistributeOpName(RedistributeOp op);

struct RedistributeStep {
  RedistributeOp op = RedistributeOp::kNone;
  std::vector<int> axes;  // mesh axes it acts on, ascending; several where it runs over the flattened axes
  Placements from;
  Placements to;
  bool operator==(const RedistributeStep&) const = default;
};

struct RedistributePlan {
  std::vector<RedistributeStep> steps;  // empty where nothing moves or changes
};

// INVALID_ARGUMENT for targets that SEMANTICS 3 refuses (R -> P(product), S -> P(avg), ...). `from` and `to` are
// normalised placements of one tensor of `dtype` and global `shape`.
absl::StatusOr<RedistributePlan> PlanRedistribute(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                                  const Placements& from, const Placements& to);

// Plans many pairs of layouts of one tensor, and remembers what it worked out about them. Same plans as
// PlanRedistribute. Thread-compatible; the mesh must outlive it.
class RedistributePlanner {
 public:
  RedistributePlanner(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape);
  ~RedistributePlanner();
  absl::StatusOr<RedistributePlan> Plan(const Placements& from, const Placements& to);

 private:
  const Mesh& mesh_;
  const DType dtype_;
  const Shape shape_;
  std::unique_ptr<Geometry> geometry_;
};

// Bytes of one step by the definition of SEMANTICS 3: payload, without padding, received by the busiest rank.
int64_t StepBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step);
int64_t PlanBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributePlan& plan);

// Who sends in all_gather, all_to_all and permute: true where the rank at `receiver` gets the part that it lacks of the
// block of `sender` (coordinates) from that very rank. Equal copies are each asked by one rank only: the sender's
// coordinate equals the receiver's on axes that `from` does not cut, as does its place among the neighbours of a
// GroupShard. True for sender == receiver, which copies.
bool SuppliesBlock(const Mesh& mesh, const RedistributeStep& step, absl::Span<const int> sender,
                   absl::Span<const int> receiver);

// The ranks that SuppliesBlock() makes one set with the rank at `coordinate`: ascending in group order, itself
// included; the same list on all its members.
std::vector<int> SupplierRanks(const Mesh& mesh, const RedistributeStep& step, absl::Span<const int> coordinate);

// True for an all_gather whose blocks, in group order, are consecutive runs of the result's memory, and for a
// reduce_scatter whose result pieces are such runs of the source: nothing is packed. Equal on all ranks of the step's
// group (all_gather: of SupplierRanks).
bool StepIsInPlace(const Mesh& mesh, absl::Span<const int64_t> shape, const RedistributeStep& step,
                   absl::Span<const int> coordinate);

// A step that packs works in rounds, so that no rank packs more than this in one (to send and received, together).
constexpr int64_t kRoundBytes = int64_t{64} << 20;

// The rounds that the step takes: round r moves elements [e * r / rounds, e * (r + 1) / rounds) of each block of e
// elements that one rank sends to another. The busiest rank counts, so all ranks of the step's group (all_gather,
// all_to_all, permute: of SupplierRanks) have as many. At least 1.
int64_t StepRounds(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step,
                   absl::Span<const int> coordinate, int64_t round_bytes = kRoundBytes);

// Scratch memory that executing `step` needs on the rank at `coordinate` beside source and result (worker/tensor uses
// exactly this much): at most round_bytes, an element a peer for rounding and 128.
//   none, slice, divide, fill, all_reduce, and where StepIsInPlace(): 0.
//   all_gather: a round of each block, the own one included. reduce_scatter: a round of each result piece.
//   all_to_all, permute: a round of all that is sent, and a round of all that is received. Each sum is rounded up to a
//   multiple of 64.
int64_t StepScratchBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step,
                         absl::Span<const int> coordinate, int64_t round_bytes = kRoundBytes);

// "tp" or "dp,tp".
std::string StepAxesText(const Mesh& mesh, const RedistributeStep& step);

}  // namespace tp
