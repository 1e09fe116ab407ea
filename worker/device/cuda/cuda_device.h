// The Device of one NVIDIA GPU: CUDA streams, cuBLASLt for products, own kernels for the rest. Example:
//   auto device = *CreateCudaDevice({.ordinal = 0});  (*device).Describe() is "cuda:0 (NVIDIA H200, sm_90, ...)"
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/cuda/stream_watch.h"
#include "worker/device/device.h"

namespace tp::worker {

struct CudaDeviceOptions {
  int ordinal = 0;
  int64_t memory_limit_bytes = 0;  // 0 = the GPU's memory
  bool tf32 = false;               // F32 products on tensor cores, with 10 bits of mantissa
  // The fastest algorithm of each product is found by timing at its first use. Ranks may choose differently then, so
  // products that they all compute alike may differ in their last bits: for meshes of one GPU.
  bool time_products = false;
};

// What collectives on the device need of it.
class CudaDevice : public Device {
 public:
  virtual int ordinal() const = 0;
  virtual int64_t memory_limit_bytes() const = 0;
  virtual std::string bus_id() const = 0;  // "0000:17:00.0"
  virtual cuda::StreamWatches& watches() = 0;
};

// FAILED_PRECONDITION where there is no such GPU or its driver is too old, naming both.
absl::StatusOr<std::unique_ptr<CudaDevice>> CreateCudaDevice(const CudaDeviceOptions& options);

// The CUDA stream of a Stream that a CudaDevice made.
cudaStream_t StreamHandle(Stream& stream);

}  // namespace tp::worker
