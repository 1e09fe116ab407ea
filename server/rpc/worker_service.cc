#include "server/rpc/worker_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/proto_convert/command.h"
#include "common/rpc/status.h"

namespace tp::server {
namespace {

class CommandsReactor : public grpc::ServerBidiReactor<v1::CommandsRequest, v1::CommandsResponse> {
 public:
  explicit CommandsReactor(const ServiceContext& context)
      : context_(context),
        queue_(std::make_shared<CommandsQueue>([this](const v1::CommandsResponse* response) { StartWrite(response); },
                                               [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      End("its command stream ended");
      return;
    }
    absl::Status status = Handle();
    if (!status.ok()) {
      queue_->Close(status);
      End(absl::StrCat("its command stream failed: ", std::string(status.message())));
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

  const ServiceContext context_;
  std::shared_ptr<CommandsQueue> queue_;
  v1::CommandsRequest request_;
  std::string worker_, incarnation_;  // of the hello
};

}  // namespace

grpc::ServerBidiReactor<v1::CommandsRequest, v1::CommandsResponse>* WorkerService::Commands(
    grpc::CallbackServerContext*) {
  return new CommandsReactor(context_);
}

grpc::ServerBidiReactor<v1::DataRequest, v1::DataResponse>* WorkerService::Data(grpc::CallbackServerContext*) {
  return NewDataReactor(context_);
}

}  // namespace tp::server
