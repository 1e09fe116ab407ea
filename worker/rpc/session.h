// WorkerSession: one membership of a worker, from its join to its end: the session and command streams, heartbeats, and
// the data streams. Example:
//   auto session = std::make_shared<WorkerSession>(channels, join, &runtime, &clock);
//   absl::Status why = session->Run();   // blocks until it ends
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "tp/v1/membership.grpc.pb.h"
#include "worker/rpc/blocking_queue.h"
#include "worker/rpc/data_transfers.h"
#include "worker/runtime/worker_runtime.h"

namespace tp::worker {

// Connections of their own: heartbeats never wait behind commands, commands never behind data.
struct WorkerChannels {
  std::shared_ptr<grpc::Channel> session, commands, data;
};

// Run() by one thread; the rest is thread-safe.
class WorkerSession {
 public:
  // `join` has a new incarnation. `runtime` is reset by Run() when the coordinator has welcomed the worker.
  WorkerSession(WorkerChannels channels, v1::Join join, WorkerRuntime* runtime, const Clock* clock);

  // Joins and serves until the session ends: why it ended (OK after Stop()). `welcomed` is called once it is a member.
  // FAILED_PRECONDITION and INVALID_ARGUMENT before that: the coordinator refuses the worker as it is.
  // `turned` is called now and then while the session lives.
  absl::Status Run(const std::function<void()>& welcomed, const std::function<void()>& turned);
  // Asks to be let go: no new work comes.
  void AskToLeave();
  // It was asked to leave and has no more work: the coordinator has said so, and its results have gone out.
  bool released();
  // Leaves.
  void Stop();

  void Send(v1::CommandsRequest request) { commands_queue_.Push(std::move(request)); }
  void Send(v1::SessionRequest request) { session_queue_.Push(std::move(request)); }
  DataTransfers& transfers() { return transfers_; }

 private:
  void ReadSession();
  void ReadCommands();
  void Serve(const std::function<void()>& turned);
  void End(const absl::Status& why);
  // Waits until the session has ended, at most so long.
  void AwaitEnd(absl::Duration timeout);
  absl::Status HandleCommand(v1::CommandsResponse response);

  const WorkerChannels channels_;
  const v1::Join join_;
  WorkerRuntime* const runtime_;
  const Clock* const clock_;
  DataTransfers transfers_;
  BlockingQueue<v1::SessionRequest> session_queue_;
  BlockingQueue<v1::CommandsRequest> commands_queue_;
  grpc::ClientContext session_context_, commands_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> session_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::CommandsRequest, v1::CommandsResponse>> commands_;

  mutable absl::Mutex mutex_;
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  v1::Welcome welcome_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_heard_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // the session stream ended by itself
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tp::worker
