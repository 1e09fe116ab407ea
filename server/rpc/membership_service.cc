#include "server/rpc/membership_service.h"

#include <memory>
#include <utility>

#include "common/proto_convert/model.h"
#include "server/rpc/peer_host.h"
#include "server/rpc/worker_reactor.h"

namespace tp::server {
namespace {

class SessionReactor : public WorkerReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  SessionReactor(const ServiceContext& context, std::string peer)
      : WorkerReactor(context, "its session"), peer_(std::move(peer)) {}

 private:
  absl::Status Handle() override {
    switch (request_.kind_case()) {
      case v1::SessionRequest::kJoin:
        return Join(request_.join());
      case v1::SessionRequest::kHeartbeat: {
        if (worker_.empty()) break;
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
        if (worker_.empty()) break;
        context_.loop->Post(StageProgressed{worker_, incarnation_, request_.progress().stage_id(),
                                            static_cast<int64_t>(request_.progress().done_bytes()),
                                            static_cast<int64_t>(request_.progress().total_bytes())});
        return absl::OkStatus();
      case v1::SessionRequest::kLeave:
        if (worker_.empty()) break;
        Log(LogLevel::kInfo, absl::StrCat("worker ", worker_, " drains"));
        context_.loop->Post(WorkerDraining{worker_, incarnation_});
        return absl::OkStatus();
      case v1::SessionRequest::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(
        "session: the first message must be a join, later ones heartbeats, progress and leave");
  }

  absl::Status Join(const v1::Join& join) {
    if (!worker_.empty()) return absl::InvalidArgumentError("session: has joined already");
    absl::Status valid = ValidateModelName(join.worker_id(), "join.worker_id");
    if (!valid.ok()) return valid;
    if (join.incarnation().empty()) return absl::InvalidArgumentError("join.incarnation: is required");
    if (join.memory_limit_bytes() > uint64_t{1} << 62) {
      return absl::InvalidArgumentError("join.memory_limit_bytes: is too large");
    }
    worker_ = join.worker_id();
    incarnation_ = join.incarnation();
    WorkerDescription worker;
    worker.id = worker_;
    worker.incarnation = incarnation_;
    worker.version = join.version();
    worker.device = join.device();
    worker.host = join.collective_host();
    worker.peer = HostOfPeer(peer_);
    worker.same_host = IsThisHost(worker.peer);
    worker.memory_limit_bytes = static_cast<int64_t>(join.memory_limit_bytes());
    worker.pid = join.pid();
    worker.widens_bf16 = join.widens_bf16();
    worker.collectives = join.collectives();
    worker.identity = join.device_identity();
    context_.loop->Run([queue = queue_, dispatcher = context_.dispatcher, worker = worker_, incarnation = incarnation_](
                           const Core&) { dispatcher->workers().AddSession(worker, incarnation, queue); });
    context_.loop->Post(WorkerJoined{std::move(worker)});
    return absl::OkStatus();
  }

  const std::string peer_;
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* MembershipService::Session(
    grpc::CallbackServerContext* context) {
  auto* reactor = new SessionReactor(context_, context->peer());
  reactor->Start();
  return reactor;
}

}  // namespace tp::server
