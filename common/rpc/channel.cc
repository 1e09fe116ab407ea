#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/hosts.h"
#include "common/base/names.h"

namespace tp {
namespace {

std::string TextOf(const std::string& path) {
  std::stringstream text;
  if (!path.empty()) text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target, const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  const int keepalive_ms = static_cast<int>(absl::ToInt64Milliseconds(options.keepalive));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetMaxReceiveMessageSize(options.max_receive_bytes);
  return grpc::CreateCustomChannel(target, MakeChannelCredentials(options.tls), arguments);
}

void QuietGrpcLog() { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); }

absl::Status ValidateHostPort(const std::string& address) {
  size_t colon = address.rfind(':');
  int port = -1;
  const bool words = colon != std::string::npos && colon > 0 &&
                     address.find_first_not_of("0123456789", colon + 1) == std::string::npos &&
                     std::none_of(address.begin(), address.end(), [](char c) { return c >= 0 && c <= ' '; });
  if (!words || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", Cut(address), "' is not HOST:PORT, with a port up to 65535"));
  }
  return absl::OkStatus();
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return IsLoopbackHost(host);
}

absl::Status WithTlsHint(const absl::Status& status, const TlsFiles& tls) {
  const absl::string_view text = status.message();
  const char* hint = "";
  if (absl::StrContains(text, "wrong version number")) {
    hint = "; it serves plain text, where TLS was asked for";
  } else if (absl::StrContains(text, "certificate verify failed")) {
    hint = "; its certificate is not of the authority of --tls-ca";
  } else if (absl::StrContains(text, "Socket closed")) {
    hint = !tls.any() ? "; if it serves TLS: --tls-ca, and --tls-cert and --tls-key where it asks for a certificate"
           : tls.cert.empty() ? "; if it asks for a certificate: --tls-cert and --tls-key"
                              : "; it may not trust the certificate that was shown";
  }
  return absl::Status(status.code(), absl::StrCat(text, hint));
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const TlsFiles& tls) {
  if (!tls.any()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = TextOf(tls.ca);
  options.pem_cert_chain = TextOf(tls.cert);
  options.pem_private_key = TextOf(tls.key);
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFiles& tls) {
  if (!tls.any()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(tls.ca.empty()
                                                ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = TextOf(tls.ca);
  options.pem_key_cert_pairs.push_back({TextOf(tls.key), TextOf(tls.cert)});
  return grpc::SslServerCredentials(options);
}

}  // namespace tp
