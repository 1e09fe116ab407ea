#include "server/rpc/worker_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_convert/command.h"
#include "server/rpc/worker_reactor.h"

namespace tp::server {
namespace {

class CommandsReactor : public WorkerReactor<v1::CommandsRequest, v1::CommandsResponse> {
 public:
  explicit CommandsReactor(const ServiceContext& context) : WorkerReactor(context, "its command stream") {}

 private:
  absl::Status Handle() override {
    switch (request_.kind_case()) {
      case v1::CommandsRequest::kHello:
        if (!worker_.empty() || request_.hello().worker_id().empty()) break;
        worker_ = request_.hello().worker_id();
        incarnation_ = request_.hello().incarnation();
        context_.loop->Run([queue = queue_, dispatcher = context_.dispatcher, worker = worker_,
                            incarnation = incarnation_, term = request_.hello().term()](const Core&) {
          absl::Status status = term == dispatcher->options().term
                                    ? dispatcher->workers().AttachCommands(worker, incarnation, queue)
                                    : absl::FailedPreconditionError(absl::StrCat(
                                          "term ", term, " is over; this is term ", dispatcher->options().term));
          if (!status.ok()) queue->Close(status);
        });
        return absl::OkStatus();
      case v1::CommandsRequest::kAck: {
        if (worker_.empty()) break;
        absl::StatusOr<Ack> ack = AckFromProto(request_.ack());
        if (!ack.ok()) return ack.status();
        context_.loop->Post(AckReceived{worker_, incarnation_, *std::move(ack)});
        return absl::OkStatus();
      }
      case v1::CommandsRequest::kStageResult: {
        if (worker_.empty()) break;
        absl::StatusOr<StageResult> result = StageResultFromProto(request_.stage_result());
        if (!result.ok()) return result.status();
        context_.loop->Post(StageFinished{worker_, incarnation_, *std::move(result)});
        return absl::OkStatus();
      }
      case v1::CommandsRequest::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("commands: the first message must be a hello, later ones acks and results");
  }
};

}  // namespace

grpc::ServerBidiReactor<v1::CommandsRequest, v1::CommandsResponse>* WorkerService::Commands(
    grpc::CallbackServerContext*) {
  auto* reactor = new CommandsReactor(context_);
  reactor->Start();
  return reactor;
}

grpc::ServerBidiReactor<v1::DataRequest, v1::DataResponse>* WorkerService::Data(grpc::CallbackServerContext*) {
  return NewDataReactor(context_);
}

}  // namespace tp::server
