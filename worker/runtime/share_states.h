// ShareStates on one rank: a model's states become tensors of this worker, for a model that takes their values over.
// Example: absl::Status status = ShareStatesOf(*model, share, {device, stream, tensors, memory});
#pragma once

#include "common/program/command.h"
#include "worker/runtime/loaded_model.h"
#include "worker/runtime/tensor_table.h"

namespace tp::worker {

struct SharePlace {
  Device& device;
  Stream& stream;
  TensorTable& tensors;
  TensorMemory& memory;
};

// Blocks until done on the device; the executor thread's. Plain states share their memory, packed ones are unpacked,
// bit for bit. NOT_FOUND for a state that the model has not, INVALID_ARGUMENT for one of another type or block,
// ALREADY_EXISTS for an id that is there, errors of Device; then no tensor is entered.
absl::Status ShareStatesOf(const LoadedModel& model, const ShareStates& share, const SharePlace& place);

}  // namespace tp::worker
