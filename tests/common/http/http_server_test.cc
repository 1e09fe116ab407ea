#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/http/probes.h"

namespace tp {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// One TCP connection to 127.0.0.1; what is sent and read is bytes.
class Connection {
 public:
  explicit Connection(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  bool connected() const { return connected_; }
  // False where the server has gone.
  bool Send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }
  // Whether the server says something, or closes, within the milliseconds.
  bool Ended(int milliseconds) {
    pollfd wait{socket_, POLLIN, 0};
    return poll(&wait, 1, milliseconds) > 0;
  }
  // All until the server closes; "(no end)" after a generous limit.
  std::string ReadAll() {
    std::string text;
    char buffer[4096];
    while (true) {
      pollfd wait{socket_, POLLIN, 0};
      if (poll(&wait, 1, 60'000) <= 0) return text + "(no end)";
      const ssize_t count = recv(socket_, buffer, sizeof(buffer), 0);
      if (count <= 0) return text;
      text.append(buffer, static_cast<size_t>(count));
    }
  }

 private:
  const int socket_;
  bool connected_ = false;
};

HttpHandlers Hello() {
  return {{"/hello", [](const HttpRequest& request) {
             return HttpResponse{.body = absl::StrCat(request.method, " ", request.path, "?", request.query, "\n")};
           }}};
}

std::unique_ptr<HttpServer> StartHello(const HttpServerOptions& options = {}) {
  auto server = HttpServer::Start("127.0.0.1:0", Hello(), options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string Ask(int port, const std::string& bytes) {
  Connection connection(port);
  EXPECT_TRUE(connection.connected());
  connection.Send(bytes);
  return connection.ReadAll();
}

TEST(HttpServer, AGetIsAnsweredByThePathsHandler) {
  const auto server = StartHello();
  EXPECT_EQ(server->endpoint(), absl::StrCat("127.0.0.1:", server->port()));
  const std::string answer = Ask(server->port(), "GET /hello?a=1&b HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 17\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nGET /hello?a=1&b\n"));
}

TEST(HttpServer, AHeadHasTheHeadersOnly) {
  const auto server = StartHello();
  const std::string answer = Ask(server->port(), "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 13\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, UnknownPathsAreNotFound) {
  const auto server = StartHello();
  for (const char* path :
       {"/", "/hell", "/hello/", "/hello/x", "/../etc/passwd", "/%2e%2e/etc/passwd", "/etc/passwd"}) {
    const std::string answer = Ask(server->port(), absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 ")) << path;
    EXPECT_THAT(answer, EndsWith("\r\n\r\nnot found\n")) << path;
  }
}

TEST(HttpServer, OtherMethodsAreNotAllowed) {
  const auto server = StartHello();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const std::string answer =
        Ask(server->port(), absl::StrCat(method, " /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n")) << method;
  }
}

TEST(HttpServer, WhatIsNoRequestIsRefusedAndTheServerLives) {
  const auto server = StartHello();
  const std::string wrong[] = {
      "\r\n\r\n\r\n",
      "GET\r\n\r\n",
      "GET /hello\r\n\r\n",
      "GET /hello HTTP/9.9\r\n\r\n",
      "HELLO /hello HTTP/1.1\r\n\r\n",
      std::string("GET /he\0llo HTTP/1.1\r\n\r\n", 25),
      "GET hello HTTP/1.1\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15),
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET /hello HTTP/1.1\r\nno colon\r\n\r\n",
      "GET /hello HTTP/1.1\r\nTransfer-Encoding: nonsense\r\n\r\n",
  };
  for (const std::string& bytes : wrong) {
    const std::string answer = Ask(server->port(), bytes);
    EXPECT_THAT(answer, AnyOf(IsEmpty(), ContainsRegex("^HTTP/[0-9.]+ [45][0-9][0-9] "))) << bytes;
  }
  EXPECT_THAT(Ask(server->port(), "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, HeadersOverTheLimitAreRefused) {
  const auto server = StartHello({.max_request_bytes = 4096});
  const std::string fits(3000, 'x'), huge(1 << 20, 'x');
  EXPECT_THAT(Ask(server->port(), absl::StrCat("GET /hello HTTP/1.1\r\nX: ", fits, "\r\n\r\n")),
              StartsWith("HTTP/1.1 200 "));
  for (const std::string& bytes : {absl::StrCat("GET /hello HTTP/1.1\r\nX: ", huge, "\r\n\r\n"),
                                   absl::StrCat("GET /", huge, " HTTP/1.1\r\n\r\n")}) {
    EXPECT_THAT(Ask(server->port(), bytes), Not(HasSubstr(" 200 ")));
  }
  EXPECT_THAT(Ask(server->port(), "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

// Clients that send nothing, or a byte now and then, hold a thread for the request's time only.
TEST(HttpServer, SlowClientsAreCutOff) {
  const auto server = StartHello({.threads = 2, .request_timeout = absl::Milliseconds(300)});
  std::vector<std::unique_ptr<Connection>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<Connection>(server->port()));
    ASSERT_TRUE(slow.back()->connected());
    if (i % 2 == 0) slow.back()->Send("GET /hello HT");
  }
  EXPECT_THAT(Ask(server->port(), "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  for (const auto& connection : slow) EXPECT_THAT(connection->ReadAll(), Not(HasSubstr("(no end)")));
}

TEST(HttpServer, AClientThatDripsHeadersIsCutOff) {
  const auto server = StartHello({.threads = 1, .request_timeout = absl::Milliseconds(300)});
  Connection drips(server->port());
  ASSERT_TRUE(drips.Send("GET /hello HTTP/1.1\r\nX: "));
  int bytes = 0;
  while (!drips.Ended(20) && drips.Send("x")) ASSERT_LT(++bytes, 1000);
  EXPECT_THAT(Ask(server->port(), "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, RequestsAreServedAtOnce) {
  absl::Notification second;
  HttpHandlers handlers{{"/first",
                         [&](const HttpRequest&) {
                           second.WaitForNotification();  // a handler that waits does not keep others
                           return HttpResponse{.body = "first"};
                         }},
                        {"/second", [&](const HttpRequest&) {
                           second.Notify();
                           return HttpResponse{.status = 503, .body = "second"};
                         }}};
  const auto server = *HttpServer::Start("127.0.0.1:0", handlers);
  Connection first(server->port());
  first.Send("GET /first HTTP/1.0\r\n\r\n");
  const std::string answer = Ask(server->port(), "GET /second HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nsecond"));
  EXPECT_THAT(first.ReadAll(), EndsWith("\r\n\r\nfirst"));
}

TEST(HttpServer, ALargeAnswerArrivesWhole) {
  const std::string body(3 << 20, 'm');
  const auto server =
      *HttpServer::Start("127.0.0.1:0", {{"/", [&](const HttpRequest&) { return HttpResponse{.body = body}; }}});
  const std::string answer = Ask(server->port(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, body.size());
}

TEST(HttpServer, AnAddressInUseIsUnavailable) {
  const auto server = StartHello();
  const auto second = HttpServer::Start(server->endpoint(), Hello());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server->endpoint()));
  // 192.0.2.0/24 belongs to documents.
  EXPECT_EQ(HttpServer::Start("192.0.2.1:0", Hello()).status().code(), absl::StatusCode::kUnavailable);
}

TEST(HttpServer, ListensOnItsAddressOnly) {
  const auto one = *HttpServer::Start("127.0.0.2:0", Hello());
  EXPECT_FALSE(Connection(one->port()).connected());  // dials 127.0.0.1
  const auto all = *HttpServer::Start("0.0.0.0:0", Hello());
  EXPECT_TRUE(Connection(all->port()).connected());
}

TEST(HttpServer, TextThatIsNoAddressIsRefused) {
  for (const char* text :
       {"", "8080", ":8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:80s",
        "127.0.0.1:80,127.0.0.2:80", "+80", "a b:80", "127.0.0.1:-1", "::1:80", "x/y:1", "[::1:80", "[]x:80"}) {
    EXPECT_EQ(HttpServer::Start(text, Hello()).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(HttpServer, ThePortIsFreeAfterwards) {
  auto server = StartHello();
  const std::string endpoint = server->endpoint();
  Ask(server->port(), "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  server.reset();
  EXPECT_TRUE(HttpServer::Start(endpoint, Hello()).ok());
}

TEST(Probes, StatusAndTextByPath) {
  std::atomic<bool> ready{false};
  const auto server = *HttpServer::Start(
      "127.0.0.1:0",
      ProbeHandlers({.metrics = [] { return std::string("a 1\n"); },
                     .live = [] { return absl::OkStatus(); },
                     .ready = [&] { return ready ? absl::OkStatus() : absl::UnavailableError("not a member: why"); }}));
  const auto get = [&](const char* path) {
    return Ask(server->port(), absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
  };
  EXPECT_THAT(get("/livez"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(get("/livez"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get("/readyz"), EndsWith("\r\n\r\nnot a member: why\n"));
  ready = true;
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(get("/metrics"), HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(get("/metrics"), EndsWith("\r\n\r\na 1\n"));
}

}  // namespace
}  // namespace tp
