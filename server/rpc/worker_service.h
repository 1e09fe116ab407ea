// WorkerService: command streams and data transfers of workers. Example: builder.RegisterService(&service);
#pragma once

#include "server/rpc/services.h"
#include "tp/v1/worker.grpc.pb.h"

namespace tp::server {

// Thread-safe.
class WorkerService : public v1::WorkerService::CallbackService {
 public:
  explicit WorkerService(ServiceContext context) : context_(std::move(context)) {}
  grpc::ServerBidiReactor<v1::CommandsRequest, v1::CommandsResponse>* Commands(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::DataRequest, v1::DataResponse>* Data(grpc::CallbackServerContext* context) override;

 private:
  const ServiceContext context_;
};

// The reactor of one transfer (data_stream.cc).
grpc::ServerBidiReactor<v1::DataRequest, v1::DataResponse>* NewDataReactor(const ServiceContext& context);

}  // namespace tp::server
