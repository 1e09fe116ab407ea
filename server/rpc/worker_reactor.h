// What the two long streams of a worker (session and commands) have in common: one read after the other, a queue of
// writes, and an end that loses the worker. A subclass handles messages. Example:
//   class SessionReactor : public WorkerReactor<v1::SessionRequest, v1::SessionResponse> { absl::Status Handle() ... };
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/status.h"
#include "common/rpc/write_queue.h"
#include "server/rpc/services.h"

namespace tp::server {

// Owns itself; lives until the stream is done.
template <typename Request, typename Response>
class WorkerReactor : public grpc::ServerBidiReactor<Request, Response> {
 public:
  using Queue = WriteQueue<Response>;
  // `stream`: "its session"; for messages.
  WorkerReactor(const ServiceContext& context, std::string stream)
      : context_(context),
        stream_(std::move(stream)),
        queue_(std::make_shared<Queue>([this](const Response* response) { this->StartWrite(response); },
                                       [this](const absl::Status& status) { this->Finish(ToGrpcStatus(status)); })) {}

  // Begins to read. Once it is constructed as a whole.
  void Start() { this->StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::StrCat(stream_, " ended"));
    const absl::Status status = Handle();
    if (!status.ok()) {
      // The worker gets the status itself; the core and the log a text that says where it comes from.
      queue_->Close(status);
      return End(absl::StrCat(stream_, " failed: ", std::string(status.message())));
    }
    if (queue_->closed()) return End(absl::StrCat(stream_, " was closed"));
    this->StartRead(&request_);
  }
  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }
  // The read that waits fails, and ends the worker; only reads touch its fields.
  void OnCancel() override { queue_->Abort(absl::CancelledError("its connection broke")); }
  void OnDone() override { delete this; }

 protected:
  // The message in request_. A failure ends the stream.
  virtual absl::Status Handle() = 0;

  const ServiceContext context_;
  const std::string stream_;
  std::shared_ptr<Queue> queue_;
  Request request_;
  // Set by the first message, before anything else looks; empty until then.
  std::string worker_, incarnation_;

 private:
  // The worker is lost, unless it was before.
  void End(const std::string& reason) {
    if (!worker_.empty()) {
      context_.loop->Run([loop = context_.loop, dispatcher = context_.dispatcher, worker = worker_,
                          incarnation = incarnation_, reason](const Core&) {
        if (!dispatcher->LoseWorker(worker, incarnation, absl::UnavailableError(reason))) return;
        Log(LogLevel::kWarning, absl::StrCat("worker ", worker, " lost: ", reason));
        loop->Post(WorkerLost{worker, incarnation, reason});
      });
    }
    queue_->Abort(absl::UnavailableError(reason));
  }
};

}  // namespace tp::server
