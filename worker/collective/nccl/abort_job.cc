#include "worker/collective/nccl/abort_job.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tp::worker {

AbortJob::AbortJob(Options options, std::vector<ncclComm_t> comms, std::vector<cudaEvent_t> events)
    : options_(std::move(options)),
      comms_(std::move(comms)),
      events_(std::move(events)),
      aborter_([this] { Abort(); }),
      timer_([this] { EndProcessIfStuck(); }) {}

AbortJob::~AbortJob() {
  stop_ = true;
  aborter_.join();
  timer_.join();
}

void AbortJob::Abort() {
  cudaSetDevice(options_.device);
  // Codes tell nothing that could be acted on: the communicators are gone either way.
  if (!comms_.empty()) {
    ncclGroupStart();
    for (const ncclComm_t comm : comms_) ncclCommAbort(comm);
    ncclGroupEnd();
  }
  {
    const std::lock_guard lock(mutex_);
    freed_ = true;
  }
  changed_.notify_all();
  bool passed = false;
  while (!passed && !stop_) {
    passed = true;
    for (const cudaEvent_t event : events_) passed = passed && cudaEventQuery(event) != cudaErrorNotReady;
    if (!passed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  drained_ = true;
}

void AbortJob::EndProcessIfStuck() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, absl::ToChronoMilliseconds(options_.kill_after), [this] { return freed_; })) return;
  lock.unlock();
  options_.end_process(absl::StrCat("ncclCommAbort of ", comms_.size(), " communicators on GPU ", options_.device,
                                    " did not return within ", absl::FormatDuration(options_.kill_after),
                                    "; the process ends, as its GPU can't be used any more"));
}

}  // namespace tp::worker
