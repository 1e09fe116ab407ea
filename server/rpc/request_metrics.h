// Counts every call of CoordinatorService, by method and status, whatever kind of call it is. Example:
//   rpc_options.interceptor = [&] { return NewRequestMetrics(&metrics); };
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <vector>

#include "server/metrics/coordinator_metrics.h"

namespace tp::server {

// "Submit", "Forward", ...: the service's methods, in the order of coordinator.proto.
std::vector<std::string> CoordinatorRpcs();

// `metrics` outlives the server; made with CoordinatorRpcs(). Other services' calls pass untouched.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewRequestMetrics(CoordinatorMetrics* metrics);

}  // namespace tp::server
