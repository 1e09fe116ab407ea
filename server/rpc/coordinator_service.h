// CoordinatorService: what clients call. Queries and deletes of models are in coordinator_service.cc, unary calls about
// named meshes and tensors in tensor_calls.cc; a submit step by step in step_calls.cc; the streams have a file each
// (submit_call.cc, forward_call.cc, generate_call.cc, watch_call.cc, put_call.cc, get_call.cc). Example:
// builder.RegisterService(&service);
#pragma once

#include "server/rpc/services.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::server {

// Thread-safe.
class CoordinatorService : public v1::CoordinatorService::CallbackService {
 public:
  explicit CoordinatorService(ServiceContext context) : context_(std::move(context)) {}

  grpc::ServerReadReactor<v1::SubmitRequest>* Submit(grpc::CallbackServerContext* context,
                                                     v1::SubmitResponse* response) override;
  grpc::ServerReadReactor<v1::CreateModelRequest>* CreateModel(grpc::CallbackServerContext* context,
                                                               v1::CreateModelResponse* response) override;
  grpc::ServerUnaryReactor* InitStates(grpc::CallbackServerContext* context, const v1::InitStatesRequest* request,
                                       v1::InitStatesResponse* response) override;
  grpc::ServerUnaryReactor* Parallelize(grpc::CallbackServerContext* context, const v1::ParallelizeRequest* request,
                                        v1::ParallelizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteModel(grpc::CallbackServerContext* context, const v1::DeleteModelRequest* request,
                                        v1::DeleteModelResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchModelResponse>* WatchModel(grpc::CallbackServerContext* context,
                                                               const v1::WatchModelRequest* request) override;
  grpc::ServerBidiReactor<v1::ForwardRequest, v1::ForwardResponse>* Forward(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* CreateMesh(grpc::CallbackServerContext* context, const v1::CreateMeshRequest* request,
                                       v1::CreateMeshResponse* response) override;
  grpc::ServerUnaryReactor* ListMeshes(grpc::CallbackServerContext* context, const v1::ListMeshesRequest* request,
                                       v1::ListMeshesResponse* response) override;
  grpc::ServerUnaryReactor* DeleteMesh(grpc::CallbackServerContext* context, const v1::DeleteMeshRequest* request,
                                       v1::DeleteMeshResponse* response) override;
  grpc::ServerReadReactor<v1::PutTensorRequest>* PutTensor(grpc::CallbackServerContext* context,
                                                           v1::PutTensorResponse* response) override;
  grpc::ServerUnaryReactor* CreateTensor(grpc::CallbackServerContext* context, const v1::CreateTensorRequest* request,
                                         v1::CreateTensorResponse* response) override;
  grpc::ServerUnaryReactor* RedistributeTensor(grpc::CallbackServerContext* context,
                                               const v1::RedistributeTensorRequest* request,
                                               v1::RedistributeTensorResponse* response) override;
  grpc::ServerWriteReactor<v1::GetTensorResponse>* GetTensor(grpc::CallbackServerContext* context,
                                                             const v1::GetTensorRequest* request) override;
  grpc::ServerUnaryReactor* DescribeTensor(grpc::CallbackServerContext* context,
                                           const v1::DescribeTensorRequest* request,
                                           v1::DescribeTensorResponse* response) override;
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* context, const v1::ListTensorsRequest* request,
                                        v1::ListTensorsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context, const v1::DeleteTensorRequest* request,
                                         v1::DeleteTensorResponse* response) override;
  grpc::ServerUnaryReactor* SaveTensors(grpc::CallbackServerContext* context, const v1::SaveTensorsRequest* request,
                                        v1::SaveTensorsResponse* response) override;
  grpc::ServerUnaryReactor* LoadTensors(grpc::CallbackServerContext* context, const v1::LoadTensorsRequest* request,
                                        v1::LoadTensorsResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context, const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  const ServiceContext context_;
};

// "model 'x': no such model; there are a, b".
absl::Status NoSuchModel(const Core& core, const std::string& name);

}  // namespace tp::server
