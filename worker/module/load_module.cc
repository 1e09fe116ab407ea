#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/module/device_module.h"

namespace tp::worker {

absl::StatusOr<const DeviceModule*> LoadDeviceModule(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::FailedPreconditionError(absl::StrCat("can't be loaded: ", dlerror()));
  using Entry = const DeviceModule* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "tp_device_module"));
  if (entry == nullptr) return absl::FailedPreconditionError(absl::StrCat(path, " is no device module"));
  const DeviceModule* module = entry();
  if (std::strcmp(module->interface, kModuleInterface) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is of the build '", module->interface, "', this program of '", kModuleInterface, "'"));
  }
  return module;
}

absl::StatusOr<std::string> FindCudaModule() {
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) return absl::InternalError("this program's path");
  std::string folder(program);
  folder.resize(folder.rfind('/'));
  std::string tried;
  for (const char* place : {"/libtp_cuda.so", "/../lib/tensorplane/libtp_cuda.so"}) {
    std::string path = folder + place;
    if (access(path.c_str(), R_OK) == 0) return path;
    absl::StrAppend(&tried, tried.empty() ? "" : " nor ", path);
  }
  return absl::NotFoundError(absl::StrCat("no CUDA backend at ", tried));
}

}  // namespace tp::worker
