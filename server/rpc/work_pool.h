// WorkPool: a few threads for work that is too long for gRPC's threads and the core's: parsing, compiling, describing.
// Example: pool.Add([call] { call->Compile(); });
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tp::server {

// Thread-safe.
class WorkPool {
 public:
  explicit WorkPool(int threads);
  ~WorkPool() { Stop(); }
  void Add(std::function<void()> work);
  // Finishes what runs, drops the rest.
  void Stop();

 private:
  void Loop();
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tp::server
