// The CPU device: oneDNN for products, Highway with run-time dispatch for the rest. Example: `CreateCpuDevice({2})`.
#pragma once

#include <memory>

#include "worker/device/device.h"

namespace tp::worker {

struct CpuDeviceOptions {
  int threads = 1;                 // OpenMP is set to exactly this
  int64_t memory_limit_bytes = 0;  // 0 = none
};
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace tp::worker
