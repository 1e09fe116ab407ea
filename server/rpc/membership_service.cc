#include "server/rpc/membership_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/proto_convert/model.h"
#include "common/rpc/status.h"

namespace tp::server {
namespace {

class SessionReactor : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  explicit SessionReactor(const ServiceContext& context)
      : context_(context),
        queue_(std::make_shared<SessionQueue>([this](const v1::SessionResponse* response) { StartWrite(response); },
                                              [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End("its session ended");
      return;
    }
    absl::Status status = Handle();
    if (!status.ok()) {
      End(std::string(status.message()));
      queue_->Close(status);
      return;
    }
    if (queue_->closed()) {
      End("its stream was closed");
    } else {
      StartRead(&request_);
    }
  }

  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }
  // The read that waits fails, and ends the worker; only reads touch its fields.
  void OnCancel() override { queue_->Abort(absl::CancelledError("its connection broke")); }
  void OnDone() override { delete this; }

 private:
  absl::Status Handle() {
    switch (request_.kind_case()) {
      case v1::SessionRequest::kJoin:
        return Join(request_.join());
      case v1::SessionRequest::kHeartbeat: {
        if (!joined_) break;
        context_.loop->Post(WorkerHeartbeat{worker_, incarnation_, request_.heartbeat().completed_sequence(),
                                            static_cast<int64_t>(request_.heartbeat().used_bytes()),
                                            request_.heartbeat().progress()});
        // Answered by the core's thread, so that an answer means that it turns.
        context_.loop->Run([queue = queue_, dispatcher = context_.dispatcher](const Core&) {
          v1::SessionResponse response;
          response.mutable_heartbeat_ack()->set_term(dispatcher->options().term);
          queue->Push(std::move(response));
        });
        return absl::OkStatus();
      }
      case v1::SessionRequest::kProgress:
        if (!joined_) break;
        context_.loop->Post(StageProgressed{worker_, incarnation_, request_.progress().stage_id(),
                                            static_cast<int64_t>(request_.progress().done_bytes()),
                                            static_cast<int64_t>(request_.progress().total_bytes())});
        return absl::OkStatus();
      case v1::SessionRequest::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("session: the first message must be a join, later ones heartbeats and progress");
  }

  absl::Status Join(const v1::Join& join) {
    if (joined_) return absl::InvalidArgumentError("session: has joined already");
    absl::Status valid = ValidateModelName(join.worker_id(), "join.worker_id");
    if (!valid.ok()) return valid;
    if (join.incarnation().empty()) return absl::InvalidArgumentError("join.incarnation: is required");
    if (join.memory_limit_bytes() > uint64_t{1} << 62) {
      return absl::InvalidArgumentError("join.memory_limit_bytes: is too large");
    }
    joined_ = true;
    worker_ = join.worker_id();
    incarnation_ = join.incarnation();
    WorkerDescription worker;
    worker.id = worker_;
    worker.incarnation = incarnation_;
    worker.version = join.version();
    worker.device = join.device();
    worker.host = join.collective_host();
    worker.memory_limit_bytes = static_cast<int64_t>(join.memory_limit_bytes());
    worker.pid = join.pid();
    worker.widens_bf16 = join.widens_bf16();
    context_.loop->Run([queue = queue_, dispatcher = context_.dispatcher, worker = worker_, incarnation = incarnation_](
                           const Core&) { dispatcher->workers().AddSession(worker, incarnation, queue); });
    context_.loop->Post(WorkerJoined{std::move(worker)});
    return absl::OkStatus();
  }

  // The worker is lost, unless it was before.
  void End(const std::string& reason) {
    if (joined_) {
      context_.loop->Run([loop = context_.loop, dispatcher = context_.dispatcher, worker = worker_,
                          incarnation = incarnation_, reason](const Core&) {
        if (!dispatcher->LoseWorker(worker, incarnation, absl::UnavailableError(reason))) return;
        Log(LogLevel::kWarning, absl::StrCat("worker ", worker, " lost: ", reason));
        loop->Post(WorkerLost{worker, incarnation, reason});
      });
    }
    queue_->Abort(absl::UnavailableError(reason));
  }

  const ServiceContext context_;
  std::shared_ptr<SessionQueue> queue_;
  v1::SessionRequest request_;
  bool joined_ = false;  // this and what follows is set by the first read, before anything else looks
  std::string worker_, incarnation_;
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* MembershipService::Session(
    grpc::CallbackServerContext*) {
  return new SessionReactor(context_);
}

}  // namespace tp::server
