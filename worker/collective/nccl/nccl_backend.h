// Collectives between GPUs through NCCL. A host-side group (Gloo between workers) carries barriers and headers, names
// the peers that are gone, and connects first; NCCL moves what lies in device memory. Example:
//   auto backend = CreateNcclBackend({.device = 0, .stream_of = CudaStreamOf, .watches = &watches}, std::move(gloo));
// - Addresses are the host group's with the GPU, the versions of NCCL and CUDA, and rank 0's fresh ncclUniqueId: an
//   epoch never meets another one. Ranks with other versions, and two ranks on one GPU, are refused on all ranks with
//   FAILED_PRECONDITION naming both.
// - Calls return once their work is on the stream. What fails later (an error of NCCL's, a deadline, an abort, a peer
//   that is gone) is found by Poll() of the watch that a communicator adds to `watches`: whoever waits for the stream
//   polls. After a failure the communicators are aborted by a thread of their own, all marked before any is freed, and
//   the streams drain; every later call returns ABORTED.
// - Sums of F32 and F64 are NCCL's: the same bits on all ranks and in every run on the same GPUs, but not added in rank
//   order. Sums of BF16 and F16 accumulate in F32 in rank order, min and max keep a NaN; both by exchange and a kernel.
// - Any list of ranks is a group. Those that PrepareGroups() was told have an NCCL communicator of their own; others
//   send and receive over the one of all ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "worker/collective/communicator.h"
#include "worker/device/cuda/stream_watch.h"

namespace tp::worker {

struct NcclOptions {
  int device = 0;                                       // ordinal of the GPU
  std::function<cudaStream_t(Stream&)> stream_of = {};  // CUDA's handle of a stream
  cuda::StreamWatches* watches = nullptr;               // outlives the communicators
  // ncclCommAbort that takes longer ends the process, through end_process: it can never use its GPU again.
  absl::Duration kill_after = absl::Seconds(20);
  std::function<void(const std::string& why)> end_process = {};  // default: logs and exits with status 1
};

// FAILED_PRECONDITION where the GPU or NCCL is not there.
absl::StatusOr<std::unique_ptr<CollectiveBackend>> CreateNcclBackend(NcclOptions options,
                                                                     std::unique_ptr<CollectiveBackend> host);

}  // namespace tp::worker
