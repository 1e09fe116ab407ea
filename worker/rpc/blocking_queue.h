// BlockingQueue: hands messages to the thread that writes a stream. Example:
//   while (std::optional<Ack> ack = queue.Pop()) stream->Write(*ack);
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tp::worker {

// Thread-safe.
template <typename T>
class BlockingQueue {
 public:
  // Dropped after Close().
  void Push(T value) {
    absl::MutexLock lock(&mutex_);
    if (!closed_) values_.push_back(std::move(value));
  }
  // Waits; nullopt once it is closed and what was pushed before has been taken.
  std::optional<T> Pop() {
    absl::MutexLock lock(&mutex_);
    auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !values_.empty(); };
    mutex_.Await(absl::Condition(&ready));
    if (values_.empty()) return std::nullopt;
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  absl::Mutex mutex_;
  std::deque<T> values_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tp::worker
