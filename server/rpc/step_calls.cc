// A submit step by step: CreateModel (a stream), InitStates and Parallelize (compiled on the pool).
#include <functional>
#include <memory>
#include <utility>

#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/model/flatten.h"
#include "common/program/compile.h"
#include "common/program/sources.h"
#include "common/proto_convert/layout.h"
#include "server/rpc/describe.h"
#include "server/rpc/submission_upload.h"

namespace tp::server {
namespace {

class CreateModelCall : public SubmissionUpload<v1::CreateModelRequest, v1::CreateModelHeader> {
 public:
  CreateModelCall(const ServiceContext& context, v1::CreateModelResponse* response)
      : SubmissionUpload(context), response_(response) {}

 private:
  absl::StatusOr<std::optional<Event>> MakeEvent(v1::Submission message) override {
    TP_ASSIGN_OR_RETURN(Submission submission, SubmissionFromProto(message));
    TP_RETURN_IF_ERROR(FlattenModel(submission.model, submission.compute_dtype).status());
    CreateModelRequested event;
    event.call = id();
    event.request_id = header().request_id();
    event.digest = "create " + Sha256Hex(SerializeSubmissionMessage(message, SubmissionFormat::kBinary));
    event.submission = std::make_shared<const Submission>(std::move(submission));
    return Event(std::move(event));
  }

  void Answer(const std::string& name, const ModelState* model) override {
    response_->mutable_model()->set_name(name);
    if (model != nullptr) *response_->mutable_model() = Summary(*model);
  }

  v1::CreateModelResponse* response_;
};

// A unary call that a SubmitReply ends. It goes on where the client leaves, but for what it loads.
class StepCall : public grpc::ServerUnaryReactor, public CallSink, public std::enable_shared_from_this<StepCall> {
 public:
  using Fill = std::function<void(const SubmitReply&, const ModelState&)>;
  StepCall(const ServiceContext& context, Fill fill) : context_(context), fill_(std::move(fill)) {}

  void Start() { self_ = shared_from_this(); }
  void Post(Event event) {
    context_.loop->Run([self = self_](const Core&) { self->context_.dispatcher->AddCall(self->id_, self); });
    context_.loop->Post(std::move(event));
  }
  void End(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnCancel() override { context_.loop->Post(CallCancelled{id_}); }
  void OnDone() override { self_.reset(); }

  // On the core's thread.
  void OnSubmit(const SubmitReply& reply, const Core& core) override {
    const auto it = core.models().find(reply.name);
    if (reply.status.ok() && it != core.models().end()) fill_(reply, it->second);
    End(reply.status);
  }

  const ServiceContext& context() const { return context_; }
  CallId id() const { return id_; }

 private:
  const ServiceContext context_;
  const RunningCall running_{context_};
  const Fill fill_;
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<StepCall> self_;
};

// On the pool: the model with the plan that was asked for, compiled.
absl::StatusOr<ParallelizeRequested> CompileStep(const v1::ParallelizeRequest& request,
                                                 std::shared_ptr<const Submission> base) {
  Submission submission = *base;
  if (request.has_plan()) {
    TP_ASSIGN_OR_RETURN(submission.plan, PlanFromProto(request.plan(), "plan"));
  }
  if (request.has_mesh()) {
    TP_ASSIGN_OR_RETURN(const Mesh mesh, MeshFromProto(request.mesh(), "mesh"));
    submission.plan.mesh = mesh.axes();
  }
  TP_ASSIGN_OR_RETURN(CompiledModel compiled, CompileForward(submission));
  ParallelizeRequested event;
  event.request_id = request.request_id();
  event.digest = "parallelize " + Sha256Hex(request.SerializeAsString());
  event.name = request.name();
  event.base = std::move(base);
  event.blob = SerializeSubmission(submission, SubmissionFormat::kBinary);
  event.submission = std::make_shared<const Submission>(std::move(submission));
  event.compiled = std::make_shared<const CompiledModel>(std::move(compiled));
  return event;
}

}  // namespace

grpc::ServerReadReactor<v1::CreateModelRequest>* CoordinatorService::CreateModel(grpc::CallbackServerContext*,
                                                                                 v1::CreateModelResponse* response) {
  auto call = std::make_shared<CreateModelCall>(context_, response);
  call->Start();
  return call.get();
}

grpc::ServerUnaryReactor* CoordinatorService::InitStates(grpc::CallbackServerContext*,
                                                         const v1::InitStatesRequest* request,
                                                         v1::InitStatesResponse* response) {
  auto call = std::make_shared<StepCall>(context_, [response](const SubmitReply&, const ModelState& model) {
    *response->mutable_model() = Summary(model);
  });
  call->Start();
  context_.loop->Run([call, request](const Core& core) {
    const auto it = core.models().find(request->name());
    if (it == core.models().end()) return call->End(NoSuchModel(core, request->name()));
    call->context().pool->Add([call, request, submission = it->second.submission] {
      const absl::StatusOr<FlatModel> flat = FlattenModel(submission->model, submission->compute_dtype);
      const absl::Status complete = flat.ok() ? CheckInitializers(*submission, *flat) : flat.status();
      if (!complete.ok()) return call->End(complete);
      InitStatesRequested event;
      event.call = call->id();
      event.request_id = request->request_id();
      event.digest = "init " + request->name();
      event.name = request->name();
      call->Post(std::move(event));
    });
  });
  return call.get();
}

grpc::ServerUnaryReactor* CoordinatorService::Parallelize(grpc::CallbackServerContext*,
                                                          const v1::ParallelizeRequest* request,
                                                          v1::ParallelizeResponse* response) {
  auto call = std::make_shared<StepCall>(context_, [response](const SubmitReply&, const ModelState& model) {
    *response->mutable_model() = Summary(model);
    for (const std::string& warning : model.compiled->warnings) response->add_warnings(warning);
  });
  call->Start();
  context_.loop->Run([call, request](const Core& core) {
    const auto it = core.models().find(request->name());
    if (it == core.models().end()) return call->End(NoSuchModel(core, request->name()));
    const bool placed = it->second.compiled != nullptr;
    call->context().pool->Add([call, request, placed, base = it->second.submission] {
      absl::StatusOr<ParallelizeRequested> event = CompileStep(*request, base);
      // A repeated request gets its first answer from the core; any other second call is told what it is.
      if (!event.ok()) return call->End(placed ? AlreadyParallelized(request->name()) : event.status());
      event->call = call->id();
      call->Post(*std::move(event));
    });
  });
  return call.get();
}

}  // namespace tp::server
