// An abort that any thread may ask for, and its first reason. Example: `if (flag.set()) return flag.status();`
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tp::worker {

// Thread-safe.
class AbortFlag {
 public:
  void Set(absl::string_view reason) {
    const std::lock_guard lock(mutex_);
    if (set_) return;
    reason_ = std::string(reason);
    set_ = true;
  }
  bool set() const { return set_; }
  // ABORTED with the reason.
  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return absl::AbortedError(reason_);
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;  // guarded by mutex_
  std::atomic<bool> set_ = false;
};

}  // namespace tp::worker
