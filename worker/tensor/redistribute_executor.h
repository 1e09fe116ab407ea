// Runs one step of a redistribute plan on this rank: local copies through the Device, data of peers through the
// Communicator. Every rank of the step's group makes the same call, also with an empty block. Example:
//   RedistributeContext context{*device, *stream, *communicator, mesh, coordinate, deadline};
//   ExecuteRedistributeStep(context, step, {8, 3}, source, result, {scratch, StepScratchBytes(...)});
#pragma once

#include "common/redistribute/plan.h"
#include "worker/collective/communicator.h"
#include "worker/device/device.h"
#include "worker/tensor/exchange.h"

namespace tp::worker {

struct RedistributeContext {
  Device& device;
  Stream& stream;
  Communicator& communicator;  // its ranks are the mesh's
  const Mesh& mesh;
  absl::Span<const int> coordinate;  // of this rank
  absl::Time deadline;
  int64_t round_bytes = kRoundBytes;  // equal on all ranks; the result has the same bits whatever it is
};

// Turns this rank's block of a tensor of `global` shape under step.from (`source`) into that under step.to (`result`).
// Both views have local shapes and one dtype and do not overlap; scratch has at least StepScratchBytes(..,
// context.round_bytes). Blocks on the communicator. Returns StepBytes: the payload by definition. Errors are the
// communicator's (UNAVAILABLE, ABORTED, DEADLINE_EXCEEDED: a peer is gone), the device's, or INTERNAL for views that do
// not fit the step.
absl::StatusOr<int64_t> ExecuteRedistributeStep(const RedistributeContext& context, const RedistributeStep& step,
                                                absl::Span<const int64_t> global, const ConstTensorView& source,
                                                const TensorView& result, Scratch scratch);

}  // namespace tp::worker
