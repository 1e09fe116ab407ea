// Opens the device that `tp-worker --device` names, with the collectives among devices of its kind. Example:
//   TP_ASSIGN_OR_RETURN(OpenedDevice opened, OpenDevice({.name = "cuda:0", .collective_host = "10.0.0.7"}));
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/collective/communicator.h"
#include "worker/device/device.h"

namespace tp::worker {

struct OpenOptions {
  std::string name = "cpu";        // or "cuda:N"
  int threads = 1;                 // of a cpu device
  int64_t memory_limit_bytes = 0;  // 0 = all of the machine's memory, or the GPU's
  bool tf32 = false;               // F32 products of a GPU with 10 bits of mantissa
  bool time_products = false;      // algorithms of a GPU's products are chosen by timing: for meshes of one GPU
  std::string cuda_module;         // "" = FindCudaModule
  std::string collective_host = "127.0.0.1";  // where other workers reach this one
};
struct OpenedDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<CollectiveBackend> backend;  // must go before the device
  int64_t memory_limit_bytes = 0;
  std::string collective_host;  // the address that the name resolved to, once
};

// INVALID_ARGUMENT for another name; FAILED_PRECONDITION or NOT_FOUND where the backend or the GPU is not there.
absl::StatusOr<OpenedDevice> OpenDevice(const OpenOptions& options);

}  // namespace tp::worker
