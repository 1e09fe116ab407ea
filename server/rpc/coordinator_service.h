// CoordinatorService: what clients call. Queries and deletes are here; the streams have a file each (submit_call.cc,
// forward_call.cc, generate_call.cc, watch_call.cc). Example: builder.RegisterService(&service);
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
