// A call that uploads a submission: a header and chunks up; parsed on the pool; then an event for the core, whose
// SubmitReply ends the call. SubmitCall and CreateModelCall say what they make of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/model.h"
#include "common/proto_convert/submission_file.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "server/coordinator/worker_kinds.h"
#include "server/rpc/coordinator_service.h"

namespace tp::server {

// Request: a message with `header` (size_bytes, name) and `chunk`. `Header`: its header's type.
template <typename Request, typename Header>
class SubmissionUpload : public grpc::ServerReadReactor<Request>,
                         public CallSink,
                         public std::enable_shared_from_this<SubmissionUpload<Request, Header>> {
 public:
  explicit SubmissionUpload(const ServiceContext& context) : context_(context) {}

  void Start() {
    self_ = this->shared_from_this();
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!complete_) {
        End(absl::InvalidArgumentError(has_header_ ? absl::StrCat("submission ended early: ", bytes_->Missing())
                                                   : "the first message must be a header"));
      }
      return;
    }
    absl::Status status = Take();
    if (!status.ok()) {
      End(status);
      return;
    }
    if (bytes_->done() && !complete_) {
      complete_ = true;
      context_.loop->Run([self = this->shared_from_this()](const Core& core) {
        const DType compute_dtype = DefaultComputeDType(core.workers());
        self->context_.pool->Add([self, compute_dtype] { self->Work(compute_dtype); });
      });
    }
    this->StartRead(&request_);
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
      Answer(reply.name, it == core.models().end() ? nullptr : &it->second);
    }
    this->Finish(ToGrpcStatus(reply.status));
  }

 protected:
  // On the pool: what the core is to do; nullopt where the call is answered without it, by AnswerAlone().
  virtual absl::StatusOr<std::optional<Event>> MakeEvent(v1::Submission message) = 0;
  virtual void AnswerAlone() {}
  // Fills the response; nullptr where the model is gone again.
  virtual void Answer(const std::string& name, const ModelState* model) = 0;

  const Header& header() const { return header_; }
  CallId id() const { return id_; }

 private:
  absl::Status Take() {
    if (!has_header_) {
      if (!request_.has_header()) return absl::InvalidArgumentError("the first message must be a header");
      has_header_ = true;
      header_ = std::move(*request_.mutable_header());
      if (header_.size_bytes() > static_cast<uint64_t>(context_.limits.submission_bytes)) {
        return absl::ResourceExhaustedError(absl::StrCat("header.size_bytes: ", header_.size_bytes(),
                                                         " is over the limit of ", context_.limits.submission_bytes,
                                                         " bytes of a submission"));
      }
      bytes_ = std::make_unique<ChunkAssembler>(std::vector<uint64_t>{header_.size_bytes()});
      return absl::OkStatus();
    }
    if (!request_.has_chunk()) return absl::InvalidArgumentError("only chunks may follow the header");
    if (complete_) return absl::InvalidArgumentError("more bytes than header.size_bytes says");
    return bytes_->Add(request_.chunk());
  }

  // On the pool. `compute_dtype`: where the submission names none.
  void Work(DType compute_dtype) {
    {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
    }
    absl::StatusOr<std::optional<Event>> event = Parse(compute_dtype);
    if (!event.ok()) {
      End(event.status());
      return;
    }
    if (!event->has_value()) {
      absl::MutexLock lock(&mutex_);
      if (ended_) return;
      ended_ = true;
      AnswerAlone();
      this->Finish(grpc::Status::OK);
      return;
    }
    context_.loop->Run([self = this->shared_from_this(), event = **std::move(event)](const Core&) {
      absl::MutexLock lock(&self->mutex_);
      if (self->ended_) return;  // the client has gone: nothing of it is left behind
      self->context_.dispatcher->AddCall(self->id_, self);
      self->context_.loop->Post(event);
    });
  }

  absl::StatusOr<std::optional<Event>> Parse(DType compute_dtype) {
    const std::vector<std::string> arrays = bytes_->Take();
    TP_ASSIGN_OR_RETURN(v1::Submission message, ParseSubmissionMessage(arrays[0], SubmissionFormat::kBinary));
    if (!header_.name().empty()) message.set_name(header_.name());
    // Written down, so that what is stored does not depend on the workers of another day.
    if (message.compute_dtype() == v1::DATA_TYPE_UNSPECIFIED && compute_dtype == DType::kBF16) {
      message.set_compute_dtype(v1::BF16);
    }
    TP_RETURN_IF_ERROR(ValidateModelName(message.name(), "name"));
    return MakeEvent(std::move(message));
  }

  void End(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    this->Finish(ToGrpcStatus(status));
  }

  const ServiceContext context_;
  const RunningCall running_{context_};
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<SubmissionUpload> self_;
  Request request_;
  Header header_;
  bool has_header_ = false, complete_ = false;
  std::unique_ptr<ChunkAssembler> bytes_;
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
};

}  // namespace tp::server
