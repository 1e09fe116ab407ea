// GetTensor: the core has ranks send their blocks; the header names them, and their chunks are relayed.
#include <memory>
#include <utility>

#include "common/proto_convert/layout.h"
#include "common/rpc/status.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/describe.h"
#include "server/rpc/stream_relay.h"
#include "server/rpc/tensor_requests.h"

namespace tp::server {
namespace {

using GetQueue = WriteQueue<v1::GetTensorResponse>;

class GetCall : public grpc::ServerWriteReactor<v1::GetTensorResponse>,
                public CallSink,
                public std::enable_shared_from_this<GetCall> {
 public:
  explicit GetCall(const ServiceContext& context)
      : context_(context),
        queue_(std::make_shared<GetQueue>([this](const v1::GetTensorResponse* response) { StartWrite(response); },
                                          [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {}

  void Start(absl::StatusOr<GetTensorRequested> event) {
    self_ = shared_from_this();
    if (!event.ok()) {
      queue_->Close(event.status());
      return;
    }
    event->head.call = id_;
    context_.loop->Run([self = self_](const Core&) { self->context_.dispatcher->AddCall(self->id_, self); });
    context_.loop->Post(*std::move(event));
  }

  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }
  void OnCancel() override {
    queue_->Abort(absl::CancelledError("the client has gone"));
    Leave();
  }
  void OnDone() override { self_.reset(); }

  // On the core's thread.
  void OnOperation(const OperationReply& reply, const Core&) override {
    if (!reply.status.ok()) {
      queue_->Close(reply.status);
      return;
    }
    v1::GetTensorResponse first;
    v1::GetTensorHeader* header = first.mutable_header();
    if (!reply.tensors.empty()) *header->mutable_tensor() = DescriptionOf(reply.tensors[0]);
    for (const AnswerBlock& block : reply.blocks) {
      v1::TensorBlock* added = header->add_blocks();
      added->set_rank(block.rank);
      ShapeToProto(block.offset, added->mutable_offset());
      ShapeToProto(block.shape, added->mutable_shape());
    }
    queue_->Push(std::move(first));
    const auto self = shared_from_this();
    auto relay = std::make_shared<StreamRelay>(
        context_, reply.blocks,
        [self](v1::Chunk chunk, std::function<void(bool)> written) {
          v1::GetTensorResponse response;
          *response.mutable_chunk() = std::move(chunk);
          self->queue_->Push(std::move(response), std::move(written));
        },
        [self](const absl::Status& status) {
          if (status.ok()) {
            self->context_.loop->Post(GetFinished{self->id_});
            self->queue_->Close(status);
          } else {
            self->queue_->Abort(status);
            self->Leave();
          }
        });
    relay_ = relay;
    relay->Start();
  }

 private:
  void Leave() {
    context_.loop->Run([self = shared_from_this()](const Core&) {
      self->context_.dispatcher->RemoveCall(self->id_);
      if (auto relay = self->relay_.lock()) relay->Cancel();
    });
    context_.loop->Post(CallCancelled{id_});
  }

  const ServiceContext context_;
  const RunningCall running_{context_};
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<GetQueue> queue_;
  std::shared_ptr<GetCall> self_;
  std::weak_ptr<StreamRelay> relay_;  // of the core's thread
};

}  // namespace

grpc::ServerWriteReactor<v1::GetTensorResponse>* CoordinatorService::GetTensor(grpc::CallbackServerContext*,
                                                                               const v1::GetTensorRequest* request) {
  auto call = std::make_shared<GetCall>(context_);
  auto* reactor = call.get();
  call->Start(RequestFromProto(*request));
  return reactor;
}

}  // namespace tp::server
