// Submit: compiled on the pool, then the core's.
#include <memory>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/program/compile.h"
#include "server/rpc/describe.h"
#include "server/rpc/submission_upload.h"

namespace tp::server {
namespace {

class SubmitCall : public SubmissionUpload<v1::SubmitRequest, v1::SubmitHeader> {
 public:
  SubmitCall(const ServiceContext& context, v1::SubmitResponse* response)
      : SubmissionUpload(context), response_(response) {}

 private:
  absl::StatusOr<std::optional<Event>> MakeEvent(v1::Submission message) override {
    if (header().has_mesh()) *message.mutable_plan()->mutable_mesh() = header().mesh();
    SubmitRequested event;
    event.blob = SerializeSubmissionMessage(message, SubmissionFormat::kBinary);
    TP_ASSIGN_OR_RETURN(Submission submission, SubmissionFromProto(message));
    TP_ASSIGN_OR_RETURN(CompiledModel compiled, CompileForward(submission));
    submission_ = std::make_shared<const Submission>(std::move(submission));
    compiled_ = std::make_shared<const CompiledModel>(std::move(compiled));
    if (header().dry_run() && !header().replace()) return std::nullopt;
    event.call = id();
    event.request_id = header().request_id();
    event.digest = Sha256Hex(header().replace() ? event.blob + " replaces" : event.blob);
    event.replace = header().replace();
    event.dry_run = header().dry_run();
    event.submission = submission_;
    event.compiled = compiled_;
    return Event(std::move(event));
  }

  void AnswerAlone() override {
    *response_->mutable_model() = DryRunSummary(*submission_, *compiled_);
    for (const std::string& warning : compiled_->warnings) response_->add_warnings(warning);
  }

  void Answer(const std::string& name, const ModelState* model) override {
    if (header().dry_run()) return AnswerAlone();
    response_->mutable_model()->set_name(name);
    if (model != nullptr) *response_->mutable_model() = Summary(*model);
    if (model != nullptr && header().replace()) DescribeTakenOver(*model, response_->mutable_taken_over());
    for (const std::string& warning : compiled_->warnings) response_->add_warnings(warning);
  }

  v1::SubmitResponse* response_;
  // Of the pool, then of the core's thread.
  std::shared_ptr<const Submission> submission_;
  std::shared_ptr<const CompiledModel> compiled_;
};

}  // namespace

grpc::ServerReadReactor<v1::SubmitRequest>* CoordinatorService::Submit(grpc::CallbackServerContext*,
                                                                       v1::SubmitResponse* response) {
  auto call = std::make_shared<SubmitCall>(context_, response);
  call->Start();
  return call.get();
}

}  // namespace tp::server
