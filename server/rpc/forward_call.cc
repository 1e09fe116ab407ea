// Forward: a header and chunks of inputs up; the core runs it; then a header, chunks and a summary down. Blocks that
// workers stream are relayed chunk by chunk: the next one is asked for when the last has gone out to the client.
#include <map>
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
                                              [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {
    ++*context_.relays;
  }
  ~ForwardCall() override { --*context_.relays; }

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
    }
    for (const AnswerBlock& block : reply.blocks) {
      v1::OutputBlock* added = first.mutable_header()->add_blocks();
      added->set_output(block.output);
      ShapeToProto(block.offset, added->mutable_offset());
      ShapeToProto(block.shape, added->mutable_shape());
    }
    first.mutable_header();
    queue_->Push(std::move(first));
    std::map<uint64_t, Relay> relays;
    for (size_t i = 0; i < reply.blocks.size(); ++i) {
      const AnswerBlock& block = reply.blocks[i];
      const uint32_t index = static_cast<uint32_t>(i);
      if (block.transfer_id != 0) {
        Relay& relay = relays[block.transfer_id];
        relay.transfer_id = block.transfer_id;
        relay.blocks[block.stream_index] = {index, static_cast<uint64_t>(block.size_bytes), 0};
        relay.missing += static_cast<uint64_t>(block.size_bytes);
        continue;
      }
      for (uint64_t offset = 0; offset < block.data.size(); offset += kChunkBytes) {
        v1::ForwardResponse response;
        *response.mutable_chunk() = MakeChunk(index, block.data, offset);
        queue_->Push(std::move(response));
      }
    }
    for (auto& [id, relay] : relays) {
      if (relay.missing > 0) relays_.push_back(std::move(relay));
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
    NextRelay(0);
  }

 private:
  struct RelayBlock {
    uint32_t index = 0;  // in the answer's header
    uint64_t size = 0, done = 0;
  };
  // The streamed blocks of one worker.
  struct Relay {
    uint64_t transfer_id = 0;
    std::map<uint32_t, RelayBlock> blocks;  // by index in the stream
    uint64_t missing = 0;                   // bytes
    std::shared_ptr<UploadStream> stream;
  };

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
    std::vector<uint64_t> sizes;
    int64_t total = 0;
    for (int i = 0; i < header_.inputs_size(); ++i) {
      const std::string field = Indexed("header.inputs", i);
      Input input;
      input.name = header_.inputs(i).name();
      TP_ASSIGN_OR_RETURN(input.tensor.dtype, DTypeFromProto(header_.inputs(i).dtype(), field + ".dtype"));
      TP_ASSIGN_OR_RETURN(input.tensor.shape, ShapeFromProto(header_.inputs(i).shape(), field + ".shape"));
      absl::StatusOr<int64_t> size = CheckedBytes(input.tensor.shape, input.tensor.dtype);
      if (!size.ok()) return AtField(size.status(), field + ".shape");
      if (__builtin_add_overflow(total, *size, &total) || total > context_.limits.input_bytes) {
        return absl::ResourceExhaustedError(absl::StrCat("header.inputs: more than the limit of ",
                                                         context_.limits.input_bytes, " bytes of a request's inputs"));
      }
      for (const Input& other : inputs_) {
        if (other.name == input.name)
          return FieldError(field + ".name", absl::StrCat("'", input.name, "' is repeated"));
      }
      sizes.push_back(static_cast<uint64_t>(*size));
      inputs_.push_back(std::move(input));
    }
    bytes_ = std::make_unique<ChunkAssembler>(std::move(sizes));
    return absl::OkStatus();
  }

  void Post() {
    posted_ = true;
    std::vector<std::string> arrays = bytes_->Take();
    ForwardRequested event;
    event.call = id_;
    event.model = header_.model();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i].tensor.bytes = std::move(arrays[i]);
      event.inputs[inputs_[i].name] = std::move(inputs_[i].tensor);
    }
    event.deadline = absl::FromChrono(server_context_->deadline());
    if (header_.timeout_ms() > 0) {
      event.deadline = std::min(event.deadline, context_.clock->Now() + absl::Milliseconds(header_.timeout_ms()));
    }
    context_.loop->Run([self = shared_from_this()](const Core&) {
      if (!self->queue_->closed()) self->context_.dispatcher->AddCall(self->id_, self);
    });
    context_.loop->Post(std::move(event));
  }

  // The client has gone or is refused.
  void Leave() {
    context_.loop->Run([self = shared_from_this()](const Core&) {
      self->context_.dispatcher->RemoveCall(self->id_);
      // Streams that are not claimed yet; those that are end with their next chunk.
      for (const Relay& relay : self->relays_) self->context_.dispatcher->transfers().Cancel(relay.transfer_id);
    });
    context_.loop->Post(CallCancelled{id_});
  }

  // Relays one worker's stream after the other. On any thread; `relays_` does not change any more.
  void NextRelay(size_t index) {
    if (index == relays_.size()) {
      queue_->Push(std::move(summary_));
      queue_->Close(absl::OkStatus());
      return;
    }
    context_.loop->Run([self = shared_from_this(), index](const Core&) {
      Transfers& transfers = self->context_.dispatcher->transfers();
      if (self->queue_->closed()) return;
      transfers.Claim(self->relays_[index].transfer_id,
                      [self, index](absl::StatusOr<std::shared_ptr<UploadStream>> stream) {
                        if (!stream.ok()) {
                          self->Fail(stream.status());
                          return;
                        }
                        self->relays_[index].stream = *std::move(stream);
                        self->Pump(index);
                      });
    });
  }

  void Pump(size_t index) {
    relays_[index].stream->ReadChunk([self = shared_from_this(), index](absl::StatusOr<v1::Chunk> chunk) {
      absl::Status status = chunk.ok() ? self->Pass(index, &*chunk) : chunk.status();
      if (!status.ok()) self->Fail(status, index);
    });
  }

  absl::Status Pass(size_t index, v1::Chunk* chunk) {
    Relay& relay = relays_[index];
    TP_RETURN_IF_ERROR(CheckChunk(*chunk));
    auto block = relay.blocks.find(chunk->index());
    if (block == relay.blocks.end() || chunk->offset() != block->second.done || chunk->data().empty() ||
        chunk->data().size() > block->second.size - block->second.done) {
      return absl::InternalError(absl::StrCat("a worker's chunk of block ", chunk->index(), " at offset ",
                                              chunk->offset(), " does not fit its result"));
    }
    block->second.done += chunk->data().size();
    relay.missing -= chunk->data().size();
    v1::ForwardResponse response;
    *response.mutable_chunk() = std::move(*chunk);
    response.mutable_chunk()->set_index(block->second.index);
    const bool last = relay.missing == 0;
    queue_->Push(std::move(response), [self = shared_from_this(), index, last](bool ok) {
      if (!ok) {
        self->relays_[index].stream->Stop(absl::CancelledError("the client has gone"));
      } else if (last) {
        self->relays_[index].stream->Stop(absl::OkStatus());
        self->NextRelay(index + 1);
      } else {
        self->Pump(index);
      }
    });
    return absl::OkStatus();
  }

  void Fail(const absl::Status& status) { queue_->Abort(status); }
  void Fail(const absl::Status& status, size_t index) {
    relays_[index].stream->Stop(status);
    queue_->Abort(status);
    Leave();
  }

  struct Input {
    std::string name;
    HostTensor tensor;
  };
  const ServiceContext context_;
  grpc::CallbackServerContext* server_context_;  // until Finish
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<ForwardQueue> queue_;
  std::shared_ptr<ForwardCall> self_;
  v1::ForwardRequest request_;
  v1::ForwardHeader header_;
  std::vector<Input> inputs_;
  std::unique_ptr<ChunkAssembler> bytes_;
  bool posted_ = false;
  std::vector<Relay> relays_;
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
