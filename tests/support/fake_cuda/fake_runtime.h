// What the fakes of cudart, cuBLASLt and NCCL, kernel launches of host builds and tests share: device memory is host
// memory, a stream is a queue with a thread of its own. Exported by the fake cudart (libtp_fake_cudart.so). Example:
//   tp_fake::Enqueue(stream, [=] { *out = *in; });      // after what the stream holds; into its graph while it
//   captures tp_fake::FailNext("cudaMallocAsync", cudaErrorMemoryAllocation, /*after=*/3);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace tp_fake {

// Puts work on a stream, in its order; while the stream captures, into its graph (and runs at every launch of it).
// cudaErrorInvalidResourceHandle for a stream that is not there or of another device than the thread's current one (as
// a kernel launch does); a sticky error of the device is returned first. Counts, and can fail, as "cudaLaunchKernel".
__attribute__((visibility("default"))) cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// A kernel's fault (an illegal address): from now on every call of the device returns `error`, as CUDA does, and what
// streams still hold is dropped. Calls that free or destroy something do so all the same.
__attribute__((visibility("default"))) void SetSticky(cudaError_t error);

// The call of `function` after `after` further ones returns `error`, once (0 = the next one). Any name of the three
// libraries; `error` is the library's own code.
__attribute__((visibility("default"))) void FailNext(const char* function, int error, int after);
// What a fake of a library asks at the top of each call: the injected code, or 0.
__attribute__((visibility("default"))) int InjectedError(const char* function);
// Streams stand still before their next work until Resume (a kernel that hangs); a hung stream can still be destroyed.
__attribute__((visibility("default"))) void Hang();
__attribute__((visibility("default"))) void Resume();
// Forgets injections, sticky errors, hangs, counts of calls and SetMemory; what streams still hold is dropped. Devices
// as `devices` says; before the first Reset, as TP_FAKE_CUDA_DEVICES says (1 unless set).
__attribute__((visibility("default"))) void Reset(int devices);
// Calls of `function` since Reset: cudaMalloc, cudaGraphLaunch, ncclAllReduce, ...
__attribute__((visibility("default"))) int CallsOf(const char* function);

// Memory of each device in bytes (TP_FAKE_CUDA_MEMORY; 4 GiB unless set).
__attribute__((visibility("default"))) void SetMemory(size_t bytes);
// Bytes that are allocated and not yet freed: device memory of all devices, pinned host memory.
__attribute__((visibility("default"))) size_t DeviceBytes();
__attribute__((visibility("default"))) size_t HostBytes();

}  // namespace tp_fake
