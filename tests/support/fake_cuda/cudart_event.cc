// Events: marks in streams, and what makes a stream join a capture.
#include <algorithm>

#include "cudart_state.h"

using tp_fake::Done;
using tp_fake::state;
using tp_fake::StreamPtr;

namespace {

// An event that Query, Synchronize and ElapsedTime may look at.
cudaError_t Look(cudaEvent_t event) {
  if (state.events.count(event) == 0) return cudaErrorInvalidResourceHandle;
  return event->capture != nullptr ? cudaErrorCapturedEvent : cudaSuccess;
}

cudaError_t Query(cudaEvent_t event) {
  const std::lock_guard lock(state.mutex);
  if (const cudaError_t error = Look(event); error != cudaSuccess) return error;
  if (const cudaError_t error = tp_fake::Unsafe(); error != cudaSuccess) return error;
  return event->mark == nullptr || event->mark->done ? cudaSuccess : cudaErrorNotReady;
}

// A wait of a stream for an event that was recorded in a capture.
cudaError_t Join(const StreamPtr& stream, const CUevent_st& event) {
  const auto& capture = event.capture;
  if (capture->ended) return cudaErrorCapturedEvent;
  if (stream->capture == nullptr) {
    if (stream == state.devices[static_cast<size_t>(stream->device)]->legacy)
      return tp_fake::Invalidate(*capture, cudaErrorStreamCaptureImplicit);
    stream->capture = capture;
    stream->frontier = event.nodes;
    capture->members.push_back(stream);
    return capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  }
  if (stream->capture != capture) {
    tp_fake::Invalidate(*stream->capture, cudaErrorStreamCaptureMerge);
    return tp_fake::Invalidate(*capture, cudaErrorStreamCaptureMerge);
  }
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  for (CUgraphNode_st* node : event.nodes)
    if (std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end())
      stream->frontier.push_back(node);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  TP_FAKE_ENTER(cudaEventCreateWithFlags);
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (event == nullptr || (flags & ~kKnown) != 0) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  *event = new CUevent_st;
  (*event)->device = tp_fake::CurrentDevice();
  (*event)->flags = flags;
  state.events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  TP_FAKE_ENTER(cudaEventCreate);
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  TP_FAKE_ENTER_RELEASE(cudaEventDestroy);
  const std::lock_guard lock(state.mutex);
  if (state.events.erase(event) == 0) return Done(cudaErrorInvalidResourceHandle);
  delete event;
  return Done(sticky);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaEventRecord);
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr || state.events.count(event) == 0 || event->device != found->device)
    return Done(cudaErrorInvalidResourceHandle);
  if (found->capture != nullptr) {
    if (found->capture->invalid) return Done(cudaErrorStreamCaptureInvalidated);
    event->capture = found->capture;
    event->nodes = found->frontier;
    event->mark = nullptr;
    return cudaSuccess;
  }
  auto mark = std::make_shared<tp_fake::Mark>();
  const cudaError_t error = tp_fake::PushOrCapture(
      found,
      [mark] {
        const std::lock_guard held(state.mutex);
        mark->done = true;
        mark->time = std::chrono::steady_clock::now();
        state.progress.notify_all();
      },
      true);
  if (error != cudaSuccess) return Done(error);
  event->mark = std::move(mark);
  event->capture = nullptr;
  event->nodes.clear();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  TP_FAKE_ENTER(cudaEventQuery);
  const cudaError_t error = Query(event);
  if (error == cudaErrorNotReady) std::this_thread::yield();
  return Done(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  TP_FAKE_ENTER(cudaEventSynchronize);
  std::unique_lock lock(state.mutex);
  if (const cudaError_t error = Look(event); error != cudaSuccess) return Done(error);
  if (const auto mark = event->mark; mark != nullptr) {
    const int device = event->device;
    state.progress.wait(lock, [&] { return mark->done; });
    tp_fake::TrimPools(device);
  }
  return Done(static_cast<cudaError_t>(state.sticky.load()));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  TP_FAKE_ENTER(cudaEventElapsedTime);
  if (ms == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  for (cudaEvent_t event : {start, end}) {
    if (const cudaError_t error = Look(event); error != cudaSuccess) return Done(error);
    if (event->mark == nullptr || (event->flags & cudaEventDisableTiming) != 0)
      return Done(cudaErrorInvalidResourceHandle);
    if (!event->mark->done) return Done(cudaErrorNotReady);
  }
  *ms = std::chrono::duration<float, std::milli>(end->mark->time - start->mark->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  TP_FAKE_ENTER(cudaStreamWaitEvent);
  if (flags == cudaEventWaitExternal) return Done(cudaErrorNotSupported);
  if (flags != cudaEventWaitDefault) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr || state.events.count(event) == 0) return Done(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return Done(Join(found, *event));
  if (event->mark == nullptr) return cudaSuccess;  // never recorded
  if (found->capture != nullptr) return Done(tp_fake::Invalidate(*found->capture, cudaErrorStreamCaptureIsolation));
  return Done(tp_fake::PushOrCapture(
      found,
      [mark = event->mark] {
        std::unique_lock held(state.mutex);
        state.progress.wait(held, [&] { return mark->done; });
      },
      true));
}

}  // extern "C"
