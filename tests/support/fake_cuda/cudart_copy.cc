// Copies and fills, which check their addresses against the blocks that are there.
#include <cstring>

#include "cudart_state.h"

using tp_fake::Block;
using tp_fake::Done;
using tp_fake::state;
using tp_fake::StreamPtr;

namespace {

enum class Place { kDevice, kPinned, kPageable, kOutside };

Place PlaceOf(const void* pointer, size_t bytes) {
  if (const Block* block = tp_fake::BlockOf(pointer, bytes))
    return block->freeing ? Place::kOutside : block->kind == Block::kHost ? Place::kPinned : Place::kDevice;
  // Within a block that ends too early.
  if (tp_fake::BlockOf(pointer, 1) != nullptr) return Place::kOutside;
  return Place::kPageable;
}

struct Copy {
  void* to = nullptr;
  size_t to_pitch = 0;
  const void* from = nullptr;
  size_t from_pitch = 0, width = 0, height = 1;
  cudaMemcpyKind kind = cudaMemcpyDefault;
};

void Run(const Copy& copy) {
  for (size_t row = 0; row < copy.height; ++row)
    std::memcpy(static_cast<char*>(copy.to) + row * copy.to_pitch,
                static_cast<const char*>(copy.from) + row * copy.from_pitch, copy.width);
}

// Under the lock. Memory that is not pinned is read at once and written before this returns, as CUDA does it.
cudaError_t Issue(std::unique_lock<std::mutex>& lock, const StreamPtr& stream, const Copy& copy, bool wait) {
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  if (copy.to_pitch < copy.width || copy.from_pitch < copy.width) return cudaErrorInvalidPitchValue;
  const Place to = PlaceOf(copy.to, (copy.height - 1) * copy.to_pitch + copy.width);
  const Place from = PlaceOf(copy.from, (copy.height - 1) * copy.from_pitch + copy.width);
  if (copy.to == nullptr || copy.from == nullptr || to == Place::kOutside || from == Place::kOutside)
    return cudaErrorInvalidValue;
  if (copy.kind < cudaMemcpyHostToHost || copy.kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  const bool to_device = copy.kind == cudaMemcpyHostToDevice || copy.kind == cudaMemcpyDeviceToDevice;
  const bool from_device = copy.kind == cudaMemcpyDeviceToHost || copy.kind == cudaMemcpyDeviceToDevice;
  if ((to_device && to == Place::kPageable) || (from_device && from == Place::kPageable)) return cudaErrorInvalidValue;
  if (copy.kind != cudaMemcpyDefault &&
      ((!to_device && to == Place::kDevice) || (!from_device && from == Place::kDevice)))
    return cudaErrorInvalidValue;
  if (stream->capture != nullptr) return tp_fake::PushOrCapture(stream, [copy] { Run(copy); });
  std::function<void()> work = [copy] { Run(copy); };
  if (from == Place::kPageable && !wait) {
    auto staged = std::make_shared<std::vector<char>>(copy.width * copy.height);
    Copy in = copy;
    in.to = staged->data();
    in.to_pitch = copy.width;
    Run(in);
    Copy out = copy;
    out.from_pitch = copy.width;
    work = [out, staged]() mutable {
      out.from = staged->data();
      Run(out);
    };
  }
  if (const cudaError_t error = tp_fake::PushOrCapture(stream, std::move(work)); error != cudaSuccess) return error;
  if (wait || to == Place::kPageable) tp_fake::Drain(lock, stream);
  return static_cast<cudaError_t>(state.sticky.load());
}

cudaError_t CopyAsync(const Copy& copy, cudaStream_t stream) {
  std::unique_lock lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  return Issue(lock, found, copy, false);
}

cudaError_t Fill(std::unique_lock<std::mutex>& lock, const StreamPtr& stream, void* pointer, int value, size_t count,
                 bool wait) {
  if (count == 0) return cudaSuccess;
  const Place place = PlaceOf(pointer, count);
  if (place != Place::kDevice && place != Place::kPinned) return cudaErrorInvalidValue;
  if (const cudaError_t error =
          tp_fake::PushOrCapture(stream, [pointer, value, count] { std::memset(pointer, value, count); });
      error != cudaSuccess)
    return error;
  if (wait) tp_fake::Drain(lock, stream);
  return static_cast<cudaError_t>(state.sticky.load());
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  TP_FAKE_ENTER(cudaMemcpy);
  std::unique_lock lock(state.mutex);
  const StreamPtr legacy = tp_fake::Find(nullptr);
  if (const cudaError_t error = tp_fake::Implicit(legacy->device); error != cudaSuccess) return Done(error);
  if (const cudaError_t error = tp_fake::Unsafe(); error != cudaSuccess) return Done(error);
  return Done(Issue(lock, legacy, {dst, count, src, count, count, 1, kind}, true));
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaMemcpyAsync);
  return Done(CopyAsync({dst, count, src, count, count, 1, kind}, stream));
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaMemcpy2DAsync);
  return Done(CopyAsync({dst, dpitch, src, spitch, width, height, kind}, stream));
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  TP_FAKE_ENTER(cudaMemset);
  std::unique_lock lock(state.mutex);
  const StreamPtr legacy = tp_fake::Find(nullptr);
  if (const cudaError_t error = tp_fake::Implicit(legacy->device); error != cudaSuccess) return Done(error);
  if (const cudaError_t error = tp_fake::Unsafe(); error != cudaSuccess) return Done(error);
  return Done(Fill(lock, legacy, devPtr, value, count, true));
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaMemsetAsync);
  std::unique_lock lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  return Done(Fill(lock, found, devPtr, value, count, false));
}

}  // extern "C"
