// Memory for the terms of a reduction, one block a stream, kept and grown. Example:
//   TP_ASSIGN_OR_RETURN(void* terms, scratch.Get(stream, bytes));
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/cuda/cuda_status.h"

namespace tp::worker {

// Freed with the object, when no work uses it any more. A block that has grown too small stays until then: a graph may
// use it.
class Scratch {
 public:
  ~Scratch() {
    for (void* memory : memory_) cudaFree(memory);
  }
  // For work on `stream`, in the stream's order, until the next call for it. FAILED_PRECONDITION where the stream
  // captures and there is not enough: what a graph holds is run once before.
  absl::StatusOr<void*> Get(cudaStream_t stream, int64_t bytes) {
    Block& block = blocks_[stream];
    if (bytes <= block.bytes) return block.data;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    TP_RETURN_IF_ERROR(cuda::CudaStatus(cudaStreamIsCapturing(stream, &capturing), "memory of a reduction"));
    if (capturing != cudaStreamCaptureStatusNone) {
      return absl::FailedPreconditionError("a reduction is captured that was never run before");
    }
    const int64_t size = std::max(bytes, 2 * block.bytes);
    void* data = nullptr;
    TP_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaMallocAsync(&data, static_cast<size_t>(size), stream), "memory of a reduction"));
    memory_.push_back(data);
    block = {data, size};
    return data;
  }

 private:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  std::map<cudaStream_t, Block> blocks_;
  std::vector<void*> memory_;
};

}  // namespace tp::worker
