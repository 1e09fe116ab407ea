// Channels to a Tensorplane server: keepalive, message limits, reconnecting with backoff, a connection of their own.
// Example: auto stub = v1::CoordinatorService::NewStub(CreateChannel("127.0.0.1:7050"));
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/tls_files.h"

namespace tp {

struct ChannelOptions {
  absl::Duration keepalive = absl::Seconds(2);  // between pings, and for each answer
  int max_receive_bytes = 256 << 20;            // a worker's program, a long description
  TlsFiles tls = {};                            // plain text where none is named; CheckTls told what is wrong
};

// The channel has its own connection: two channels to one server never share one. Does not block; connects when used.
// Proxies of the environment are not used.
std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target, const ChannelOptions& options = {});

// gRPC's own log is off unless GRPC_VERBOSITY is set: our errors say what it would. Call it first in main().
void QuietGrpcLog();

// "HOST:PORT" with a port in 0..65535. INVALID_ARGUMENT with the text otherwise.
absl::Status ValidateHostPort(const std::string& address);
// 127.x.x.x, ::1 or localhost.
bool IsLoopback(const std::string& address);

// The status of a call, with what a failed handshake may come from where its text lets that be guessed.
absl::Status WithTlsHint(const absl::Status& status, const TlsFiles& tls);

// The one place that chooses credentials: TLS where files are named, plain text where none is. Files that can't be read
// never end in plain text: the handshake fails.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const TlsFiles& tls);
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFiles& tls);

}  // namespace tp
