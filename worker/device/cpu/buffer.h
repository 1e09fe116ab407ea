// Memory of the CPU device: 64-byte aligned blocks that count against one limit. A block may outlive its device.
// Example: `auto account = std::make_shared<MemoryAccount>(limit); auto buffer = AllocateCpuBuffer(account, 4096);`
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "worker/device/device.h"

namespace tp::worker {

// Bytes in use against a limit. Thread-safe.
class MemoryAccount {
 public:
  explicit MemoryAccount(int64_t limit_bytes) : limit_(limit_bytes) {}  // 0 = none
  // RESOURCE_EXHAUSTED naming the bytes asked for, in use and allowed.
  absl::Status Take(int64_t bytes);
  void Give(int64_t bytes) { used_.fetch_sub(bytes); }
  int64_t used() const { return used_.load(); }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

// INVALID_ARGUMENT for a negative size, RESOURCE_EXHAUSTED where there is no memory. In sanitizer builds the bytes
// around the block are filled with a pattern, checked when it is freed (the process stops where they changed): code
// generated at run time is not seen by the sanitizers; and the block itself starts as NaN.
absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateCpuBuffer(std::shared_ptr<MemoryAccount> account, int64_t bytes);

}  // namespace tp::worker
