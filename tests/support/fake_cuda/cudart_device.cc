// Devices, versions and the thread's last error.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cudart_state.h"

namespace tp_fake {
namespace {

thread_local int current_device = 0;
thread_local bool in_host_function = false;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

bool IsDevice(int device) {
  const std::lock_guard lock(state.mutex);
  return device >= 0 && device < state.device_count;
}

uint64_t DeviceMemory() {
  const std::lock_guard lock(state.mutex);
  return state.memory;
}

// A card such as an H100.
cudaDeviceProp Properties(int device) {
  cudaDeviceProp prop;
  std::memset(&prop, 0, sizeof(prop));
  std::snprintf(prop.name, sizeof(prop.name), "Fake GPU %d", device);
  std::snprintf(prop.uuid.bytes, sizeof(prop.uuid.bytes), "fake-gpu-%d", device);
  prop.totalGlobalMem = DeviceMemory();
  prop.sharedMemPerBlock = 48 * 1024;
  prop.sharedMemPerBlockOptin = 227 * 1024;
  prop.sharedMemPerMultiprocessor = 228 * 1024;
  prop.regsPerBlock = prop.regsPerMultiprocessor = 65536;
  prop.warpSize = 32;
  prop.maxThreadsPerBlock = 1024;
  prop.maxThreadsPerMultiProcessor = 2048;
  prop.maxThreadsDim[0] = prop.maxThreadsDim[1] = 1024;
  prop.maxThreadsDim[2] = 64;
  prop.maxGridSize[0] = 2147483647;
  prop.maxGridSize[1] = prop.maxGridSize[2] = 65535;
  prop.major = 9;
  prop.minor = 0;
  prop.multiProcessorCount = 132;
  prop.canMapHostMemory = prop.concurrentKernels = prop.unifiedAddressing = prop.ECCEnabled = 1;
  prop.streamPrioritiesSupported = prop.memoryPoolsSupported = prop.hostRegisterSupported = 1;
  prop.pciDomainID = 0;
  prop.pciBusID = device + 1;
  prop.pciDeviceID = 0;
  prop.asyncEngineCount = 3;
  prop.memoryBusWidth = 5120;
  prop.l2CacheSize = 50 << 20;
  return prop;
}

}  // namespace

int& CurrentDevice() { return current_device; }
bool& InHostFunction() { return in_host_function; }
cudaStreamCaptureMode& ThreadCaptureMode() { return capture_mode; }

cudaError_t Done(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace tp_fake

using tp_fake::Done;

extern "C" {

cudaError_t cudaGetLastError(void) {
  const int sticky = tp_fake::state.sticky;
  if (sticky != 0) return static_cast<cudaError_t>(sticky);
  return std::exchange(tp_fake::last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void) {
  const int sticky = tp_fake::state.sticky;
  return sticky != 0 ? static_cast<cudaError_t>(sticky) : tp_fake::last_error;
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  TP_FAKE_ENTER_(cudaDriverGetVersion, false);
  if (driverVersion == nullptr) return Done(cudaErrorInvalidValue);
  *driverVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  TP_FAKE_ENTER_(cudaRuntimeGetVersion, false);
  if (runtimeVersion == nullptr) return Done(cudaErrorInvalidValue);
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return Done(cudaErrorInvalidValue);
  *count = 0;
  TP_FAKE_ENTER(cudaGetDeviceCount);
  const std::lock_guard lock(tp_fake::state.mutex);
  *count = tp_fake::state.device_count;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  TP_FAKE_ENTER(cudaGetDevice);
  if (device == nullptr) return Done(cudaErrorInvalidValue);
  *device = tp_fake::CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  TP_FAKE_ENTER(cudaSetDevice);
  if (!tp_fake::IsDevice(device)) return Done(cudaErrorInvalidDevice);
  tp_fake::CurrentDevice() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  TP_FAKE_ENTER(cudaGetDeviceProperties);
  if (prop == nullptr) return Done(cudaErrorInvalidValue);
  if (!tp_fake::IsDevice(device)) return Done(cudaErrorInvalidDevice);
  *prop = tp_fake::Properties(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  TP_FAKE_ENTER(cudaDeviceGetAttribute);
  if (value == nullptr) return Done(cudaErrorInvalidValue);
  if (!tp_fake::IsDevice(device)) return Done(cudaErrorInvalidDevice);
  const cudaDeviceProp prop = tp_fake::Properties(device);
  switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = prop.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxBlockDimX:
      *value = prop.maxThreadsDim[0];
      break;
    case cudaDevAttrMaxGridDimX:
      *value = prop.maxGridSize[0];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(prop.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(prop.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(prop.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrWarpSize:
      *value = prop.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = prop.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = prop.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = prop.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = prop.minor;
      break;
    case cudaDevAttrPciDomainId:
      *value = prop.pciDomainID;
      break;
    case cudaDevAttrPciBusId:
      *value = prop.pciBusID;
      break;
    case cudaDevAttrPciDeviceId:
      *value = prop.pciDeviceID;
      break;
    case cudaDevAttrAsyncEngineCount:
      *value = prop.asyncEngineCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = prop.l2CacheSize;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = prop.memoryBusWidth;
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 2619000;
      break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
      *value = 0;
      break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    default:
      return Done(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  TP_FAKE_ENTER(cudaDeviceGetPCIBusId);
  if (pciBusId == nullptr || len < 13) return Done(cudaErrorInvalidValue);
  if (!tp_fake::IsDevice(device)) return Done(cudaErrorInvalidDevice);
  std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  TP_FAKE_ENTER(cudaMemGetInfo);
  if (free == nullptr || total == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(tp_fake::state.mutex);
  const auto& device = *tp_fake::state.devices[static_cast<size_t>(tp_fake::CurrentDevice())];
  const uint64_t used = device.direct + device.pool.reserved;
  *total = tp_fake::state.memory;
  *free = tp_fake::state.memory - std::min<uint64_t>(used, tp_fake::state.memory);
  return cudaSuccess;
}

}  // extern "C"
