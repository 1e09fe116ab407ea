// Streams: queues with a thread each.
#include <algorithm>

#include "cudart_state.h"

namespace tp_fake {
namespace {

bool Dropping() { return state.dropping || state.sticky != 0; }

// The thread of a stream; it holds the stream until it is closed and empty.
void Run(StreamPtr stream) {
  CurrentDevice() = stream->device;
  std::unique_lock lock(state.mutex);
  for (;;) {
    while (stream->queue.empty() ? !stream->closing : state.hung && !Dropping()) stream->wake.wait(lock);
    if (stream->queue.empty()) return;
    CUstream_st::Item item = std::move(stream->queue.front());
    stream->queue.pop_front();
    const bool run = item.always || !Dropping();
    lock.unlock();
    if (run) item.run();
    item.run = nullptr;
    lock.lock();
    ++stream->done;
    state.progress.notify_all();
  }
}

StreamPtr Make(int device, unsigned flags, int priority) {
  auto stream = std::make_shared<CUstream_st>();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  std::thread(Run, stream).detach();
  return stream;
}

uint64_t Append(const StreamPtr& stream, std::function<void()> run, bool always) {
  stream->queue.push_back({std::move(run), always});
  stream->wake.notify_all();
  return ++stream->issued;
}

bool Idle(const CUstream_st& stream) { return stream.done == stream.issued; }

}  // namespace

StreamPtr Find(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) {
    StreamPtr& legacy = state.devices[static_cast<size_t>(CurrentDevice())]->legacy;
    if (legacy == nullptr) legacy = Make(CurrentDevice(), cudaStreamDefault, 0);
    return legacy;
  }
  const auto found = state.streams.find(stream);
  return found == state.streams.end() ? nullptr : found->second;
}

void PushWait(const StreamPtr& stream, StreamPtr other, uint64_t ticket) {
  Append(
      stream,
      [other = std::move(other), ticket] {
        std::unique_lock lock(state.mutex);
        state.progress.wait(lock, [&] { return other->done >= ticket; });
      },
      true);
}

uint64_t Push(const StreamPtr& stream, std::function<void()> run, bool always) {
  const StreamPtr& legacy = state.devices[static_cast<size_t>(stream->device)]->legacy;
  if (stream == legacy) {
    for (const auto& [handle, other] : state.streams)
      if (other->device == stream->device && (other->flags & cudaStreamNonBlocking) == 0 && !Idle(*other))
        PushWait(stream, other, other->issued);
  } else if (legacy != nullptr && (stream->flags & cudaStreamNonBlocking) == 0 && !Idle(*legacy)) {
    PushWait(stream, legacy, legacy->issued);
  }
  return Append(stream, std::move(run), always);
}

void WakeStreams() {
  for (const auto& [handle, stream] : state.streams) stream->wake.notify_all();
  for (const auto& stream : state.leaving) stream->wake.notify_all();
  for (const auto& device : state.devices)
    if (device->legacy != nullptr) device->legacy->wake.notify_all();
}

void Drain(std::unique_lock<std::mutex>& lock, const StreamPtr& stream) {
  const uint64_t ticket = stream->issued;
  state.progress.wait(lock, [&] { return stream->done >= ticket; });
}

void DrainDevice(std::unique_lock<std::mutex>& lock, int device) {
  std::vector<std::pair<StreamPtr, uint64_t>> waits;
  for (const auto& [handle, stream] : state.streams)
    if (stream->device == device) waits.emplace_back(stream, stream->issued);
  const StreamPtr& legacy = state.devices[static_cast<size_t>(device)]->legacy;
  if (legacy != nullptr) waits.emplace_back(legacy, legacy->issued);
  for (const auto& stream : state.leaving)
    if (stream->device == device) waits.emplace_back(stream, stream->issued);
  for (const auto& [stream, ticket] : waits)
    state.progress.wait(lock, [&, &stream = stream, &ticket = ticket] { return stream->done >= ticket; });
}

cudaError_t PushOrCapture(const StreamPtr& stream, std::function<void()> run, bool always) {
  if (stream->capture == nullptr) {
    if (stream == state.devices[static_cast<size_t>(stream->device)]->legacy)
      if (const cudaError_t error = Implicit(stream->device); error != cudaSuccess) return error;
    Push(stream, std::move(run), always);
    return cudaSuccess;
  }
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  auto& nodes = stream->capture->graph->body->nodes;
  nodes.push_back({std::move(run), stream->frontier});
  stream->frontier = {&nodes.back()};
  return cudaSuccess;
}

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work) {
  TP_FAKE_ENTER(cudaLaunchKernel);
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = Find(stream);
  if (found == nullptr || found->device != CurrentDevice()) return Done(cudaErrorInvalidResourceHandle);
  return Done(PushOrCapture(found, std::move(work)));
}

}  // namespace tp_fake

using tp_fake::Done;
using tp_fake::state;
using tp_fake::StreamPtr;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  TP_FAKE_ENTER(cudaStreamCreateWithPriority);
  if (pStream == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  StreamPtr stream = tp_fake::Make(tp_fake::CurrentDevice(), flags, std::clamp(priority, -5, 0));
  *pStream = stream.get();
  state.streams.emplace(stream.get(), std::move(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  TP_FAKE_ENTER(cudaStreamCreateWithFlags);
  return cudaStreamCreateWithPriority(pStream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  TP_FAKE_ENTER(cudaStreamCreate);
  return cudaStreamCreateWithPriority(pStream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  TP_FAKE_ENTER(cudaDeviceGetStreamPriorityRange);
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = -5;
  return cudaSuccess;
}

// Returns at once; the thread does what the stream still holds and leaves.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  TP_FAKE_ENTER_RELEASE(cudaStreamDestroy);
  const std::lock_guard lock(state.mutex);
  const auto found = state.streams.find(stream);
  if (found == state.streams.end()) return Done(cudaErrorInvalidResourceHandle);
  const StreamPtr held = found->second;
  if (const auto capture = held->capture; capture != nullptr) {
    tp_fake::Invalidate(*capture, cudaErrorStreamCaptureInvalidated);
    if (capture->origin == stream) tp_fake::EndCapture(capture);
  }
  held->capture = nullptr;
  held->closing = true;
  held->wake.notify_all();
  state.streams.erase(found);
  std::erase_if(state.leaving, [](const StreamPtr& other) { return tp_fake::Idle(*other); });
  if (!tp_fake::Idle(*held)) state.leaving.push_back(held);
  return Done(sticky);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  TP_FAKE_ENTER(cudaStreamQuery);
  {
    const std::lock_guard lock(state.mutex);
    const StreamPtr found = tp_fake::Find(stream);
    if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
    if (found->capture != nullptr) return Done(tp_fake::Invalidate(*found->capture, cudaErrorStreamCaptureUnsupported));
    if (const cudaError_t error = tp_fake::Unsafe(); error != cudaSuccess) return Done(error);
    if (tp_fake::Idle(*found)) return cudaSuccess;
  }
  std::this_thread::yield();  // who polls leaves the stream's thread its turn
  return Done(cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  TP_FAKE_ENTER(cudaStreamSynchronize);
  std::unique_lock lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  if (found->capture != nullptr) return Done(tp_fake::Invalidate(*found->capture, cudaErrorStreamCaptureUnsupported));
  if (found == state.devices[static_cast<size_t>(found->device)]->legacy) {
    if (const cudaError_t error = tp_fake::Implicit(found->device); error != cudaSuccess) return Done(error);
    tp_fake::Push(
        found, [] {}, true);  // after blocking streams too
  }
  tp_fake::Drain(lock, found);
  tp_fake::TrimPools(found->device);
  return Done(static_cast<cudaError_t>(state.sticky.load()));
}

cudaError_t cudaDeviceSynchronize(void) {
  TP_FAKE_ENTER(cudaDeviceSynchronize);
  std::unique_lock lock(state.mutex);
  if (const cudaError_t error = tp_fake::Unsafe(); error != cudaSuccess) return Done(error);
  tp_fake::DrainDevice(lock, tp_fake::CurrentDevice());
  tp_fake::TrimPools(tp_fake::CurrentDevice());
  return Done(static_cast<cudaError_t>(state.sticky.load()));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  TP_FAKE_ENTER(cudaLaunchHostFunc);
  if (fn == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  return Done(tp_fake::PushOrCapture(found, [fn, userData] {
    tp_fake::InHostFunction() = true;
    fn(userData);
    tp_fake::InHostFunction() = false;
  }));
}

}  // extern "C"
