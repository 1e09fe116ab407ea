// HttpServer: the one HTTP server, plain and read-only: GET and HEAD of a few paths; no files, no folders. A connection
// serves one request. Example:
//   auto server = *HttpServer::Start("127.0.0.1:0", {{"/livez", [](const HttpRequest&) { return HttpResponse{.body =
//   "ok\n"}; }}}); server->port();
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tp {

struct HttpRequest {
  std::string method;  // "GET" or "HEAD"
  std::string path;    // decoded, without the query
  std::string query;   // as it was sent; "" = none
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
};

// Called from the server's threads, several at once. Must not throw.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
using HttpHandlers = std::map<std::string, HttpHandler>;  // by path, "/metrics"

struct HttpServerOptions {
  int threads = 32;                                   // connections that are served at once; others wait
  absl::Duration request_timeout = absl::Seconds(1);  // from the connection to the end of the request's headers
  int max_request_bytes = 8 << 10;                    // request line and headers
};

// Thread-safe.
class HttpServer {
 public:
  // Serves `handlers` at exactly `address` ("HOST:PORT"; port 0 = any). Other paths are answered with 404, other
  // methods with 405, requests over the limits with an error or a closed connection. INVALID_ARGUMENT for text that is
  // no address, UNAVAILABLE where it can't be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, HttpHandlers handlers,
                                                           const HttpServerOptions& options = {});
  // Waits for the requests that are being served.
  ~HttpServer();
  int port() const;
  // "HOST:PORT" with the port that was given.
  const std::string& endpoint() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tp
