// RpcServer: owner of a gRPC server with health, reflection and keepalive. Example:
//   auto server = *RpcServer::Start("127.0.0.1:0", {&service});   server->port() is the one that was given
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/tls_files.h"

namespace tp {

struct RpcServerOptions {
  absl::Duration keepalive = absl::Seconds(2);
  int max_receive_bytes = 8 << 20;  // every payload over 1 MiB travels in chunks
  TlsFiles tls = {};                // plain text where none is named
  // Makes what sees every call; nothing = none.
  std::function<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>()> interceptor = {};
};

// Thread-safe.
class RpcServer {
 public:
  // Serves `services` (not owned) at `address` ("HOST:PORT"; port 0 = any). UNAVAILABLE where the address can't be
  // bound; errors of CheckTls.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& address,
                                                          const std::vector<grpc::Service*>& services,
                                                          const RpcServerOptions& options = {});
  ~RpcServer();
  int port() const { return port_; }
  // What grpc.health.v1 answers for every service.
  void SetServing(bool serving);
  // Takes no new calls, waits `grace` for the running ones, then cancels them. Blocks until all have ended.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server, int port) : server_(std::move(server)), port_(port) {}
  std::unique_ptr<grpc::Server> server_;
  int port_;
};

}  // namespace tp
