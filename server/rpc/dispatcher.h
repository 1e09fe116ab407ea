// Dispatcher: carries out the core's actions: messages to workers, answers to calls, the store, watchers. Example:
//   dispatcher.calls().Add(id, call);   loop.Post(ForwardRequested{id, ...});   // -> call->OnForward(reply)
// Owned by the core's thread: other threads reach it through CoreLoop::Run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/rpc/core_loop.h"
#include "server/rpc/store_thread.h"
#include "server/rpc/transfers.h"
#include "server/rpc/worker_streams.h"

namespace tp::server {

// A client's call that waits for the core.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual void OnSubmit(const SubmitReply&, const Core&) {}
  virtual void OnDelete(const DeleteReply&) {}
  virtual void OnForward(ForwardReply) {}
  virtual void OnGenerate(const GenerateProgress&) {}
  virtual void OnPutStarted(PutStarted) {}
  virtual void OnOperation(const OperationReply&, const Core&) {}
};

class Watcher {
 public:
  virtual ~Watcher() = default;
  // The model changed or is gone.
  virtual void OnChanged(const Core& core) = 0;
  // The coordinator stops.
  virtual void End(const absl::Status& status) = 0;
};

struct DispatcherOptions {
  uint64_t term = 1;
  absl::Duration heartbeat, lease;
  bool check_collectives = false;
};

class Dispatcher : public ActionSink {
 public:
  Dispatcher(DispatcherOptions options, StoreThread* store) : options_(options), store_(store) {}

  void Execute(Action action, const Core& core) override;

  WorkerStreams& workers() { return workers_; }
  Transfers& transfers() { return transfers_; }
  const DispatcherOptions& options() const { return options_; }

  void AddCall(CallId id, std::shared_ptr<CallSink> sink) { calls_[id] = std::move(sink); }
  void RemoveCall(CallId id) { calls_.erase(id); }
  void AddWatcher(const std::string& model, std::shared_ptr<Watcher> watcher) { watchers_[model].push_back(watcher); }
  void RemoveWatcher(const std::string& model, const Watcher* watcher);
  // A worker's session or command stream has ended: ends the other too. True where it was a member, which the core must
  // be told.
  bool LoseWorker(const std::string& worker, const std::string& incarnation, const absl::Status& status);
  // Answers all calls that run with `status`.
  void CutCalls(const absl::Status& status, const Core& core);
  // Ends the streams that would go on for ever: sessions, command streams, watchers.
  void CloseStreams(const absl::Status& status);

 private:
  void On(const SendWelcome& action, const Core& core);
  void On(const RefuseJoin& action, const Core& core);
  void On(const SendCommand& action, const Core& core);
  void On(const SendStage& action, const Core& core);
  void On(const SendDrop& action, const Core& core);
  void On(const SendAbort& action, const Core& core);
  void On(const SendFence& action, const Core& core);
  void On(const LetWorkerGo& action, const Core& core);
  void On(const OfferTransfer& action, const Core& core);
  void On(const CancelTransfer& action, const Core& core);
  void On(StoreSubmission& action, const Core& core);
  void On(EraseSubmission& action, const Core& core);
  void On(const SubmitReply& action, const Core& core);
  void On(const DeleteReply& action, const Core& core);
  void On(ForwardReply& action, const Core& core);
  void On(const GenerateProgress& action, const Core& core);
  void On(PutStarted& action, const Core& core);
  void On(const OperationReply& action, const Core& core);
  void On(const ModelChanged& action, const Core& core);
  // The sink of a call, taken out where the answer is its last one.
  std::shared_ptr<CallSink> Call(CallId id, bool last);

  const DispatcherOptions options_;
  StoreThread* store_;
  WorkerStreams workers_;
  Transfers transfers_;
  std::map<CallId, std::shared_ptr<CallSink>> calls_;
  std::map<std::string, std::vector<std::shared_ptr<Watcher>>> watchers_;
};

}  // namespace tp::server
