// What the hosts of the CUDA kernels check. Example:
//   if (!IsKernelFloat(input.dtype)) return Unimplemented("rotary", input.dtype);
#pragma once

#include "worker/device/cuda/elements.h"
#include "worker/device/shapes.h"

namespace tp::worker::cuda {

inline bool IsKernelFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

}  // namespace tp::worker::cuda
