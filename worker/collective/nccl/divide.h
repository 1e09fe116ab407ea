// What NCCL's sum becomes an average with. Example: `Divide(stream, DType::kF32, data, count, 8)`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/dtype.h"

namespace tp::worker {

// data[i] /= divisor; F32 and F64. Puts the work on the stream.
absl::Status Divide(cudaStream_t stream, DType dtype, void* data, int64_t count, int divisor);

}  // namespace tp::worker
