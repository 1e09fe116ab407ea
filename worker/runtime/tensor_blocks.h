// Bytes of a held tensor for a data stream or a file: box by box (common/layout/boxes.h), each row-major, copied
// straight from device memory in pieces. Example:
//   std::vector<DataBlock> blocks = BlocksOf(device, tensor);  blocks[0].read(0, 1 << 20, out);
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "worker/runtime/tensor_table.h"
#include "worker/runtime/worker_runtime.h"
#include "worker/weights/part_files.h"

namespace tp::worker {

// One block for each of the tensor's LocalBoxes, in their order. They hold the tensor; the device must outlive them.
std::vector<DataBlock> BlocksOf(Device& device, const HeldTensorPtr& tensor);

struct SaveOptions {
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(int64_t bytes)> progress;  // bytes of each write
};
// Writes this rank's block into a file that holds the whole tensor from byte `begin` on. Blocks on the disk. CANCELLED;
// errors of PartFiles and of the device.
absl::Status SaveBlock(Device& device, const HeldTensor& tensor, PartFiles* files, int file, int64_t begin,
                       const SaveOptions& options);

}  // namespace tp::worker
