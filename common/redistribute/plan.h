// Plans a redistribute: the steps that turn one layout of a tensor into another on one mesh. Where one axis changes,
// the row of the table of SEMANTICS 3 if it is legal, and where all that changes is P -> R, one all_reduce for each op
// over the flattened axes; else by least bytes, then fewest steps, then the order of (axes, op as in RedistributeOp).
// Without terms that is always one step: slice or all_gather, over the flattened axes where all that changes does that,
// all_to_all, or permute. Example: 5 rows, S(0) -> R on tp=4 is one all_gather. Pure; a plan is valid at every size of
// the symbols, costs are compared at the given concrete shape.
#pragma once

#include <memory>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/spec.h"

namespace tp {

class Geometry;

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

// INVALID_ARGUMENT for targets that SEMANTICS 3 refuses (R -> P(product), S -> P(avg), ...). `from` and `to` are normalised placements of one tensor of `dtype` and global `shape`.
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

// Scratch memory that executing `step` needs on the rank at `coordinate` beside source and result (worker/tensor uses
// at most this much). Every part named here starts at a multiple of 64 bytes and is rounded up to one.
//   none, slice, divide, fill: 0.
//   all_gather: one received block for each other rank that supplies one; the own block is sent as it lies.
//   all_to_all, permute: one packed block to send and one received block for each peer that it shares bytes with.
//   all_reduce: 2 x the local block (a packed copy, and a copy to receive in chunks).
//   reduce_scatter: the local block packed as the result pieces of the N ranks, and N x the own result piece.
int64_t StepScratchBytes(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const RedistributeStep& step,
                         absl::Span<const int> coordinate);

// "tp" or "dp,tp".
std::string StepAxesText(const Mesh& mesh, const RedistributeStep& step);

}  // namespace tp
