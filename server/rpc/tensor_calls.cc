// Unary calls about named meshes and tensors: a request to the core, its answer to the client.
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/describe.h"
#include "server/rpc/tensor_requests.h"

namespace tp::server {
namespace {

// Finishes with the core's answer, which comes even where the client has gone.
class OperationCall : public grpc::ServerUnaryReactor,
                      public CallSink,
                      public std::enable_shared_from_this<OperationCall> {
 public:
  using Fill = std::function<void(const OperationReply&, const Core&)>;
  OperationCall(const ServiceContext& context, Fill fill) : context_(context), fill_(std::move(fill)) {}

  template <typename RequestEvent>
  void Start(absl::StatusOr<RequestEvent> event) {
    self_ = shared_from_this();
    if (!event.ok()) {
      Finish(ToGrpcStatus(event.status()));
      return;
    }
    event->head.call = id_;
    context_.loop->Run([self = self_](const Core&) { self->context_.dispatcher->AddCall(self->id_, self); });
    context_.loop->Post(*std::move(event));
  }

  void OnCancel() override { context_.loop->Post(CallCancelled{id_}); }
  void OnDone() override { self_.reset(); }

  // On the core's thread.
  void OnOperation(const OperationReply& reply, const Core& core) override {
    if (reply.status.ok()) fill_(reply, core);
    Finish(ToGrpcStatus(reply.status));
  }

 private:
  const ServiceContext context_;
  const RunningCall running_{context_};
  const Fill fill_;
  const CallId id_ = context_.loop->NewCall();
  std::shared_ptr<OperationCall> self_;
};

template <typename Request>
grpc::ServerUnaryReactor* StartCall(const ServiceContext& context, const Request& request, OperationCall::Fill fill) {
  auto call = std::make_shared<OperationCall>(context, std::move(fill));
  grpc::ServerUnaryReactor* reactor = call.get();
  call->Start(RequestFromProto(request));
  return reactor;
}

// The one tensor of an answer.
void FillTensor(const OperationReply& reply, v1::TensorDescription* tensor) {
  if (!reply.tensors.empty()) *tensor = DescriptionOf(reply.tensors[0]);
}

void CountsToProto(const std::vector<StepCount>& counts,
                   google::protobuf::RepeatedPtrField<v1::RedistributeStepCount>* proto) {
  for (const StepCount& count : counts) {
    v1::RedistributeStepCount* added = proto->Add();
    added->set_op(count.op);
    added->set_axis(count.axis);
    added->set_bytes(static_cast<uint64_t>(count.bytes));
  }
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorService::CreateMesh(grpc::CallbackServerContext*,
                                                         const v1::CreateMeshRequest* request,
                                                         v1::CreateMeshResponse* response) {
  return StartCall(context_, *request, [response](const OperationReply& reply, const Core& core) {
    const auto it = core.named_meshes().find(reply.mesh);
    if (it != core.named_meshes().end()) *response->mutable_mesh() = DescriptionOf(it->second, core);
  });
}

grpc::ServerUnaryReactor* CoordinatorService::DeleteMesh(grpc::CallbackServerContext*,
                                                         const v1::DeleteMeshRequest* request,
                                                         v1::DeleteMeshResponse*) {
  return StartCall(context_, *request, [](const OperationReply&, const Core&) {});
}

grpc::ServerUnaryReactor* CoordinatorService::CreateTensor(grpc::CallbackServerContext*,
                                                           const v1::CreateTensorRequest* request,
                                                           v1::CreateTensorResponse* response) {
  return StartCall(context_, *request, [response](const OperationReply& reply, const Core&) {
    FillTensor(reply, response->mutable_tensor());
  });
}

grpc::ServerUnaryReactor* CoordinatorService::RedistributeTensor(grpc::CallbackServerContext*,
                                                                 const v1::RedistributeTensorRequest* request,
                                                                 v1::RedistributeTensorResponse* response) {
  return StartCall(context_, *request, [response](const OperationReply& reply, const Core&) {
    FillTensor(reply, response->mutable_tensor());
    CountsToProto(reply.steps, response->mutable_steps());
    CountsToProto(reply.counted, response->mutable_counted());
    response->set_wire_bytes(static_cast<uint64_t>(reply.wire_bytes));
    response->set_duration_us(static_cast<uint64_t>(reply.duration_us));
  });
}

grpc::ServerUnaryReactor* CoordinatorService::DeleteTensor(grpc::CallbackServerContext*,
                                                           const v1::DeleteTensorRequest* request,
                                                           v1::DeleteTensorResponse*) {
  return StartCall(context_, *request, [](const OperationReply&, const Core&) {});
}

grpc::ServerUnaryReactor* CoordinatorService::SaveTensors(grpc::CallbackServerContext*,
                                                          const v1::SaveTensorsRequest* request,
                                                          v1::SaveTensorsResponse* response) {
  return StartCall(context_, *request, [response](const OperationReply& reply, const Core&) {
    for (const std::string& file : reply.files) response->add_files(file);
    response->set_size_bytes(static_cast<uint64_t>(reply.size_bytes));
  });
}

grpc::ServerUnaryReactor* CoordinatorService::LoadTensors(grpc::CallbackServerContext*,
                                                          const v1::LoadTensorsRequest* request,
                                                          v1::LoadTensorsResponse* response) {
  return StartCall(context_, *request, [response](const OperationReply& reply, const Core&) {
    for (const TensorState& tensor : reply.tensors) *response->add_tensors() = DescriptionOf(tensor);
    response->set_bytes_read(static_cast<uint64_t>(reply.size_bytes));
  });
}

grpc::ServerUnaryReactor* CoordinatorService::ListMeshes(grpc::CallbackServerContext* context,
                                                         const v1::ListMeshesRequest*,
                                                         v1::ListMeshesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([response, reactor](const Core& core) {
    for (const auto& [name, mesh] : core.named_meshes()) *response->add_meshes() = DescriptionOf(mesh, core);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::ListTensors(grpc::CallbackServerContext* context,
                                                          const v1::ListTensorsRequest*,
                                                          v1::ListTensorsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([response, reactor](const Core& core) {
    for (const auto& [name, tensor] : core.tensors()) *response->add_tensors() = DescriptionOf(tensor);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorService::DescribeTensor(grpc::CallbackServerContext* context,
                                                             const v1::DescribeTensorRequest* request,
                                                             v1::DescribeTensorResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  context_.loop->Run([request, response, reactor](const Core& core) {
    const auto it = core.tensors().find(request->name());
    if (it == core.tensors().end()) {
      std::vector<std::string> names;
      for (const auto& [known, tensor] : core.tensors()) names.push_back(known);
      const std::string name = request->name().substr(0, 256);
      reactor->Finish(ToGrpcStatus(absl::NotFoundError(absl::StrCat(
          "name: no tensor '", name, "'; ",
          names.empty() ? "there are none" : absl::StrCat("nearest: ", JoinNames(NearestNames(name, names)))))));
      return;
    }
    *response->mutable_tensor() = DescriptionOf(it->second);
    DescribeShards(it->second, core, response);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace tp::server
