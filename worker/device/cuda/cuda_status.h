// Codes of CUDA, cuBLASLt and NCCL as Status; the only place that knows them. Example:
//   TP_RETURN_IF_ERROR(CudaStatus(cudaStreamCreate(&stream), "stream"));
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace tp::worker::cuda {

// OK for cudaSuccess; RESOURCE_EXHAUSTED where memory is short; FAILED_PRECONDITION without a device or with a driver
// that is too old; DATA_LOSS for memory that ECC gave up; INTERNAL for the rest. The text: what, CUDA's name and words.
absl::Status CudaStatus(cudaError_t code, absl::string_view what);
// `code` is a cublasStatus_t (kept an int, so that few files see cuBLASLt's header).
absl::Status CublasStatus(int code, absl::string_view what);
// `code` is an ncclResult_t; ncclInProgress is INTERNAL here: who calls waits for it first. `detail`: NCCL's last
// error.
absl::Status NcclStatus(int code, absl::string_view what, absl::string_view detail = "");

}  // namespace tp::worker::cuda
