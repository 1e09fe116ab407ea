#include "common/http/http_server.h"

#include <civetweb.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/log.h"
#include "common/base/status.h"

namespace tp {
namespace {

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : status < 500 ? "Bad Request" : "Internal Server Error";
  }
}

// civetweb takes a list of ports with letters for options: only what is surely one address may reach it.
absl::Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  bool valid = colon != std::string::npos && colon > 0 && colon + 1 < address.size();
  for (size_t i = 0; valid && i < address.size(); ++i) {
    const char c = address[i];
    valid = i > colon ? absl::ascii_isdigit(c)
                      : absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' ||
                            (c == '[' && i == 0) || (c == ']' && i + 1 == colon);
  }
  if (valid && address.find(':') < colon) valid = address[0] == '[' && address[colon - 1] == ']';
  if (valid && absl::SimpleAtoi(address.substr(colon + 1), &port) && port <= 65535) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not HOST:PORT"));
}

// Dials "HOST:PORT" and hangs up.
void Knock(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  std::string host = endpoint.substr(0, colon);
  if (host[0] == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  if (getaddrinfo(host.c_str(), endpoint.c_str() + colon + 1, &hints, &addresses) != 0) return;
  const int dialled = socket(addresses->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (dialled >= 0) {
    connect(dialled, addresses->ai_addr, addresses->ai_addrlen);
    close(dialled);
  }
  freeaddrinfo(addresses);
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(HttpHandlers handlers) : handlers_(std::move(handlers)) { mg_init_library(0); }
  ~Impl() {
    if (context_ != nullptr) Stop();
    mg_exit_library();
  }

  absl::Status Start(const std::string& address, const HttpServerOptions& options) {
    const std::string threads = absl::StrCat(options.threads);
    const std::string timeout = absl::StrCat(absl::ToInt64Milliseconds(options.request_timeout));
    const std::string bytes = absl::StrCat(options.max_request_bytes);
    // No document_root: there are no files.
    std::vector<const char*> settings{"listening_ports",
                                      address.c_str(),
                                      "num_threads",
                                      threads.c_str(),
                                      "request_timeout_ms",
                                      timeout.c_str(),
                                      "max_request_size",
                                      bytes.c_str(),
                                      "enable_directory_listing",
                                      "no",
                                      "enable_keep_alive",
                                      "no",
                                      "listen_backlog",
                                      "64",
                                      "connection_queue",
                                      "32",
                                      nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = [](mg_connection* connection) {
      return static_cast<Impl*>(mg_get_user_data(mg_get_context(connection)))->Serve(connection);
    };
    callbacks.log_message = [](const mg_connection*, const char* message) {
      Log(LogLevel::kDebug, absl::StrCat("http: ", message));
      return 1;
    };
    char text[256] = "";
    mg_error_data error{};
    error.text = text;
    error.text_buffer_size = sizeof(text);
    mg_init_data init{};
    init.callbacks = &callbacks;
    init.user_data = this;
    init.configuration_options = settings.data();
    context_ = mg_start2(&init, &error);
    mg_server_port ports[4]{};
    if (context_ == nullptr || mg_get_server_ports(context_, 4, ports) < 1) {
      return absl::UnavailableError(
          absl::StrCat("can't listen on ", address, ": the address is in use or not this host's"));
    }
    port_ = ports[0].port;
    endpoint_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port_);
    return absl::OkStatus();
  }

  int port() const { return port_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  // The library looks for its end when somebody connects, or every 2 s.
  void Stop() {
    absl::Notification stopped;
    std::thread stop([&] {
      mg_stop(context_);
      stopped.Notify();
    });
    do {
      if (!endpoint_.empty()) Knock(endpoint_);
    } while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(10)));
    stop.join();
  }

  // The status that was sent: the server does nothing else with the request.
  int Serve(mg_connection* connection) const {
    const mg_request_info* info = mg_get_request_info(connection);
    HttpRequest request;
    request.method = info->request_method == nullptr ? "" : info->request_method;
    request.path = info->local_uri == nullptr ? "" : info->local_uri;
    request.query = info->query_string == nullptr ? "" : info->query_string;
    HttpResponse response;
    std::string more;
    const auto handler = handlers_.find(request.path);
    if (handler == handlers_.end()) {
      response = {.status = 404, .body = "not found\n"};
    } else if (request.method != "GET" && request.method != "HEAD") {
      response = {.status = 405, .body = "only GET and HEAD\n"};
      more = "Allow: GET, HEAD\r\n";
    } else {
      response = handler->second(request);
    }
    std::string message =
        absl::StrCat("HTTP/1.1 ", response.status, " ", ReasonOf(response.status),
                     "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size(), "\r\n",
                     more, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
    if (request.method != "HEAD") message += response.body;
    mg_write(connection, message.data(), message.size());
    return response.status;
  }

  const HttpHandlers handlers_;
  mg_context* context_ = nullptr;
  int port_ = 0;
  std::string endpoint_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
const std::string& HttpServer::endpoint() const { return impl_->endpoint(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, HttpHandlers handlers,
                                                              const HttpServerOptions& options) {
  TP_RETURN_IF_ERROR(CheckAddress(address));
  auto impl = std::make_unique<Impl>(std::move(handlers));
  TP_RETURN_IF_ERROR(impl->Start(address, options));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace tp
