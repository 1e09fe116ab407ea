// CUDA's names and words for its error codes.
#include <cuda_runtime_api.h>

namespace {

struct Words {
  const char* name;
  const char* text;
};

Words WordsOf(cudaError_t error) {
  switch (error) {
#define TP_ERROR(code, text) \
  case code:                 \
    return {#code, text};
    TP_ERROR(cudaSuccess, "no error")
    TP_ERROR(cudaErrorInvalidValue, "invalid argument")
    TP_ERROR(cudaErrorMemoryAllocation, "out of memory")
    TP_ERROR(cudaErrorInitializationError, "initialization error")
    TP_ERROR(cudaErrorCudartUnloading, "driver shutting down")
    TP_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument")
    TP_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument")
    TP_ERROR(cudaErrorInvalidHostPointer, "invalid host pointer")
    TP_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer")
    TP_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")
    TP_ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library")
    TP_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")
    TP_ERROR(cudaErrorCallRequiresNewerDriver, "API call is not supported in the installed CUDA driver")
    TP_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable")
    TP_ERROR(cudaErrorIncompatibleDriverContext, "incompatible driver context")
    TP_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function")
    TP_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected")
    TP_ERROR(cudaErrorInvalidDevice, "invalid device ordinal")
    TP_ERROR(cudaErrorDeviceNotLicensed, "device doesn't have valid Grid license")
    TP_ERROR(cudaErrorStartupFailure, "startup failure in cuda runtime")
    TP_ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid")
    TP_ERROR(cudaErrorDeviceUninitialized, "invalid device context")
    TP_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device")
    TP_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")
    TP_ERROR(cudaErrorDeviceAlreadyInUse, "exclusive-thread device already in use by a different thread")
    TP_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices")
    TP_ERROR(cudaErrorInvalidPtx, "a PTX JIT compilation failed")
    TP_ERROR(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error detected during the execution")
    TP_ERROR(cudaErrorUnsupportedPtxVersion, "the provided PTX was compiled with an unsupported toolchain.")
    TP_ERROR(cudaErrorContained, "Invalid access of peer GPU memory over nvlink or a hardware error")
    TP_ERROR(cudaErrorFileNotFound, "file not found")
    TP_ERROR(cudaErrorSharedObjectInitFailed, "shared object initialization failed")
    TP_ERROR(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS")
    TP_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle")
    TP_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state")
    TP_ERROR(cudaErrorLossyQuery, "attempted introspection would be semantically lossy")
    TP_ERROR(cudaErrorSymbolNotFound, "named symbol not found")
    TP_ERROR(cudaErrorNotReady, "device not ready")
    TP_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered")
    TP_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch")
    TP_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated")
    TP_ERROR(cudaErrorContextIsDestroyed, "context is destroyed")
    TP_ERROR(cudaErrorAssert, "device-side assert triggered")
    TP_ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped")
    TP_ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")
    TP_ERROR(cudaErrorHardwareStackError, "hardware stack error")
    TP_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered")
    TP_ERROR(cudaErrorMisalignedAddress, "misaligned address")
    TP_ERROR(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space")
    TP_ERROR(cudaErrorInvalidPc, "invalid program counter")
    TP_ERROR(cudaErrorLaunchFailure, "unspecified launch failure")
    TP_ERROR(cudaErrorNotPermitted, "operation not permitted")
    TP_ERROR(cudaErrorNotSupported, "operation not supported")
    TP_ERROR(cudaErrorSystemNotReady, "system not yet initialized")
    TP_ERROR(cudaErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination")
    TP_ERROR(cudaErrorCompatNotSupportedOnDevice, "forward compatibility was attempted on non supported HW")
    TP_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")
    TP_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")
    TP_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences")
    TP_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began")
    TP_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")
    TP_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")
    TP_ERROR(cudaErrorStreamCaptureImplicit,
             "operation would make the legacy stream depend on a capturing blocking stream")
    TP_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream")
    TP_ERROR(cudaErrorStreamCaptureWrongThread,
             "attempt to terminate a thread-local capture sequence from another thread")
    TP_ERROR(cudaErrorTimeout, "wait operation timed out")
    TP_ERROR(cudaErrorGraphExecUpdateFailure,
             "the graph update was not performed because it included changes which violated constraints specific to "
             "instantiated graph update")
    TP_ERROR(cudaErrorExternalDevice, "an async error has occured in external entity outside of CUDA")
    TP_ERROR(cudaErrorUnknown, "unknown error")
#undef TP_ERROR
    default:
      return {"unrecognized error code", "unrecognized error code"};
  }
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return WordsOf(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return WordsOf(error).text; }

}  // extern "C"
