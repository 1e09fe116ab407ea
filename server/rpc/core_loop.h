// CoreLoop: the one thread that owns the coordinator's core. Events and queries run in the order in which they were
// posted; every 50 ms a Tick. What the core answers goes to the sink, on the same thread. Example:
//   loop.Post(WorkerLost{id, incarnation, "session ended"});
//   loop.Run([&](const Core& core) { response->set_models(core.models().size()); reactor->Finish(grpc::Status::OK); });
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "server/coordinator/core.h"

namespace tp::server {

class ActionSink {
 public:
  virtual ~ActionSink() = default;
  // On the core's thread. Must not block.
  virtual void Execute(Action action, const Core& core) = 0;
};

// Thread-safe. Tasks still queued when it stops are dropped.
class CoreLoop {
 public:
  using Task = std::function<void(const Core&)>;
  CoreLoop(CoreOptions options, const Clock* clock);
  ~CoreLoop();
  // `sink` must outlive Stop().
  void Start(ActionSink* sink);
  void Stop();

  void Post(Event event) { Add(std::move(event)); }
  void Run(Task task) { Add(std::move(task)); }
  CallId NewCall() { return ++last_call_; }

 private:
  using Entry = std::variant<Event, Task>;
  void Add(Entry entry);
  void Loop();
  void Apply(Event event);

  const Clock* clock_;
  Core core_;  // of the loop's thread
  ActionSink* sink_ = nullptr;
  std::atomic<CallId> last_call_{0};
  absl::Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tp::server
