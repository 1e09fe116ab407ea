// Forward: a header and chunks of inputs up; the core runs it; then a header, chunks and a summary down.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/command.h"
#include "common/proto_convert/layout.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/forward_request.h"
#include "server/rpc/stream_relay.h"

namespace tp::server {
namespace {

using ForwardQueue = WriteQueue<v1::ForwardResponse>;

class ForwardCall : public grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>,
                    public CallSink,
                    public std::enable_shared_from_this<ForwardCall> {
 public:
  ForwardCall(const ServiceContext& context, grpc::CallbackServerContext* server_context)
      : context_(context),
        server_context_(server_context),
        queue_(std::make_shared<ForwardQueue>([this](const v1::ForwardResponse* response) { StartWrite(response); },
                                              [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {}

  void Start() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!posted_) {
        queue_->Close(absl::InvalidArgumentError(bytes_ == nullptr
                                                     ? "forward: the first message must be a header"
                                                     : absl::StrCat("inputs ended early: ", bytes_->Missing())));
      }
      return;
    }
    absl::Status status = Handle();
    if (!status.ok()) {
      queue_->Abort(status);
      Leave();
      return;
    }
    if (!posted_ && bytes_->done()) Post();
    if (!queue_->closed()) StartRead(&request_);
  }

  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }

  void OnCancel() override {
    queue_->Abort(absl::CancelledError("the client has gone"));
    Leave();
  }

  void OnDone() override { self_.reset(); }

  // On the core's thread.
  void OnForward(ForwardReply reply) override {
    if (!reply.status.ok()) {
      queue_->Close(reply.status);
      return;
    }
    v1::ForwardResponse first;
    for (const AnswerOutput& output : reply.outputs) {
      v1::ForwardOutput* added = first.mutable_header()->add_outputs();
      added->set_name(output.name);
      added->set_dtype(DTypeToProto(output.dtype));
      ShapeToProto(output.shape, added->mutable_shape());
      PlacementsToProto(output.placements, added->mutable_placements());
    }
    MeshToProto(reply.mesh.axes(), first.mutable_header()->mutable_mesh());
    for (const AnswerBlock& block : reply.blocks) {
      v1::OutputBlock* added = first.mutable_header()->add_blocks();
      added->set_output(block.output);
      ShapeToProto(block.offset, added->mutable_offset());
      ShapeToProto(block.shape, added->mutable_shape());
      added->set_rank(block.rank);
    }
    queue_->Push(std::move(first));
    for (size_t i = 0; i < reply.blocks.size(); ++i) {
      const AnswerBlock& block = reply.blocks[i];
      for (uint64_t offset = 0; block.transfer_id == 0 && offset < block.data.size(); offset += kChunkBytes) {
        v1::ForwardResponse response;
        *response.mutable_chunk() = MakeChunk(static_cast<uint32_t>(i), block.data, offset);
        queue_->Push(std::move(response));
      }
    }
    for (const CollectiveRecord& record : reply.collectives) {
      v1::CollectiveCount* count = summary_.mutable_summary()->add_collectives();
      count->set_module(record.module);
      count->set_op(record.op);
      count->set_axis(record.axis);
      count->set_bytes(static_cast<uint64_t>(record.bytes));
    }
    summary_.mutable_summary()->set_wire_bytes(static_cast<uint64_t>(reply.wire_bytes));
    summary_.mutable_summary()->set_duration_us(static_cast<uint64_t>(reply.duration_us));
    const auto self = shared_from_this();
    auto relay = std::make_shared<StreamRelay>(
        context_, reply.blocks,
        [self](v1::Chunk chunk, std::function<void(bool)> written) {
          v1::ForwardResponse response;
          *response.mutable_chunk() = std::move(chunk);
          self->queue_->Push(std::move(response), std::move(written));
        },
        [self](const absl::Status& status) {
          if (status.ok()) {
            self->queue_->Push(std::move(self->summary_));
            self->queue_->Close(absl::OkStatus());
          } else {
            self->queue_->Abort(status);
            self->Leave();
          }
        });
    relay_ = relay;
    relay->Start();
  }

 private:
  absl::Status Handle() {
    if (bytes_ != nullptr) {
      if (request_.kind_case() != v1::ForwardRequest::kChunk) {
        return absl::InvalidArgumentError("forward: only chunks may follow the header");
      }
      if (posted_) return absl::InvalidArgumentError("forward: more bytes than the inputs have");
      return bytes_->Add(request_.chunk());
    }
    if (request_.kind_case() != v1::ForwardRequest::kHeader) {
      return absl::InvalidArgumentError("forward: the first message must be a header");
    }
    header_ = std::move(*request_.mutable_header());
    TP_ASSIGN_OR_RETURN(pending_, ForwardFromProto(header_, context_.limits));
    bytes_ = std::make_unique<ChunkAssembler>(pending_.sizes);
    return absl::OkStatus();
  }

  void Post() {
    posted_ = true;
    ForwardRequested event = WithBytes(std::move(pending_), bytes_->Take());
    event.call = id_;
    event.deadline = absl::FromChrono(server_context_->deadline());
    if (header_.timeout_ms() > 0) {
      event.deadline = std::min(event.deadline, context_.clock->Now() + absl::Milliseconds(header_.timeout_ms()));
    }
    if (header_.module_outputs()) return CompileModuleOutputs(std::move(event));
    Post(std::move(event));
  }

  void Post(ForwardRequested event) {
    context_.loop->Run([self = shared_from_this()](const Core&) {
      if (!self->queue_->closed()) self->context_.dispatcher->AddCall(self->id_, self);
    });
    context_.loop->Post(std::move(event));
  }

  // On the pool; then posts.
  void CompileModuleOutputs(ForwardRequested request) {
    auto event = std::make_shared<ForwardRequested>(std::move(request));
    context_.loop->Run([self = shared_from_this(), event](const Core& core) {
      const auto it = core.models().find(event->model);
      // The core says what is wrong with it.
      if (it == core.models().end() || it->second.compiled == nullptr) return self->Post(std::move(*event));
      event->base = it->second.submission;
      self->context_.pool->Add([self, event] {
        absl::StatusOr<CompiledModel> compiled = CompileForward(*event->base, {.module_outputs = true});
        if (!compiled.ok()) {
          self->queue_->Abort(compiled.status());
          return self->Leave();
        }
        event->program = std::make_shared<const ForwardProgram>(std::move(compiled->program));
        if (!self->queue_->closed()) self->Post(std::move(*event));
      });
    });
  }

  // The client has gone or is refused.
  void Leave() {
    context_.loop->Run([self = shared_from_this()](const Core&) {
      self->context_.dispatcher->RemoveCall(self->id_);
      if (auto relay = self->relay_.lock()) relay->Cancel();
    });
    context_.loop->Post(CallCancelled{id_});
  }

  const ServiceContext context_;
  const RunningCall running_{context_};
  grpc::CallbackServerContext* server_context_;  // until Finish
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<ForwardQueue> queue_;
  std::shared_ptr<ForwardCall> self_;
  v1::ForwardRequest request_;
  v1::ForwardHeader header_;
  PendingForward pending_;
  std::unique_ptr<ChunkAssembler> bytes_;
  bool posted_ = false;
  std::weak_ptr<StreamRelay> relay_;  // of the core's thread
  v1::ForwardResponse summary_;
};

}  // namespace

grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* CoordinatorService::Forward(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<ForwardCall>(context_, context);
  call->Start();
  return call.get();
}

}  // namespace tp::server
