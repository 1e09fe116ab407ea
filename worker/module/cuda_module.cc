// libtp_cuda.so: the CUDA device and NCCL's collectives as a device module.
#include <utility>

#include "common/base/status.h"
#include "worker/collective/nccl/nccl_backend.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/module/device_module.h"

namespace tp::worker {
namespace {

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const ModuleDeviceOptions& options) {
  TP_ASSIGN_OR_RETURN(
      std::unique_ptr<CudaDevice> device,
      CreateCudaDevice({options.ordinal, *options.memory_limit_bytes, options.tf32, options.time_products}));
  *options.memory_limit_bytes = device->memory_limit_bytes();
  return device;
}

absl::StatusOr<std::unique_ptr<CollectiveBackend>> CreateBackend(Device& device,
                                                                 std::unique_ptr<CollectiveBackend> host) {
  auto& gpu = static_cast<CudaDevice&>(device);
  return CreateNcclBackend({.device = gpu.ordinal(), .stream_of = StreamHandle, .watches = &gpu.watches()},
                           std::move(host));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const DeviceModule* tp_device_module() {
  static const DeviceModule module{kModuleInterface, CreateDevice, CreateBackend};
  return &module;
}

}  // namespace tp::worker
