#include "worker/device/cuda/cuda_status.h"

#include <cublasLt.h>
#include <nccl.h>

#include "absl/strings/str_cat.h"

namespace tp::worker::cuda {

absl::Status CudaStatus(cudaError_t code, absl::string_view what) {
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorName(code), " (", cudaGetErrorString(code), ")");
  switch (code) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(text);
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorDevicesUnavailable:
      return absl::FailedPreconditionError(text);
    case cudaErrorECCUncorrectable:
      return absl::DataLossError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status CublasStatus(int code, absl::string_view what) {
  const auto status = static_cast<cublasStatus_t>(code);
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text =
      absl::StrCat(what, ": ", cublasLtGetStatusName(status), " (", cublasLtGetStatusString(status), ")");
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(text);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
    return absl::UnimplementedError(text);
  return absl::InternalError(text);
}

absl::Status NcclStatus(int code, absl::string_view what, absl::string_view detail) {
  const auto result = static_cast<ncclResult_t>(code);
  if (result == ncclSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", ncclGetErrorString(result), detail.empty() ? "" : ": ", detail);
  switch (result) {
    case ncclRemoteError:
      return absl::UnavailableError(text);
    case ncclInvalidArgument:
      return absl::InvalidArgumentError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace tp::worker::cuda
