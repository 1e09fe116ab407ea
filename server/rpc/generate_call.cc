// Generate: a prompt in, tokens and their text out as they come.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/command.h"
#include "common/rpc/status.h"
#include "common/tokenizer/tokenizer.h"
#include "server/rpc/coordinator_service.h"

namespace tp::server {
namespace {

using GenerateQueue = WriteQueue<v1::GenerateResponse>;

class GenerateCall : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                     public CallSink,
                     public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(const ServiceContext& context, grpc::CallbackServerContext* server_context,
               const v1::GenerateRequest* request)
      : context_(context),
        deadline_(absl::FromChrono(server_context->deadline())),
        request_(*request),
        queue_(std::make_shared<GenerateQueue>([this](const v1::GenerateResponse* response) { StartWrite(response); },
                                               [this](const absl::Status& status) { Finish(ToGrpcStatus(status)); })) {}

  void Start() {
    self_ = shared_from_this();
    context_.loop->Run([self = self_](const Core& core) {
      auto it = core.models().find(self->request_.model());
      if (it == core.models().end()) {
        self->queue_->Close(NoSuchModel(core, self->request_.model()));
        return;
      }
      // Text becomes tokens beside the core's thread.
      self->context_.pool->Add([self, submission = it->second.submission] {
        absl::Status status = self->Post(*submission);
        if (!status.ok()) self->queue_->Close(status);
      });
    });
  }

  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }

  void OnCancel() override {
    queue_->Abort(absl::CancelledError("the client has gone"));
    context_.loop->Run([dispatcher = context_.dispatcher, id = id_](const Core&) { dispatcher->RemoveCall(id); });
    context_.loop->Post(CallCancelled{id_});
  }

  void OnDone() override { self_.reset(); }

  // On the core's thread.
  void OnGenerate(const GenerateProgress& progress) override {
    if (!progress.status.ok()) {
      queue_->Close(progress.status);
      return;
    }
    v1::GenerateResponse response;
    for (int64_t id : progress.token_ids) {
      response.add_token_ids(id);
      if (decoder_ != nullptr) response.mutable_text()->append(decoder_->Add(id));
    }
    if (progress.done) {
      if (decoder_ != nullptr) response.mutable_text()->append(decoder_->Finish());
      response.set_finish_reason(progress.finish_reason);
    }
    queue_->Push(std::move(response));
    if (progress.done) queue_->Close(absl::OkStatus());
  }

 private:
  // On the pool.
  absl::Status Post(const Submission& submission) {
    if (!submission.model.generation.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model '", submission.name, "' is not a language model: it has no generation section"));
    }
    const GenerationConfig& generation = *submission.model.generation;
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(generation.tokenizer, generation.bos_token_id);
    if (tokenizer.ok()) decoder_ = (*tokenizer)->NewDecoder();
    GenerateRequested event;
    event.call = id_;
    event.model = request_.model();
    switch (request_.prompt_case()) {
      case v1::GenerateRequest::kText:
        if (!tokenizer.ok()) return tokenizer.status();
        event.token_ids = (*tokenizer)->Encode(request_.text(), /*add_begin=*/true);
        break;
      case v1::GenerateRequest::kTokenIds:
        event.token_ids.assign(request_.token_ids().ids().begin(), request_.token_ids().ids().end());
        break;
      case v1::GenerateRequest::PROMPT_NOT_SET:
        return absl::InvalidArgumentError("prompt: exactly one of text and token_ids must be set");
    }
    if (request_.max_new_tokens() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("max_new_tokens: is ", request_.max_new_tokens(), "; must be 0 or above"));
    }
    event.max_new_tokens = request_.max_new_tokens();
    event.ignore_eos = request_.ignore_eos();
    TP_ASSIGN_OR_RETURN(event.sampling, SamplingFromProto(request_.sampling(), "sampling"));
    event.deadline = deadline_;
    context_.loop->Run([self = shared_from_this(), event = std::move(event)](const Core&) mutable {
      if (self->queue_->closed()) return;
      self->context_.dispatcher->AddCall(self->id_, self);
      self->context_.loop->Post(std::move(event));
    });
    return absl::OkStatus();
  }

  const ServiceContext context_;
  const RunningCall running_{context_};
  const CallId id_ = context_.loop->NewCall();
  const absl::Time deadline_;
  const v1::GenerateRequest request_;
  std::shared_ptr<GenerateQueue> queue_;
  std::shared_ptr<GenerateCall> self_;
  std::unique_ptr<TokenDecoder> decoder_;  // of the pool, then of the core's thread; null: token ids only
};

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* CoordinatorService::Generate(grpc::CallbackServerContext* context,
                                                                             const v1::GenerateRequest* request) {
  auto call = std::make_shared<GenerateCall>(context_, context, request);
  call->Start();
  return call.get();
}

}  // namespace tp::server
