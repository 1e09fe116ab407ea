// A device backend in a shared object of its own, which tp-worker loads at run time, so that one program serves
// processors with and without GPUs and depends on no library of theirs. Example, in libtp_cuda.so:
//   extern "C" const DeviceModule* tp_device_module() { static const DeviceModule module = {..}; return &module; }
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/communicator.h"
#include "worker/device/device.h"

namespace tp::worker {

struct ModuleDeviceOptions {
  int ordinal = 0;                        // of the device on this host
  int64_t* memory_limit_bytes = nullptr;  // 0 becomes the device's memory
  bool tf32 = false;                      // F32 products with fewer bits
  bool time_products = false;             // algorithms of products are chosen by timing
};

// The build that a module belongs to: C++ types cross the border, so program and module are of one build.
#ifdef TP_SANITIZE
inline constexpr char kModuleInterface[] = "tensorplane " TP_VERSION " " __VERSION__ " sanitized";
#else
inline constexpr char kModuleInterface[] = "tensorplane " TP_VERSION " " __VERSION__;
#endif

struct DeviceModule {
  const char* interface = kModuleInterface;
  absl::StatusOr<std::unique_ptr<Device>> (*create_device)(const ModuleDeviceOptions& options) = nullptr;
  // Collectives among devices of this kind; `host` carries what goes between the hosts. `device` outlives it.
  absl::StatusOr<std::unique_ptr<CollectiveBackend>> (*create_backend)(
      Device& device, std::unique_ptr<CollectiveBackend> host) = nullptr;
};
extern "C" const DeviceModule* tp_device_module();

// The module in a file, which stays loaded. FAILED_PRECONDITION saying why it can't be loaded or is of another build.
absl::StatusOr<const DeviceModule*> LoadDeviceModule(const std::string& path);
// libtp_cuda.so beside the running program, or in ../lib/tensorplane from there. NOT_FOUND naming both.
absl::StatusOr<std::string> FindCudaModule();

}  // namespace tp::worker
