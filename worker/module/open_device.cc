#include "worker/module/open_device.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker/collective/gloo/gloo_address.h"
#include "worker/collective/gloo/gloo_backend.h"
#include "worker/device/cpu/cpu_device.h"
#include "worker/module/device_module.h"

namespace tp::worker {
namespace {

// The address is looked up here only: what is advertised is what is bound.
absl::Status OpenGloo(const OpenOptions& options, OpenedDevice* opened, std::unique_ptr<CollectiveBackend>* backend) {
  TP_ASSIGN_OR_RETURN(const sockaddr_storage address, ResolveLocalHost(options.collective_host));
  opened->collective_host = HostText(address);
  TP_ASSIGN_OR_RETURN(*backend, CreateGlooBackend(opened->collective_host));
  return absl::OkStatus();
}

absl::StatusOr<OpenedDevice> OpenCpu(const OpenOptions& options) {
  OpenedDevice opened;
  opened.memory_limit_bytes = options.memory_limit_bytes > 0 ? options.memory_limit_bytes
                                                             : int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  TP_ASSIGN_OR_RETURN(opened.device, CreateCpuDevice({options.threads, opened.memory_limit_bytes}));
  TP_RETURN_IF_ERROR(OpenGloo(options, &opened, &opened.backend));
  return opened;
}

absl::StatusOr<OpenedDevice> OpenCuda(const OpenOptions& options, int ordinal) {
  std::string path = options.cuda_module;
  if (path.empty()) {
    TP_ASSIGN_OR_RETURN(path, FindCudaModule());
  }
  TP_ASSIGN_OR_RETURN(const DeviceModule* module, LoadDeviceModule(path));
  OpenedDevice opened;
  opened.memory_limit_bytes = options.memory_limit_bytes;
  TP_ASSIGN_OR_RETURN(
      opened.device, module->create_device({ordinal, &opened.memory_limit_bytes, options.tf32, options.time_products}));
  std::unique_ptr<CollectiveBackend> host;
  TP_RETURN_IF_ERROR(OpenGloo(options, &opened, &host));
  TP_ASSIGN_OR_RETURN(opened.backend, module->create_backend(*opened.device, std::move(host)));
  return opened;
}

}  // namespace

absl::StatusOr<OpenedDevice> OpenDevice(const OpenOptions& options) {
  if (options.name == "cpu") return OpenCpu(options);
  int ordinal = -1;
  if (options.name.rfind("cuda:", 0) != 0 || !absl::SimpleAtoi(options.name.substr(5), &ordinal) || ordinal < 0 ||
      options.name != absl::StrCat("cuda:", ordinal)) {
    return absl::InvalidArgumentError(absl::StrCat("--device ", options.name, ": must be cpu or cuda:N"));
  }
  absl::StatusOr<OpenedDevice> opened = OpenCuda(options, ordinal);
  if (!opened.ok()) return Annotate(opened.status(), absl::StrCat("--device ", options.name));
  return opened;
}

}  // namespace tp::worker
