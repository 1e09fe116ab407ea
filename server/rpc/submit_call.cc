// Submit: a header and chunks up; parsed and compiled on the pool; then the core's.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"
#include "common/proto_convert/submission_file.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/describe.h"

namespace tp::server {
namespace {

class SubmitCall : public grpc::ServerReadReactor<v1::SubmitRequest>,
                   public CallSink,
                   public std::enable_shared_from_this<SubmitCall> {
 public:
  SubmitCall(const ServiceContext& context, v1::SubmitResponse* response) : context_(context), response_(response) {}

  void Start() {
    self_ = shared_from_this();
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!compiling_) {
        End(absl::InvalidArgumentError(header_ ? absl::StrCat("submission ended early: ", bytes_->Missing())
                                               : "submit: the first message must be a header"));
      }
      return;
    }
    absl::Status status = Handle();
    if (!status.ok()) {
      End(status);
      return;
    }
    if (bytes_->done() && !compiling_) {
      compiling_ = true;
      context_.pool->Add([self = shared_from_this()] { self->Compile(); });
    }
    StartRead(&request_);
  }

  void OnCancel() override {
    // First, so that a submission that is still compiled is never posted after its cancellation.
    End(absl::CancelledError("the client has gone"));
    context_.loop->Run([dispatcher = context_.dispatcher, id = id_](const Core&) { dispatcher->RemoveCall(id); });
    context_.loop->Post(CallCancelled{id_});
  }

  void OnDone() override { self_.reset(); }

  // On the core's thread.
  void OnSubmit(const SubmitReply& reply, const Core& core) override {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    if (reply.status.ok()) {
      auto it = core.models().find(reply.name);
      if (it != core.models().end()) {
        *response_->mutable_model() = Summary(it->second);
      } else {
        response_->mutable_model()->set_name(reply.name);
      }
      for (const std::string& warning : compiled_->warnings) response_->add_warnings(warning);
    }
    Finish(ToGrpcStatus(reply.status));
  }

 private:
  absl::Status Handle() {
    if (!header_) {
      if (request_.kind_case() != v1::SubmitRequest::kHeader) {
        return absl::InvalidArgumentError("submit: the first message must be a header");
      }
      header_ = true;
      header_message_ = std::move(*request_.mutable_header());
      if (header_message_.size_bytes() > static_cast<uint64_t>(context_.limits.submission_bytes)) {
        return absl::ResourceExhaustedError(absl::StrCat("header.size_bytes: ", header_message_.size_bytes(),
                                                         " is over the limit of ", context_.limits.submission_bytes,
                                                         " bytes of a submission"));
      }
      bytes_ = std::make_unique<ChunkAssembler>(std::vector<uint64_t>{header_message_.size_bytes()});
      return absl::OkStatus();
    }
    if (request_.kind_case() != v1::SubmitRequest::kChunk) {
      return absl::InvalidArgumentError("submit: only chunks may follow the header");
    }
    if (compiling_) return absl::InvalidArgumentError("submit: more bytes than header.size_bytes says");
    return bytes_->Add(request_.chunk());
  }

  // On the pool.
  void Compile() {
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
    }
    absl::Status status = ParseAndCompile();
    if (!status.ok()) {
      End(status);
      return;
    }
    if (header_message_.dry_run()) {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      ended_ = true;
      *response_->mutable_model() = DryRunSummary(*submission_, *compiled_);
      for (const std::string& warning : compiled_->warnings) response_->add_warnings(warning);
      Finish(grpc::Status::OK);
      return;
    }
    SubmitRequested event;
    event.call = id_;
    event.request_id = header_message_.request_id();
    event.digest = Sha256Hex(blob_);
    event.submission = submission_;
    event.compiled = compiled_;
    event.blob = std::move(blob_);
    context_.loop->Run([self = shared_from_this(), event = std::move(event)](const Core&) {
      absl::MutexLock lock(&self->mutex_);
      if (self->ended_) return;  // the client has gone: nothing of it is left behind
      self->context_.dispatcher->AddCall(self->id_, self);
      self->context_.loop->Post(event);
    });
  }

  absl::Status ParseAndCompile() {
    const std::vector<std::string> arrays = bytes_->Take();
    TP_ASSIGN_OR_RETURN(v1::Submission message, ParseSubmissionMessage(arrays[0], SubmissionFormat::kBinary));
    if (!header_message_.name().empty()) message.set_name(header_message_.name());
    TP_RETURN_IF_ERROR(ValidateModelName(message.name(), "name"));
    if (header_message_.has_mesh()) *message.mutable_plan()->mutable_mesh() = header_message_.mesh();
    blob_ = SerializeSubmissionMessage(message, SubmissionFormat::kBinary);
    TP_ASSIGN_OR_RETURN(Submission submission, SubmissionFromProto(message));
    TP_ASSIGN_OR_RETURN(CompiledModel compiled, CompileForward(submission));
    submission_ = std::make_shared<const Submission>(std::move(submission));
    compiled_ = std::make_shared<const CompiledModel>(std::move(compiled));
    return absl::OkStatus();
  }

  void End(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    Finish(ToGrpcStatus(status));
  }

  const ServiceContext context_;
  v1::SubmitResponse* response_;
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<SubmitCall> self_;
  v1::SubmitRequest request_;
  v1::SubmitHeader header_message_;
  bool header_ = false, compiling_ = false;
  std::unique_ptr<ChunkAssembler> bytes_;
  // Of the pool, then of the core's thread.
  std::shared_ptr<const Submission> submission_;
  std::shared_ptr<const CompiledModel> compiled_;
  std::string blob_;
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
};

}  // namespace

grpc::ServerReadReactor<v1::SubmitRequest>* CoordinatorService::Submit(grpc::CallbackServerContext*,
                                                                       v1::SubmitResponse* response) {
  auto call = std::make_shared<SubmitCall>(context_, response);
  call->Start();
  return call.get();
}

}  // namespace tp::server
