// What the files of the fake cudart share: one Runtime with everything it knows, guarded by one mutex that is never
// held while work runs. Example, the top of a call:
//   cudaError_t cudaThing(void) {
//     TP_FAKE_ENTER(cudaThing);
//     std::unique_lock lock(state.mutex);
//     return Done(cudaSuccess);
//   }
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_runtime.h"

namespace tp_fake {

// A block of device or pinned host memory, with guard bytes around it.
struct Block {
  size_t bytes = 0;
  int device = 0;
  enum Kind { kDirect, kPool, kGraph, kHost } kind = kDirect;
  bool freeing = false;  // cudaFreeAsync was called, its stream has not come to it
};

struct Capture;
using StreamPtr = std::shared_ptr<CUstream_st>;

// What an event stands for after one record.
struct Mark {
  bool done = false;
  std::chrono::steady_clock::time_point time;
};

struct Pool {
  uint64_t threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  int follow_events = 1, opportunistic = 1, internal = 1;
};

}  // namespace tp_fake

struct CUmemPoolHandle_st : tp_fake::Pool {};

struct CUgraphNode_st {
  std::function<void()> run;
  std::vector<CUgraphNode_st*> after;
};

namespace tp_fake {

// The nodes of a graph in the order they were recorded, and the memory that cudaMallocAsync gave while it captured. May
// go on any thread, with or without the lock: the memory is freed by ReapGraphMemory.
struct GraphBody {
  ~GraphBody();
  std::deque<CUgraphNode_st> nodes;
  std::vector<char*> memory;
};

}  // namespace tp_fake

struct CUgraph_st {
  std::shared_ptr<tp_fake::GraphBody> body = std::make_shared<tp_fake::GraphBody>();
};
struct CUgraphExec_st {
  std::shared_ptr<tp_fake::GraphBody> body;
  tp_fake::StreamPtr last_stream;  // launches of one executable graph run one after the other
  uint64_t last_ticket = 0;
};
struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<tp_fake::Mark> mark;
  std::shared_ptr<tp_fake::Capture> capture;  // where it was last recorded, if that was a capture
  std::vector<CUgraphNode_st*> nodes;
};
struct CUstream_st {
  struct Item {
    std::function<void()> run;
    bool always = false;  // bookkeeping, which is done even where work is dropped
  };
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::deque<Item> queue;
  uint64_t issued = 0, done = 0;  // items ever put in, and finished or dropped
  bool closing = false;
  std::condition_variable wake;
  std::shared_ptr<tp_fake::Capture> capture;
  std::vector<CUgraphNode_st*> frontier;  // what the next captured node comes after
};

namespace tp_fake {

struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id owner;
  CUstream_st* origin = nullptr;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::vector<StreamPtr> members;  // origin first
  bool invalid = false;
  bool ended = false;
};

struct Device {
  uint64_t direct = 0;  // bytes of cudaMalloc
  CUmemPoolHandle_st pool;
  StreamPtr legacy;  // the null stream, made when first used
};

struct Injection {
  std::string function;
  int error = 0;
  int after = 0;
};

struct Runtime {
  std::mutex mutex;
  std::condition_variable progress;              // an item is done, a stream left, a hang ended
  std::vector<std::unique_ptr<Device>> devices;  // grows only, so that handles of devices that Reset hid stay valid
  int device_count = 0;
  uint64_t memory = 0, host_bytes = 0;
  std::map<char*, Block> blocks;
  std::map<CUstream_st*, StreamPtr> streams;
  std::vector<StreamPtr> leaving;  // destroyed while they held work
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::map<CUgraphExec_st*, std::shared_ptr<CUgraphExec_st>> executables;
  std::vector<std::shared_ptr<Capture>> captures;
  uint64_t captures_made = 0;
  std::atomic<int> sticky{0};
  bool hung = false;
  bool dropping = false;  // Reset is emptying the streams
  std::vector<Injection> injections;
  std::map<std::string, int, std::less<>> calls;
};

// Never destroyed: streams' threads outlive main.
Runtime& State();
inline Runtime& state = State();

// The current device of the calling thread.
int& CurrentDevice();
cudaStreamCaptureMode& ThreadCaptureMode();
// True while a host function runs on this thread.
bool& InHostFunction();

// Notes the thread's last error and returns it.
cudaError_t Done(cudaError_t error);
// Counts the call; the code it shall return at once, or cudaSuccess.
cudaError_t Enter(const char* function, bool needs_device = true);

// --- under state.mutex ---

// The stream of a handle, the null stream included; null where there is none.
StreamPtr Find(cudaStream_t stream);
// Appends an item and returns its ticket; the null stream and blocking streams wait for each other.
uint64_t Push(const StreamPtr& stream, std::function<void()> run, bool always);
// As Push, or into the graph the stream captures.
cudaError_t PushOrCapture(const StreamPtr& stream, std::function<void()> run, bool always = false);
// An item that waits until `other` has come to `ticket`.
void PushWait(const StreamPtr& stream, StreamPtr other, uint64_t ticket);
// Waits until the stream has done what it holds now, and all streams of a device.
void Drain(std::unique_lock<std::mutex>& lock, const StreamPtr& stream);
void DrainDevice(std::unique_lock<std::mutex>& lock, int device);
void WakeStreams();
// What is reserved and unused beyond the threshold goes back, as at every synchronisation.
void TrimPools(int device);
// Ends captures that the thread's potentially unsafe call disturbs; cudaErrorStreamCaptureUnsupported if there are any.
cudaError_t Unsafe();
cudaError_t Invalidate(Capture& capture, cudaError_t error);
// Captures of blocking streams of the device, which work on the null stream disturbs.
cudaError_t Implicit(int device);
// Takes the members out of the capture.
void EndCapture(const std::shared_ptr<Capture>& capture);
// The block that holds [pointer, pointer + bytes), or null.
const Block* BlockOf(const void* pointer, size_t bytes);
// A block of memory, filled with 0xff; null when the device has not that much left.
char* AllocateBlock(std::unique_lock<std::mutex>& lock, size_t bytes, Block::Kind kind, int device);
// Checks the guards (a bad one is a sticky cudaErrorIllegalAddress) and frees.
void ReleaseBlock(char* pointer);
// Frees the memory of graphs that are gone.
void ReapGraphMemory();

}  // namespace tp_fake

#define TP_FAKE_ENTER_(name, needs_device)                                                   \
  if (const cudaError_t early = ::tp_fake::Enter(#name, needs_device); early != cudaSuccess) \
  return ::tp_fake::Done(early)
#define TP_FAKE_ENTER(name) TP_FAKE_ENTER_(name, true)
// The top of a call that frees or destroys, which goes on under a sticky error and returns it (`sticky`) at its end.
#define TP_FAKE_ENTER_RELEASE(name)                   \
  const cudaError_t sticky = ::tp_fake::Enter(#name); \
  if (sticky != cudaSuccess && sticky != ::tp_fake::state.sticky) return ::tp_fake::Done(sticky)
