// Capture of streams into graphs, and their launches.
#include <algorithm>
#include <set>

#include "cudart_state.h"

namespace tp_fake {
namespace {

// Memory of graphs that are gone; never destroyed, as graphs may go late.
std::mutex& orphans_mutex = *new std::mutex;
std::vector<char*>& orphans = *new std::vector<char*>;

}  // namespace

GraphBody::~GraphBody() {
  const std::lock_guard lock(orphans_mutex);
  orphans.insert(orphans.end(), memory.begin(), memory.end());
}

void ReapGraphMemory() {
  std::vector<char*> gone;
  {
    const std::lock_guard lock(orphans_mutex);
    gone.swap(orphans);
  }
  for (char* pointer : gone) ReleaseBlock(pointer);
}

cudaError_t Invalidate(Capture& capture, cudaError_t error) {
  const bool before = std::exchange(capture.invalid, true);
  return before ? cudaErrorStreamCaptureInvalidated : error;
}

cudaError_t Unsafe() {
  const cudaStreamCaptureMode mode = ThreadCaptureMode();
  if (mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : state.captures) {
    const bool own = capture->owner == std::this_thread::get_id();
    if (own ? capture->mode == cudaStreamCaptureModeRelaxed
            : mode != cudaStreamCaptureModeGlobal || capture->mode != cudaStreamCaptureModeGlobal)
      continue;
    capture->invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t Implicit(int device) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : state.captures)
    for (const auto& member : capture->members)
      if (member->device == device && (member->flags & cudaStreamNonBlocking) == 0) {
        capture->invalid = true;
        error = cudaErrorStreamCaptureImplicit;
      }
  return error;
}

void EndCapture(const std::shared_ptr<Capture>& capture) {
  const auto held = capture;  // the argument may be an entry of what is erased here
  for (const auto& member : held->members) {
    if (member->capture != held) continue;
    member->capture = nullptr;
    member->frontier.clear();
  }
  held->ended = true;
  held->members.clear();
  state.captures.erase(std::remove(state.captures.begin(), state.captures.end(), held), state.captures.end());
}

namespace {

// Whether all that was captured comes before the end of the origin.
bool Joined(const Capture& capture) {
  std::set<CUgraphNode_st*> before;
  std::vector<CUgraphNode_st*> open = capture.origin->frontier;
  while (!open.empty()) {
    CUgraphNode_st* node = open.back();
    open.pop_back();
    if (before.insert(node).second) open.insert(open.end(), node->after.begin(), node->after.end());
  }
  for (const auto& member : capture.members)
    for (CUgraphNode_st* node : member->frontier)
      if (before.count(node) == 0) return false;
  return true;
}

// All nodes, in the order they were recorded in, which respects their dependencies.
std::function<void()> Replay(std::shared_ptr<GraphBody> body) {
  return [body = std::move(body)] {
    for (const CUgraphNode_st& node : body->nodes) {
      if (state.sticky != 0) return;
      node.run();
    }
  };
}

}  // namespace
}  // namespace tp_fake

using tp_fake::Done;
using tp_fake::state;
using tp_fake::StreamPtr;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  TP_FAKE_ENTER(cudaStreamBeginCapture);
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  if (found == state.devices[static_cast<size_t>(found->device)]->legacy)
    return Done(cudaErrorStreamCaptureUnsupported);
  if (found->capture != nullptr) return Done(tp_fake::Invalidate(*found->capture, cudaErrorIllegalState));
  auto capture = std::make_shared<tp_fake::Capture>();
  capture->id = ++state.captures_made;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  capture->origin = stream;
  capture->members = {found};
  found->capture = capture;
  found->frontier.clear();
  state.captures.push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  TP_FAKE_ENTER(cudaStreamEndCapture);
  if (pGraph == nullptr) return Done(cudaErrorInvalidValue);
  *pGraph = nullptr;
  std::unique_ptr<CUgraph_st> dropped;
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  const auto capture = found->capture;
  if (capture == nullptr) return Done(cudaErrorIllegalState);
  if (capture->origin != stream) return Done(tp_fake::Invalidate(*capture, cudaErrorStreamCaptureUnmatched));
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->owner != std::this_thread::get_id())
    return Done(tp_fake::Invalidate(*capture, cudaErrorStreamCaptureWrongThread));
  const cudaError_t error = capture->invalid             ? cudaErrorStreamCaptureInvalidated
                            : !tp_fake::Joined(*capture) ? cudaErrorStreamCaptureUnjoined
                                                         : cudaSuccess;
  tp_fake::EndCapture(capture);
  dropped = std::move(capture->graph);
  if (error != cudaSuccess) return Done(error);
  *pGraph = dropped.release();
  state.graphs.insert(*pGraph);
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
                                     unsigned long long* id_out, cudaGraph_t* graph_out,
                                     const cudaGraphNode_t** dependencies_out, const cudaGraphEdgeData** edgeData_out,
                                     size_t* numDependencies_out) {
  TP_FAKE_ENTER(cudaStreamGetCaptureInfo);
  if (captureStatus_out == nullptr || (edgeData_out != nullptr && dependencies_out == nullptr))
    return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  if (found == state.devices[static_cast<size_t>(found->device)]->legacy)
    for (const auto& capture : state.captures)
      for (const auto& member : capture->members)
        if ((member->flags & cudaStreamNonBlocking) == 0) return Done(cudaErrorStreamCaptureImplicit);
  if (found->capture == nullptr) {
    *captureStatus_out = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  }
  *captureStatus_out = found->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  if (found->capture->invalid) return cudaSuccess;
  if (id_out != nullptr) *id_out = found->capture->id;
  if (graph_out != nullptr) *graph_out = found->capture->graph.get();
  if (dependencies_out != nullptr) *dependencies_out = found->frontier.data();
  if (edgeData_out != nullptr) *edgeData_out = nullptr;
  if (numDependencies_out != nullptr) *numDependencies_out = found->frontier.size();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  TP_FAKE_ENTER(cudaStreamIsCapturing);
  return cudaStreamGetCaptureInfo(stream, pCaptureStatus, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  TP_FAKE_ENTER(cudaThreadExchangeStreamCaptureMode);
  if (mode == nullptr) return Done(cudaErrorInvalidValue);
  std::swap(*mode, tp_fake::ThreadCaptureMode());
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes) {
  TP_FAKE_ENTER(cudaGraphGetNodes);
  if (numNodes == nullptr) return Done(cudaErrorInvalidValue);
  const std::lock_guard lock(state.mutex);
  if (state.graphs.count(graph) == 0) return Done(cudaErrorInvalidValue);
  if (nodes != nullptr)
    for (size_t i = 0; i < *numNodes; ++i) nodes[i] = i < graph->body->nodes.size() ? &graph->body->nodes[i] : nullptr;
  if (nodes == nullptr || graph->body->nodes.size() < *numNodes) *numNodes = graph->body->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags) {
  TP_FAKE_ENTER(cudaGraphInstantiate);
  if (pGraphExec == nullptr) return Done(cudaErrorInvalidValue);
  constexpr unsigned long long kKnown =
      cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
  if ((flags & ~kKnown) != 0) return Done(cudaErrorNotSupported);
  const std::lock_guard lock(state.mutex);
  if (state.graphs.count(graph) == 0) return Done(cudaErrorInvalidValue);
  auto executable = std::make_shared<CUgraphExec_st>();
  executable->body = graph->body;
  *pGraphExec = executable.get();
  state.executables.emplace(executable.get(), executable);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaGraphUpload);
  const std::lock_guard lock(state.mutex);
  if (state.executables.count(graphExec) == 0) return Done(cudaErrorInvalidValue);
  return Done(tp_fake::Find(stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  TP_FAKE_ENTER(cudaGraphLaunch);
  const std::lock_guard lock(state.mutex);
  if (state.executables.count(graphExec) == 0) return Done(cudaErrorInvalidValue);
  const StreamPtr found = tp_fake::Find(stream);
  if (found == nullptr) return Done(cudaErrorInvalidResourceHandle);
  if (found->capture == nullptr && graphExec->last_stream != nullptr && graphExec->last_stream != found)
    tp_fake::PushWait(found, graphExec->last_stream, graphExec->last_ticket);
  if (const cudaError_t error = tp_fake::PushOrCapture(found, tp_fake::Replay(graphExec->body)); error != cudaSuccess)
    return Done(error);
  if (found->capture != nullptr) return cudaSuccess;
  graphExec->last_stream = found;
  graphExec->last_ticket = found->issued;
  return cudaSuccess;
}

// A launch that is under way goes on.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  TP_FAKE_ENTER_RELEASE(cudaGraphExecDestroy);
  std::shared_ptr<CUgraphExec_st> dropped;
  const std::lock_guard lock(state.mutex);
  const auto found = state.executables.find(graphExec);
  if (found == state.executables.end()) return Done(cudaErrorInvalidValue);
  dropped = std::move(found->second);
  state.executables.erase(found);
  return Done(sticky);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  TP_FAKE_ENTER_RELEASE(cudaGraphDestroy);
  std::unique_ptr<CUgraph_st> dropped;
  const std::lock_guard lock(state.mutex);
  if (state.graphs.erase(graph) == 0) return Done(cudaErrorInvalidValue);
  dropped.reset(graph);
  return Done(sticky);
}

}  // extern "C"
