// Device and pinned memory: host memory with guard bytes, blocks found by their addresses, pools in stream order.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cudart_state.h"

#if defined(__SANITIZE_ADDRESS__)
#define TP_FAKE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TP_FAKE_ASAN 1
#endif
#endif
#ifdef TP_FAKE_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tp_fake {
namespace {

constexpr size_t kGuard = 256;  // also what addresses are multiples of
constexpr unsigned char kGuardByte = 0xa5;

size_t Rounded(size_t bytes) { return (bytes + kGuard - 1) / kGuard * kGuard; }

bool Guarded(const char* begin, size_t bytes) {
  return std::all_of(begin, begin + bytes, [](char c) { return static_cast<unsigned char>(c) == kGuardByte; });
}

bool Fits(const Device& device, size_t bytes) {
  return bytes <= state.memory && device.direct + device.pool.used + bytes <= state.memory;
}

bool Freeing(int device) {
  return std::any_of(state.blocks.begin(), state.blocks.end(),
                     [&](const auto& entry) { return entry.second.freeing && entry.second.device == device; });
}

}  // namespace

const Block* BlockOf(const void* pointer, size_t bytes) {
  auto* const address = static_cast<char*>(const_cast<void*>(pointer));
  auto found = state.blocks.upper_bound(address);
  if (found == state.blocks.begin()) return nullptr;
  --found;
  const size_t offset = static_cast<size_t>(address - found->first);
  return offset <= found->second.bytes && bytes <= found->second.bytes - offset ? &found->second : nullptr;
}

char* AllocateBlock(std::unique_lock<std::mutex>& lock, size_t bytes, Block::Kind kind, int device) {
  Device& of = *state.devices[static_cast<size_t>(device)];
  if (kind != Block::kHost) {
    // As the driver does, frees that streams have still to come to are waited for when memory is short.
    if (bytes <= state.memory && !state.hung)
      state.progress.wait(lock, [&] { return Fits(of, bytes) || !Freeing(device) || state.hung; });
    if (!Fits(of, bytes)) return nullptr;
  }
  char* const raw = static_cast<char*>(std::aligned_alloc(kGuard, Rounded(bytes) + 2 * kGuard));
  if (raw == nullptr) return nullptr;
  char* const pointer = raw + kGuard;
  std::memset(raw, kGuardByte, kGuard);
  std::memset(pointer, 0xff, bytes);
  std::memset(pointer + bytes, kGuardByte, Rounded(bytes) - bytes + kGuard);
  ASAN_POISON_MEMORY_REGION(raw, kGuard);
  ASAN_POISON_MEMORY_REGION(pointer + bytes, Rounded(bytes) - bytes + kGuard);
  Block block;
  block.bytes = bytes;
  block.device = device;
  block.kind = kind;
  state.blocks.emplace(pointer, block);
  if (kind == Block::kHost) {
    state.host_bytes += bytes;
  } else if (kind == Block::kDirect) {
    of.direct += bytes;
    of.pool.reserved = std::min(of.pool.reserved, std::max(of.pool.used, state.memory - of.direct));
  } else {
    of.pool.used += bytes;
    of.pool.reserved = std::max(of.pool.reserved, of.pool.used);
    of.pool.used_high = std::max(of.pool.used_high, of.pool.used);
    of.pool.reserved_high = std::max(of.pool.reserved_high, of.pool.reserved);
  }
  return pointer;
}

void ReleaseBlock(char* pointer) {
  const auto found = state.blocks.find(pointer);
  const Block block = found->second;
  state.blocks.erase(found);
  char* const raw = pointer - kGuard;
  const size_t after = Rounded(block.bytes) - block.bytes + kGuard;
  ASAN_UNPOISON_MEMORY_REGION(raw, kGuard);
  ASAN_UNPOISON_MEMORY_REGION(pointer + block.bytes, after);
  if (!Guarded(raw, kGuard) || !Guarded(pointer + block.bytes, after)) {
    std::fprintf(stderr, "fake CUDA: memory beside a block of %zu bytes was written\n", block.bytes);
    if (state.sticky == 0) state.sticky = cudaErrorIllegalAddress;
  }
  Device& of = *state.devices[static_cast<size_t>(block.device)];
  (block.kind == Block::kHost     ? state.host_bytes
   : block.kind == Block::kDirect ? of.direct
                                  : of.pool.used) -= block.bytes;
  std::free(raw);
  state.progress.notify_all();
}

void TrimPools(int device) {
  Pool& pool = state.devices[static_cast<size_t>(device)]->pool;
  pool.reserved = std::min(pool.reserved, std::max(pool.used, pool.threshold));
}

namespace {

cudaError_t AllocateHost(void** pointer, size_t size) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *pointer = nullptr;
  std::unique_lock lock(state.mutex);
  if (const cudaError_t error = Unsafe(); error != cudaSuccess) return error;
  if (size == 0) return cudaSuccess;
  *pointer = AllocateBlock(lock, size, Block::kHost, CurrentDevice());
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t AllocateInOrder(void** pointer, size_t size, cudaStream_t stream) {
  if (pointer == nullptr || size == 0) return cudaErrorInvalidValue;
  *pointer = nullptr;
  std::unique_lock lock(state.mutex);
  const StreamPtr found = Find(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  const auto capture = found->capture;
  if (capture != nullptr && capture->invalid) return cudaErrorStreamCaptureInvalidated;
  char* const block = AllocateBlock(lock, size, capture == nullptr ? Block::kPool : Block::kGraph, found->device);
  if (block == nullptr) return cudaErrorMemoryAllocation;
  if (capture != nullptr) {
    capture->graph->body->memory.push_back(block);
    PushOrCapture(found, [] {});
  }
  *pointer = block;
  return cudaSuccess;
}

// Frees at once; the work on it is done.
cudaError_t Free(void* pointer, bool host) {
  if (pointer == nullptr) return cudaSuccess;
  std::unique_lock lock(state.mutex);
  if (const cudaError_t error = Unsafe(); error != cudaSuccess) return error;
  const auto usable = [&] {
    const auto found = state.blocks.find(static_cast<char*>(pointer));
    return found != state.blocks.end() && (found->second.kind == Block::kHost) == host && !found->second.freeing &&
           found->second.kind != Block::kGraph;
  };
  if (!usable()) return cudaErrorInvalidValue;
  DrainDevice(lock, state.blocks.find(static_cast<char*>(pointer))->second.device);
  if (!usable()) return cudaErrorInvalidValue;
  ReleaseBlock(static_cast<char*>(pointer));
  return static_cast<cudaError_t>(state.sticky.load());
}

}  // namespace
}  // namespace tp_fake

using tp_fake::Block;
using tp_fake::Done;
using tp_fake::state;

extern "C" {

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  TP_FAKE_ENTER(cudaMalloc);
  if (devPtr == nullptr) return Done(cudaErrorInvalidValue);
  *devPtr = nullptr;
  std::unique_lock lock(state.mutex);
  if (const cudaError_t error = tp_fake::Unsafe(); error != cudaSuccess) return Done(error);
  if (size == 0) return cudaSuccess;
  *devPtr = tp_fake::AllocateBlock(lock, size, Block::kDirect, tp_fake::CurrentDevice());
  return Done(*devPtr == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* devPtr) {
  TP_FAKE_ENTER_RELEASE(cudaFree);
  const cudaError_t error = tp_fake::Free(devPtr, false);
  return Done(error == cudaSuccess ? sticky : error);
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  TP_FAKE_ENTER(cudaMallocHost);
  return Done(tp_fake::AllocateHost(ptr, size));
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  TP_FAKE_ENTER(cudaHostAlloc);
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if ((flags & ~kKnown) != 0) return Done(cudaErrorInvalidValue);
  return Done(tp_fake::AllocateHost(pHost, size));
}

cudaError_t cudaFreeHost(void* ptr) {
  TP_FAKE_ENTER_RELEASE(cudaFreeHost);
  const cudaError_t error = tp_fake::Free(ptr, true);
  return Done(error == cudaSuccess ? sticky : error);
}

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  TP_FAKE_ENTER(cudaHostGetDevicePointer);
  if (pDevice == nullptr || flags != 0) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  const Block* block = tp_fake::BlockOf(pHost, 0);
  if (block == nullptr || block->kind != Block::kHost) return Done(cudaErrorInvalidValue);
  *pDevice = pHost;
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  TP_FAKE_ENTER(cudaMallocAsync);
  return Done(tp_fake::AllocateInOrder(devPtr, size, hStream));
}

cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaMallocFromPoolAsync);
  {
    const std::lock_guard lock(state.mutex);
    const auto found = tp_fake::Find(stream);
    if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
    if (memPool != &state.devices[static_cast<size_t>(found->device)]->pool) return Done(cudaErrorInvalidValue);
  }
  return Done(tp_fake::AllocateInOrder(ptr, size, stream));
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  TP_FAKE_ENTER_RELEASE(cudaFreeAsync);
  const std::lock_guard lock(state.mutex);
  const auto stream = tp_fake::Find(hStream);
  if (stream == nullptr) return Done(cudaErrorInvalidResourceHandle);
  const auto found = state.blocks.find(static_cast<char*>(devPtr));
  if (found == state.blocks.end() || found->second.freeing) return Done(cudaErrorInvalidValue);
  const bool captures = stream->capture != nullptr;
  if (found->second.kind != (captures ? Block::kGraph : Block::kPool)) {
    // Only memory of the capture is freed in it; memory of cudaMalloc is not freed in stream order.
    if (captures) return Done(tp_fake::Invalidate(*stream->capture, cudaErrorInvalidValue));
    return Done(cudaErrorInvalidValue);
  }
  if (captures) {
    const cudaError_t error = tp_fake::PushOrCapture(stream, [] {});
    return Done(error == cudaSuccess ? sticky : error);
  }
  if (const cudaError_t error = tp_fake::PushOrCapture(
          stream,
          [pointer = static_cast<char*>(devPtr)] {
            const std::lock_guard held(state.mutex);
            tp_fake::ReleaseBlock(pointer);
          },
          true);
      error != cudaSuccess)
    return Done(error);
  found->second.freeing = true;
  return Done(sticky);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  TP_FAKE_ENTER(cudaDeviceGetDefaultMemPool);
  if (memPool == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  if (device < 0 || device >= state.device_count) return Done(cudaErrorInvalidDevice);
  *memPool = &state.devices[static_cast<size_t>(device)]->pool;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
  TP_FAKE_ENTER(cudaMemPoolSetAttribute);
  if (memPool == nullptr || value == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  const auto high = [&](uint64_t& mark, uint64_t now) {
    if (*static_cast<const uint64_t*>(value) != 0) return Done(cudaErrorInvalidValue);
    mark = now;
    return cudaSuccess;
  };
  switch (attr) {
    case cudaMemPoolAttrReleaseThreshold:
      memPool->threshold = *static_cast<const uint64_t*>(value);
      return cudaSuccess;
    case cudaMemPoolReuseFollowEventDependencies:
      memPool->follow_events = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolReuseAllowOpportunistic:
      memPool->opportunistic = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolReuseAllowInternalDependencies:
      memPool->internal = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
      return high(memPool->reserved_high, memPool->reserved);
    case cudaMemPoolAttrUsedMemHigh:
      return high(memPool->used_high, memPool->used);
    default:
      return Done(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
  TP_FAKE_ENTER(cudaMemPoolGetAttribute);
  if (memPool == nullptr || value == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  switch (attr) {
    case cudaMemPoolReuseFollowEventDependencies:
      *static_cast<int*>(value) = memPool->follow_events;
      return cudaSuccess;
    case cudaMemPoolReuseAllowOpportunistic:
      *static_cast<int*>(value) = memPool->opportunistic;
      return cudaSuccess;
    case cudaMemPoolReuseAllowInternalDependencies:
      *static_cast<int*>(value) = memPool->internal;
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<uint64_t*>(value) = memPool->threshold;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      *static_cast<uint64_t*>(value) = memPool->reserved;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
      *static_cast<uint64_t*>(value) = memPool->reserved_high;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<uint64_t*>(value) = memPool->used;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<uint64_t*>(value) = memPool->used_high;
      return cudaSuccess;
    default:
      return Done(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
  TP_FAKE_ENTER(cudaMemPoolTrimTo);
  if (memPool == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  memPool->reserved = std::min(memPool->reserved, std::max<uint64_t>(memPool->used, minBytesToKeep));
  return cudaSuccess;
}

}  // extern "C"
