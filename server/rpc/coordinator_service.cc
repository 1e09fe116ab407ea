#include "server/rpc/coordinator_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/proto_convert/submission_file.h"
#include "common/rpc/status.h"
#include "server/rpc/describe.h"

namespace tp::server {
namespace {

constexpr size_t kMaxReturnedSubmission = size_t{3} << 20;

class DeleteCall : public CallSink {
 public:
  DeleteCall(const ServiceContext& context, grpc::ServerUnaryReactor* reactor) : running_(context), reactor_(reactor) {}
  void OnDelete(const DeleteReply& reply) override { reactor_->Finish(ToGrpcStatus(reply.status)); }

 private:
  const RunningCall running_;
  grpc::ServerUnaryReactor* reactor_;  // lives until Finish
};

}  // namespace

absl::Status NoSuchModel(const Core& core, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, model] : core.models()) names.push_back(known);
  return absl::NotFoundError(
      absl::StrCat("no model '", Cut(name, 128), "'; ",
                   names.empty() ? "there are none" : absl::StrCat("nearest: ", JoinNames(NearestNames(name, names)))));
}

grpc::ServerUnaryReactor* CoordinatorService::GetModel(grpc::CallbackServerContext* context,
                                                       const v1::GetModelRequest* request,
                                                       v1::GetModelResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([this, request, response, reactor](const Core& core) {
    auto it = core.models().find(request->name());
    if (it == core.models().end()) {
      reactor->Finish(ToGrpcStatus(NoSuchModel(core, request->name())));
      return;
    }
    *response->mutable_model() = Summary(it->second);
    context_.pool->Add([model = it->second, request, response, reactor] {
      Describe(model, response);
      if (request->include_submission() && model.submission != nullptr) {
        std::string bytes = SerializeSubmission(*model.submission, SubmissionFormat::kBinary);
        if (bytes.size() > kMaxReturnedSubmission) {
          reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(
              absl::StrCat("submission of ", bytes.size(), " bytes is over the limit of ", kMaxReturnedSubmission))));
          return;
        }
        response->set_submission(std::move(bytes));
      }
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ListModels(grpc::CallbackServerContext* context,
                                                         const v1::ListModelsRequest*,
                                                         v1::ListModelsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([response, reactor](const Core& core) {
    for (const auto& [name, model] : core.models()) *response->add_models() = Summary(model);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::DeleteModel(grpc::CallbackServerContext* context,
                                                          const v1::DeleteModelRequest* request,
                                                          v1::DeleteModelResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const CallId id = context_.loop->NewCall();
  context_.loop->Run([dispatcher = context_.dispatcher, id, call = std::make_shared<DeleteCall>(context_, reactor)](
                         const Core&) { dispatcher->AddCall(id, call); });
  context_.loop->Post(DeleteRequested{id, request->request_id(), request->name()});
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ListWorkers(grpc::CallbackServerContext* context,
                                                          const v1::ListWorkersRequest*,
                                                          v1::ListWorkersResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([response, reactor](const Core& core) {
    for (const auto& [id, worker] : core.workers()) *response->add_workers() = DescribeWorker(worker, core);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::GetStatus(grpc::CallbackServerContext* context,
                                                        const v1::GetStatusRequest*, v1::GetStatusResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([this, response, reactor](const Core& core) {
    response->set_version(context_.version);
    response->set_term(core.options().term);
    int healthy = 0, ready = 0;
    for (const auto& [id, worker] : core.workers()) healthy += worker.healthy ? 1 : 0;
    for (const auto& [name, model] : core.models()) ready += model.phase == ModelPhase::kReady ? 1 : 0;
    response->set_workers_healthy(healthy);
    response->set_workers(static_cast<int32_t>(core.workers().size()));
    response->set_models_ready(ready);
    response->set_models(static_cast<int32_t>(core.models().size()));
    response->set_requests(core.running_calls());
    response->set_meshes(static_cast<int32_t>(core.named_meshes().size()));
    response->set_tensors(static_cast<int32_t>(core.tensors().size()));
    response->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(context_.clock->Now() - context_.started)));
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace tp::server
