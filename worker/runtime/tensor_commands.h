// Commands on named tensors on one rank, from the opening header to the closing one: Broadcast, Transform, Transfer.
// Outputs are allocated before the opening header and published after the closing one, so that a failure is one error
// on all ranks, leaves the inputs as they were and publishes nothing. Example:
//   WorkOutcome outcome = ExecuteTransform({context, mesh_id, tensors, memory}, transform);
#pragma once

#include "common/program/command.h"
#include "worker/runtime/tensor_table.h"
#include "worker/runtime/work.h"

namespace tp::worker {

struct TensorWork {
  WorkContext context;  // its arena is not used: what a command needs beside its outputs is freed at its end
  uint64_t mesh_id = 0;
  TensorTable& tensors;
  TensorMemory& memory;
};

// INVALID_ARGUMENT for a source coordinate that an axis of R has not.
WorkOutcome ExecuteBroadcast(const TensorWork& work, const Broadcast& broadcast);
// INVALID_ARGUMENT for a program that does not fit the tensors; ALREADY_EXISTS for an output's id.
WorkOutcome ExecuteTransform(const TensorWork& work, const Transform& transform);
// The communicator's ranks are those of the union; outputs are on transfer.target_mesh_id.
WorkOutcome ExecuteTransfer(const TensorWork& work, const tp::Transfer& transfer);

// The tensor `id` of the command's mesh. NOT_FOUND; FAILED_PRECONDITION for another mesh or rank.
absl::StatusOr<HeldTensorPtr> HeldOn(const TensorWork& work, uint64_t id);
// First 8 bytes of the SHA-256 of a text that says what the command does.
uint64_t CommandFingerprint(const std::string& text);

}  // namespace tp::worker
