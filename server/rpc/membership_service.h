// MembershipService: sessions of workers. A broken session loses the worker. Example:
// builder.RegisterService(&service);
#pragma once

#include "server/rpc/services.h"
#include "tp/v1/membership.grpc.pb.h"

namespace tp::server {

// Thread-safe.
class MembershipService : public v1::MembershipService::CallbackService {
 public:
  explicit MembershipService(ServiceContext context) : context_(std::move(context)) {}
  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  const ServiceContext context_;
};

}  // namespace tp::server
