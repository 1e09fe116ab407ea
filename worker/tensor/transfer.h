// Moves a tensor from the layout of one mesh to that of another. Runs on a communicator over the workers of both; a
// worker holds at most one rank of each. Every rank of the communicator makes the same call, also one that holds
// neither a source nor a target block. Example, two workers to two others:
//   Transfer transfer{{8, 3}, DType::kF32, {mesh_a, from, {0, 1}}, {mesh_b, to, {2, 3}}, {{0, 0}, {1, 1}}};
//   ExecuteTransfer(context, transfer, &source, nullptr, scratch);   // on communicator rank 0
#pragma once

#include <utility>
#include <vector>

#include "worker/tensor/exchange.h"

namespace tp::worker {

// One side: the layout on a mesh, and the communicator's rank of each of the mesh's ranks.
struct TransferEnd {
  const Mesh& mesh;
  const Placements& placements;  // no Partial
  std::vector<int> ranks;
};

struct Transfer {
  Shape global;
  DType dtype = DType::kF32;
  TransferEnd from, to;
  // (source mesh rank, target mesh rank): the target gets all that its block shares with the source's block. What the
  // suppliers of one target hold of its block makes it up exactly once.
  std::vector<std::pair<int, int>> suppliers;
};

struct TransferContext {
  Device& device;
  Stream& stream;
  Communicator& communicator;
  absl::Time deadline;
  int64_t round_bytes = kRoundBytes;  // equal on all ranks; the result is the same whatever it is
};

// Scratch memory that the communicator's rank `rank` needs: about round_bytes at most (an element a peer for rounding).
int64_t TransferScratchBytes(const Transfer& transfer, int rank, int64_t round_bytes = kRoundBytes);

// `source` is this rank's block in the source layout, `target` its block in the target layout; nullptr where it has
// none. They do not overlap. What both blocks of this rank share is copied here if the list says so. Returns the
// payload bytes received from other ranks. Blocks on the communicator. Errors are the communicator's (UNAVAILABLE,
// ABORTED, DEADLINE_EXCEEDED), the device's, or INTERNAL for blocks or a list that do not fit.
absl::StatusOr<int64_t> ExecuteTransfer(const TransferContext& context, const Transfer& transfer,
                                        const ConstTensorView* source, const TensorView* target, Scratch scratch);

}  // namespace tp::worker
