// NCCL's Communicator over the fakes, as the contract tests take one: every call waits until its work is done on the
// stream, as the executor does at the end of a step, and reports what was found while it waited. Memory is the host's.
// Example: `auto backend = CreateSyncedNcclBackend(/*gpu=*/1, CreateInProcessBackend(hub));`
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_backend.h"

namespace tp::worker {

inline constexpr int kFakeGpus = 8;

// A stream of the fake cudart.
class FakeStream : public Stream {
 public:
  explicit FakeStream(int gpu);
  ~FakeStream() override;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Options of a communicator on `gpu` whose streams are FakeStreams.
NcclOptions FakeNcclOptions(int gpu, cuda::StreamWatches* watches);
// Waits for the stream as CudaDevice::Synchronize does: the first error of a watch; when it returns the stream is idle.
absl::Status SyncFakeStream(cudaStream_t stream, cuda::StreamWatches& watches);

std::unique_ptr<CollectiveBackend> CreateSyncedNcclBackend(int gpu, std::unique_ptr<CollectiveBackend> host,
                                                           NcclOptions options = {});

}  // namespace tp::worker
