// The fake cudart behaves as CUDA's: order, events, capture, pools, and what tests steer it with.
#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fake_runtime.h"
#include "gtest/gtest.h"

namespace tp_fake {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, cudaSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, cudaSuccess)

class FakeCuda : public testing::Test {
 protected:
  void SetUp() override {
    Reset(2);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    (void)cudaGetLastError();
    ASSERT_OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ASSERT_OK(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
    ASSERT_OK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    ASSERT_OK(cudaEventCreateWithFlags(&back_, cudaEventDisableTiming));
  }
  void TearDown() override {
    Resume();
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    cudaEventDestroy(event_);
    cudaEventDestroy(back_);
    Reset(1);
    EXPECT_EQ(DeviceBytes(), 0u);
    EXPECT_EQ(HostBytes(), 0u);
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr, back_ = nullptr;
};

TEST_F(FakeCuda, AStreamWorksInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) EXPECT_OK(Enqueue(stream_, [&order, i] { order.push_back(i); }));
  EXPECT_OK(cudaStreamSynchronize(stream_));
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_EQ(CallsOf("cudaLaunchKernel"), 100);
}

TEST_F(FakeCuda, EventsOrderStreams) {
  std::atomic<bool> go = false;
  int value = 0, seen = 0;
  EXPECT_OK(Enqueue(stream_, [&] {
    while (!go) std::this_thread::yield();
    value = 7;
  }));
  EXPECT_OK(cudaEventRecord(event_, stream_));
  EXPECT_OK(cudaStreamWaitEvent(other_, event_));
  EXPECT_OK(Enqueue(other_, [&] { seen = value; }));
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(other_), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  go = true;
  EXPECT_OK(cudaStreamSynchronize(other_));
  EXPECT_EQ(seen, 7);
  EXPECT_OK(cudaEventQuery(event_));
  float ms = 0;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event_, event_), cudaErrorInvalidResourceHandle);
}

TEST_F(FakeCuda, TheNullStreamWaitsForBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_OK(cudaStreamCreate(&blocking));
  std::vector<int> order;
  EXPECT_OK(Enqueue(blocking, [&] { order.push_back(1); }));
  EXPECT_OK(Enqueue(nullptr, [&] { order.push_back(2); }));
  EXPECT_OK(Enqueue(blocking, [&] { order.push_back(3); }));
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_OK(cudaStreamDestroy(blocking));
}

TEST_F(FakeCuda, CopiesAndFillsCheckTheirAddresses) {
  char *device = nullptr, *pinned = nullptr;
  ASSERT_OK(cudaMalloc(reinterpret_cast<void**>(&device), 16));
  ASSERT_OK(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 16, cudaHostAllocDefault));
  std::vector<char> host(16, 'a');
  EXPECT_OK(cudaMemcpyAsync(device, host.data(), 16, cudaMemcpyHostToDevice, stream_));
  host.assign(16, 'b');  // pageable memory was read by the call
  EXPECT_OK(cudaMemsetAsync(device + 4, 'c', 2, stream_));
  EXPECT_OK(cudaMemcpy2DAsync(pinned, 4, device, 8, 4, 2, cudaMemcpyDeviceToHost, stream_));
  EXPECT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::string(pinned, 8), "aaaaaaaa");
  EXPECT_OK(cudaMemcpy(host.data(), device, 8, cudaMemcpyDeviceToHost));
  EXPECT_EQ(std::string(host.data(), 10), "aaaaccaabb");
  EXPECT_EQ(cudaMemcpyAsync(device + 8, pinned, 9, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), pinned, 4, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(DeviceBytes(), 16u);
  EXPECT_EQ(HostBytes(), 16u);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_OK(cudaFree(device));
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  EXPECT_OK(cudaFreeHost(pinned));
}

TEST_F(FakeCuda, MemoryIsLimited) {
  SetMemory(1000);
  void *a = nullptr, *b = nullptr;
  ASSERT_OK(cudaMalloc(&a, 600));
  EXPECT_EQ(cudaMalloc(&b, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(b, nullptr);
  size_t free = 0, total = 0;
  EXPECT_OK(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(total, 1000u);
  EXPECT_OK(cudaFree(a));
}

TEST_F(FakeCuda, PoolsFreeInStreamOrder) {
  SetMemory(1000);
  cudaMemPool_t pool = nullptr;
  ASSERT_OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t keep = 800, reserved = 0;
  EXPECT_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  void *a = nullptr, *b = nullptr;
  ASSERT_OK(cudaMallocAsync(&a, 700, stream_));
  std::atomic<bool> go = false;
  EXPECT_OK(Enqueue(stream_, [&] {
    while (!go) std::this_thread::yield();
    static_cast<char*>(a)[699] = 1;
  }));
  EXPECT_OK(cudaFreeAsync(a, stream_));
  EXPECT_EQ(cudaFreeAsync(a, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(DeviceBytes(), 700u);
  go = true;
  ASSERT_OK(cudaMallocAsync(&b, 600, other_));  // after the free
  EXPECT_EQ(DeviceBytes(), 600u);
  EXPECT_OK(cudaFreeAsync(b, other_));
  EXPECT_OK(cudaStreamSynchronize(other_));
  EXPECT_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT_EQ(reserved, 700u);
  EXPECT_OK(cudaMemPoolTrimTo(pool, 0));
  EXPECT_OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  EXPECT_EQ(reserved, 0u);
  keep = 0;
  EXPECT_OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
}

#if !defined(TP_SANITIZE)
TEST_F(FakeCuda, AWriteBesideABlockIsAFault) {
  char* block = nullptr;
  ASSERT_OK(cudaMalloc(reinterpret_cast<void**>(&block), 10));
  block[10] = 0;
  EXPECT_EQ(cudaFree(block), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}
#endif

TEST_F(FakeCuda, AGraphReplaysWhatAllItsStreamsRecorded) {
  int x = 1, y = 0;
  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  EXPECT_OK(Enqueue(stream_, [&] { x *= 3; }));
  EXPECT_OK(cudaEventRecord(event_, stream_));
  EXPECT_OK(cudaStreamWaitEvent(other_, event_));
  EXPECT_OK(Enqueue(other_, [&] { y = x + 1; }));
  EXPECT_OK(cudaEventRecord(back_, other_));
  EXPECT_OK(cudaStreamWaitEvent(stream_, back_));
  EXPECT_OK(Enqueue(stream_, [&] { x += y; }));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_OK(cudaStreamIsCapturing(other_, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(x, 1);
  size_t nodes = 0;
  EXPECT_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 3u);
  cudaGraphExec_t executable = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&executable, graph));
  EXPECT_OK(cudaGraphDestroy(graph));
  EXPECT_OK(cudaGraphLaunch(executable, stream_));
  EXPECT_OK(cudaGraphLaunch(executable, other_));
  EXPECT_OK(cudaStreamSynchronize(other_));
  EXPECT_EQ(x, 43);  // 1 -> 3, 4 -> 7 -> 21, 22 -> 43
  EXPECT_OK(cudaGraphExecDestroy(executable));
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaErrorInvalidValue);
}

// Each call that CUDA forbids while a stream captures, and what it and the end of the capture answer.
TEST_F(FakeCuda, IllegalCallsEndACapture) {
  void* memory = nullptr;
  void* before = nullptr;
  ASSERT_OK(cudaMalloc(&before, 8));
  EXPECT_OK(cudaEventRecord(back_, other_));
  struct Call {
    std::function<cudaError_t()> call;
    cudaError_t error;
  };
  const Call calls[] = {
      {[&] { return cudaMalloc(&memory, 8); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaFree(before); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaHostAlloc(&memory, 8, 0); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaMemcpy(before, before, 8, cudaMemcpyDefault); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaStreamSynchronize(stream_); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaStreamQuery(stream_); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaEventQuery(back_); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaStreamWaitEvent(stream_, back_); }, cudaErrorStreamCaptureIsolation},
  };
  for (const auto& [call, error] : calls) {
    EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    EXPECT_EQ(call(), error);
    EXPECT_EQ(Enqueue(stream_, [] {}), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
  EXPECT_OK(cudaFree(before));
}

TEST_F(FakeCuda, CaptureModesSayWhoMayDisturb) {
  const auto malloc_elsewhere = [] {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      error = cudaMalloc(&memory, 8);
      if (error == cudaSuccess) cudaFree(memory);
    }).join();
    return error;
  };
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(malloc_elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(malloc_elsewhere(), cudaSuccess);
  EXPECT_OK(cudaStreamEndCapture(stream_, &graph));
  EXPECT_OK(cudaGraphDestroy(graph));
  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  std::thread([&] { EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(FakeCuda, CapturesOfSeveralStreamsMustBeJoined) {
  cudaGraph_t graph = nullptr;
  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  EXPECT_OK(cudaEventRecord(event_, stream_));
  EXPECT_OK(cudaStreamWaitEvent(other_, event_));
  EXPECT_OK(Enqueue(other_, [] {}));
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);

  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  EXPECT_OK(cudaEventRecord(event_, stream_));
  EXPECT_OK(cudaStreamBeginCapture(other_, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(FakeCuda, MemoryOfACaptureLivesAsLongAsItsGraph) {
  char* block = nullptr;
  EXPECT_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  ASSERT_OK(cudaMallocAsync(reinterpret_cast<void**>(&block), 4, stream_));
  EXPECT_OK(cudaMemsetAsync(block, 5, 4, stream_));
  EXPECT_OK(cudaFreeAsync(block, stream_));
  cudaGraph_t graph = nullptr;
  ASSERT_OK(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t executable = nullptr;
  ASSERT_OK(cudaGraphInstantiate(&executable, graph));
  EXPECT_OK(cudaGraphDestroy(graph));
  EXPECT_OK(cudaGraphLaunch(executable, stream_));
  EXPECT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(block[3], 5);
  EXPECT_EQ(DeviceBytes(), 4u);
  EXPECT_OK(cudaGraphExecDestroy(executable));
  EXPECT_EQ(DeviceBytes(), 0u);
}

TEST_F(FakeCuda, InjectedFailuresComeOnceAndInTheirTurn) {
  FailNext("cudaMemsetAsync", cudaErrorLaunchFailure, 1);
  void* memory = nullptr;
  ASSERT_OK(cudaMalloc(&memory, 8));
  EXPECT_OK(cudaMemsetAsync(memory, 0, 8, stream_));
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 8, stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorLaunchFailure);
  EXPECT_OK(cudaMemsetAsync(memory, 0, 8, stream_));
  EXPECT_EQ(CallsOf("cudaMemsetAsync"), 3);
  EXPECT_OK(cudaFree(memory));
}

TEST_F(FakeCuda, AHungStreamIsNotReadyUntilItResumes) {
  std::atomic<bool> ran = false, synchronized = false;
  Hang();
  EXPECT_OK(Enqueue(stream_, [&] { ran = true; }));
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  std::thread waiter([&] {
    EXPECT_OK(cudaStreamSynchronize(stream_));
    EXPECT_TRUE(ran);
    synchronized = true;
  });
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_FALSE(ran);
  EXPECT_FALSE(synchronized);
  Resume();
  waiter.join();
}

TEST_F(FakeCuda, AHungStreamCanBeDestroyed) {
  cudaStream_t stream = nullptr;
  ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::atomic<bool> ran = false;
  Hang();
  EXPECT_OK(Enqueue(stream, [&] { ran = true; }));
  EXPECT_OK(cudaStreamDestroy(stream));
  EXPECT_EQ(Enqueue(stream, [] {}), cudaErrorInvalidResourceHandle);
  Reset(2);  // drops what it held
  EXPECT_FALSE(ran);
}

TEST_F(FakeCuda, AFaultSticks) {
  bool ran = false;
  void* memory = nullptr;
  ASSERT_OK(cudaMallocAsync(&memory, 8, stream_));
  EXPECT_OK(Enqueue(stream_, [] { SetSticky(cudaErrorIllegalAddress); }));
  (void)Enqueue(stream_, [&] { ran = true; });
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_FALSE(ran);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFreeAsync(memory, stream_), cudaErrorIllegalAddress);
}

TEST_F(FakeCuda, HostFunctionsMayNotCallCuda) {
  cudaError_t error = cudaSuccess;
  EXPECT_OK(cudaLaunchHostFunc(
      stream_, [](void* out) { *static_cast<cudaError_t*>(out) = cudaDeviceSynchronize(); }, &error));
  EXPECT_OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(error, cudaErrorNotPermitted);
}

TEST_F(FakeCuda, StreamsBelongToDevices) {
  cudaStream_t second = nullptr;
  EXPECT_OK(cudaSetDevice(1));
  ASSERT_OK(cudaStreamCreate(&second));
  std::thread([&] {
    int device = -1;
    EXPECT_OK(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);  // each thread starts with the first
    EXPECT_EQ(Enqueue(second, [] {}), cudaErrorInvalidResourceHandle);
  }).join();
  EXPECT_OK(Enqueue(second, [] {}));
  EXPECT_OK(cudaStreamDestroy(second));
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  char id[32];
  EXPECT_OK(cudaDeviceGetPCIBusId(id, sizeof(id), 1));
  EXPECT_STREQ(id, "0000:02:00.0");
  cudaDeviceProp properties;
  EXPECT_OK(cudaGetDeviceProperties(&properties, 1));
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.pciBusID, 2);
}

TEST_F(FakeCuda, WithoutADeviceThereIsNothing) {
  Reset(0);
  int count = 5;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
  int version = 0;
  EXPECT_OK(cudaDriverGetVersion(&version));
  EXPECT_EQ(version, 13000);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
  Reset(2);
}

}  // namespace
}  // namespace tp_fake
