// Frees NCCL communicators whether or not their work can finish: ncclCommAbort of all in one group, which marks every
// one before any is freed, since a kernel of the one may stand before a kernel of the other. In a thread of its own, as
// NCCL may take long; a second one ends the process where NCCL never returns. Example:
//   AbortJob job({.device = 0}, {comm}, {event});  while (!job.drained()) ..
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace tp::worker {

class AbortJob {
 public:
  struct Options {
    int device = 0;
    absl::Duration kill_after = absl::Seconds(20);
    std::function<void(const std::string& why)> end_process = {};
  };
  // Takes over both. No other thread calls into `comms` any more.
  AbortJob(Options options, std::vector<ncclComm_t> comms, std::vector<cudaEvent_t> events);
  // Waits for ncclCommAbort, not for the events.
  ~AbortJob();
  // The communicators are freed and all events have passed: no kernel of theirs is on a stream.
  bool drained() const { return drained_; }

 private:
  void Abort();
  void EndProcessIfStuck();

  const Options options_;
  const std::vector<ncclComm_t> comms_;
  const std::vector<cudaEvent_t> events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool freed_ = false;  // guarded by mutex_
  std::atomic<bool> stop_ = false, drained_ = false;
  std::thread aborter_, timer_;
};

}  // namespace tp::worker
