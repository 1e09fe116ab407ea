// What the executor's thread asks while it waits for a stream, so that work that cannot finish (a collective whose peer
// is gone) ends the wait: who waits polls the watches between two looks at the stream or event. Example:
//   while ((code = cudaStreamQuery(stream)) == cudaErrorNotReady) TP_RETURN_IF_ERROR(watches->Poll());
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "common/base/status.h"

namespace tp::worker::cuda {

// Someone who has work on streams.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  // OK while its work may still finish, and where it has none on the streams; else why it will not. After an error the
  // streams drain (the work is taken off). Cheap and never blocks for long, so it may be called in a loop. On the
  // thread that issues the work.
  virtual absl::Status Poll() = 0;
};

// The watches of one device.
class StreamWatches {
 public:
  void Add(StreamWatch* watch) {
    const std::lock_guard lock(mutex_);
    watches_.push_back(watch);
  }
  // Does not return while `watch` is being polled by another thread; not from within a Poll.
  void Remove(StreamWatch* watch) {
    const std::lock_guard lock(mutex_);
    watches_.erase(std::remove(watches_.begin(), watches_.end(), watch), watches_.end());
  }
  // The first error, after all were asked.
  absl::Status Poll() {
    const std::lock_guard lock(mutex_);
    absl::Status first;
    for (StreamWatch* watch : watches_) first.Update(watch->Poll());
    return first;
  }

 private:
  std::mutex mutex_;
  std::vector<StreamWatch*> watches_;
};

}  // namespace tp::worker::cuda
