// What both programs serve over HTTP: series that equal what was done, their document, and the probes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "tests/support/cluster.h"
#include "tests/support/metrics_document.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Status line, headers and body of a GET; "" where nobody listens.
std::string HttpGet(int port, const std::string& path) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
    TP_CHECK(send(connection, request.data(), request.size(), MSG_NOSIGNAL) > 0);
    char buffer[4096];
    for (ssize_t count; (count = recv(connection, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
  }
  close(connection);
  return answer;
}

// The port that a log tells; 0 where it does not (yet).
int MetricsPort(const std::string& log) {
  std::smatch match;
  return std::regex_search(log, match, std::regex("metrics at 127\\.0\\.0\\.1:([0-9]+)")) ? std::stoi(match[1]) : 0;
}
int PortOf(const Process& process) {
  int port = 0;
  TP_CHECK(Eventually([&] { return (port = MetricsPort(process.ErrorsSoFar())) > 0; }));
  return port;
}

// A coordinator and two workers that serve HTTP.
class Programs {
 public:
  Programs()
      : coordinator_({Program("tp-coordinator"), "--listen", "127.0.0.1:0", "--endpoint-file",
                      folder_.path() + "/endpoint", "--metrics-listen", "127.0.0.1:0"}) {
    TP_CHECK(Eventually([&] {
      std::ifstream file(folder_.path() + "/endpoint");
      return static_cast<bool>(std::getline(file, server_)) && !server_.empty();
    }));
    for (const char* id : {"w0", "w1"}) {
      workers_.push_back(std::make_unique<Process>(
          std::vector<std::string>{Program("tp-worker"), "--server", server_, "--id", id, "--threads", "1",
                                   "--model-root", "/", "--metrics-listen", "127.0.0.1:0"}));
    }
    for (const auto& worker : workers_) {
      TP_CHECK(Eventually([&] { return absl::StartsWith(HttpGet(PortOf(*worker), "/readyz"), "HTTP/1.1 200 "); }));
    }
  }
  CommandResult Tpctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {Program("tpctl"), "--server", server_});
    return RunCommand(words);
  }
  void Submit(const std::string& file) const {
    const CommandResult result = Tpctl({"submit", Source(file), "--mesh", "tp=2"});
    EXPECT_EQ(result.code, 0) << result.err;
  }
  int coordinator_port() const { return PortOf(coordinator_); }
  int worker_port(int index) const { return PortOf(*workers_[static_cast<size_t>(index)]); }
  void KillWorker(int index) { workers_[static_cast<size_t>(index)]->Kill(); }
  void KillCoordinator() { coordinator_.Kill(); }
  const std::string& server() const { return server_; }
  const std::string& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  Process coordinator_;
  std::string server_;
  std::vector<std::unique_ptr<Process>> workers_;
};

// /metrics, parsed by the rules of the text format; each line that breaks one is a failure.
struct Scrape {
  std::map<std::string, double> samples;     // "name{labels}"
  std::map<std::string, std::string> types;  // by name of the series
  // The value; -1 where it is not there.
  double operator[](const std::string& sample) const {
    const auto it = samples.find(sample);
    return it == samples.end() ? -1 : it->second;
  }
};

Scrape ScrapeOf(int port) {
  const std::string answer = HttpGet(port, "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  EXPECT_EQ(body.back(), '\n');
  Scrape scrape;
  std::string family, helped;
  const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) .+"),
      type("# TYPE ([a-zA-Z_:]\\w*) (counter|gauge|histogram)"),
      sample("([a-zA-Z_:]\\w*)(\\{([a-z]+=\"[^\"\\\\\n]*\",?)+\\})? (-?[0-9.]+(e[+-]?[0-9]+)?|[+-]Inf|Nan)");
  for (absl::string_view text : absl::StrSplit(absl::StripSuffix(body, "\n"), '\n')) {
    const std::string line(text);
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      helped = match[1];
    } else if (std::regex_match(line, match, type)) {
      family = match[1];
      EXPECT_EQ(family, helped);
      EXPECT_TRUE(scrape.types.emplace(family, match[2]).second) << "twice: " << line;
    } else if (std::regex_match(line, match, sample)) {
      const std::string name = match[1];
      const bool histogram = scrape.types[family] == "histogram";
      EXPECT_TRUE(histogram ? name == family + "_bucket" || name == family + "_sum" || name == family + "_count"
                            : name == family)
          << line << " below " << family;
      if (scrape.types[family] == "counter") {
        EXPECT_THAT(name, ::testing::EndsWith("_total"));
      }
      EXPECT_TRUE(scrape.samples.emplace(absl::StrCat(name, match[2].str()), std::stod(match[4])).second)
          << "twice: " << line;
    } else {
      ADD_FAILURE() << "not the text format: " << line;
    }
  }
  return scrape;
}

std::set<std::string> NamesOf(const Scrape& scrape) {
  std::set<std::string> names;
  for (const auto& [name, type] : scrape.types) names.insert(name);
  return names;
}
std::set<std::string> DocumentedNames(const std::string& section) {
  std::set<std::string> names;
  for (const char* part : {section.c_str(), "Both"}) {
    for (const std::string& row : DocumentedRows(part)) names.insert(row.substr(3, row.find('`', 3) - 3));
  }
  return names;
}

std::string Request(const std::string& rpc, const std::string& code) {
  return absl::StrCat("tp_requests_total{code=\"", code, "\",rpc=\"", rpc, "\"}");
}

// tpctl asks for the model first; these get to the coordinator as they are.
void FailTwoRequests(const std::string& server) {
  auto stub = v1::CoordinatorService::NewStub(CreateChannel(server));
  {
    grpc::ClientContext context;
    auto forward = stub->Forward(&context);
    v1::ForwardRequest request;
    request.mutable_chunk();
    forward->Write(request);
    EXPECT_EQ(forward->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  grpc::ClientContext context;
  v1::GenerateRequest request;
  request.set_model("nothing");
  request.set_text("a");
  auto generate = stub->Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_FALSE(generate->Read(&response));
  EXPECT_EQ(generate->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Metrics, OfAClusterEqualWhatWasDone) {
  const Programs cluster;
  const int coordinator = cluster.coordinator_port(), first = cluster.worker_port(0), second = cluster.worker_port(1);
  Scrape before = ScrapeOf(coordinator);
  EXPECT_EQ(before["tp_workers{state=\"healthy\"}"], 2);
  EXPECT_EQ(before["tp_models{state=\"ready\"}"], 0);
  EXPECT_EQ(before[Request("Forward", "OK")], -1);

  cluster.Submit("deploy/demo/mlp.textproto");
  cluster.Submit("deploy/demo/tiny_lm.textproto");
  const std::string row = "x=1,2,3,4,5,6,7,8";
  const Scrape idle = ScrapeOf(first);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cluster.Tpctl({"forward", "mlp", "--input", row}).code, 0);
  FailTwoRequests(cluster.server());
  EXPECT_EQ(
      cluster.Tpctl({"generate", "tiny_lm", "--prompt-ids", "97,98,99", "--max-new-tokens", "8", "--ignore-eos"}).code,
      0);
  EXPECT_EQ(cluster.Tpctl({"mesh", "create", "m", "tp=2"}).code, 0);
  EXPECT_EQ(cluster
                .Tpctl({"tensor", "create", "w", "--shape", "4x6", "--init", "ones", "--mesh", "m", "--placements",
                        "tp=S(0)"})
                .code,
            0);
  EXPECT_EQ(cluster.Tpctl({"tensor", "get", "w", "--output", cluster.folder() + "/w.npy"}).code, 0);

  const Scrape scrape = ScrapeOf(coordinator);
  EXPECT_EQ(scrape[Request("Submit", "OK")], 2);
  EXPECT_EQ(scrape[Request("Forward", "OK")], 3);
  EXPECT_EQ(scrape[Request("Generate", "NOT_FOUND")], 1);
  EXPECT_EQ(scrape[Request("Forward", "INVALID_ARGUMENT")], 1);
  EXPECT_EQ(scrape["tp_request_seconds_count{rpc=\"Forward\"}"], 4);
  EXPECT_EQ(scrape["tp_request_seconds_bucket{rpc=\"Forward\",le=\"+Inf\"}"], 4);
  EXPECT_GT(scrape["tp_request_seconds_sum{rpc=\"Forward\"}"], 0);
  EXPECT_EQ(scrape["tp_requests_running{rpc=\"Forward\"}"], 0);
  EXPECT_EQ(scrape[Request("Generate", "OK")], 1);
  EXPECT_EQ(scrape["tp_tokens_total{kind=\"prompt\"}"], 3);
  EXPECT_EQ(scrape["tp_tokens_total{kind=\"generated\"}"], 8);
  EXPECT_EQ(scrape["tp_decode_steps_total"], 8);
  EXPECT_EQ(scrape["tp_models{state=\"ready\"}"], 2);
  EXPECT_EQ(scrape["tp_meshes{state=\"ready\"}"], 1);
  EXPECT_EQ(scrape["tp_tensors{state=\"ready\"}"], 1);
  EXPECT_EQ(scrape["tp_mesh_epochs_total"], 3);
  EXPECT_EQ(scrape["tp_mesh_epochs_broken_total"], 0);
  EXPECT_EQ(scrape["tp_queue_length"], 0);
  EXPECT_EQ(scrape["tp_bytes_relayed_total{direction=\"from_workers\"}"], 4 * 6 * 4);
  EXPECT_GT(scrape["tp_cluster_memory_bytes{kind=\"reserved\"}"], 0);
  EXPECT_GE(scrape["tp_core_delay_seconds"], 0);
  EXPECT_LT(scrape["process_start_time_seconds"], static_cast<double>(time(nullptr)) + 1);
  EXPECT_EQ(NamesOf(scrape), DocumentedNames("Coordinator"));

  for (const int port : {first, second}) {
    const Scrape worker = ScrapeOf(port);
    EXPECT_EQ(worker["tp_worker_member"], 1);
    EXPECT_EQ(worker["tp_worker_joins_total"], 1);
    EXPECT_EQ(worker["tp_worker_commands_total{code=\"OK\",kind=\"run\"}"], 3);
    EXPECT_EQ(worker["tp_worker_command_seconds_count{kind=\"run\"}"], 3);
    EXPECT_GE(worker["tp_worker_commands_total{code=\"OK\",kind=\"decode\"}"], 2);
    EXPECT_EQ(worker["tp_worker_models"], 2);
    EXPECT_EQ(worker["tp_worker_meshes"], 3);
    EXPECT_EQ(worker["tp_worker_memory_bytes{kind=\"tensors\"}"], 2 * 6 * 4);
    EXPECT_GT(worker["tp_worker_memory_bytes{kind=\"weights\"}"], 0);
    EXPECT_GT(worker["tp_worker_memory_bytes{kind=\"cache\"}"], 0);
    EXPECT_GT(worker["tp_worker_memory_bytes{kind=\"arena\"}"], 0);
    EXPECT_GT(worker["tp_worker_read_bytes_total"], 0);
    EXPECT_GT(worker["tp_worker_wire_bytes_total{direction=\"received\"}"], 0);
    EXPECT_EQ(worker["tp_worker_epochs_ended_total"], 0);
    EXPECT_EQ(NamesOf(worker), DocumentedNames("Worker"));
  }
  // The ranks made the same calls, with the same payload: of the forwards an all_reduce each, among others.
  const Scrape a = ScrapeOf(first), b = ScrapeOf(second);
  for (const char* op : {"all_reduce", "all_gather", "headers"}) {
    for (const char* series : {"tp_worker_collectives_total", "tp_worker_collective_bytes_total"}) {
      const std::string sample = absl::StrCat(series, "{op=\"", op, "\"}");
      EXPECT_EQ(a[sample], b[sample]) << sample;
    }
  }
  EXPECT_GE(a["tp_worker_collectives_total{op=\"all_reduce\"}"],
            idle["tp_worker_collectives_total{op=\"all_reduce\"}"] + 3);
  EXPECT_GT(a["tp_worker_collective_seconds_total{op=\"all_reduce\"}"], 0);
}

TEST(Metrics, AReadyClusterAndALostWorker) {
  Programs cluster;
  cluster.Submit("deploy/demo/mlp.textproto");
  const int coordinator = cluster.coordinator_port(), survivor = cluster.worker_port(0);
  for (const int port : {coordinator, survivor}) {
    for (const char* path : {"/livez", "/readyz"}) {
      EXPECT_THAT(HttpGet(port, path), StartsWith("HTTP/1.1 200 ")) << path;
      EXPECT_THAT(HttpGet(port, path), ::testing::EndsWith("\r\n\r\nok\n")) << path;
    }
    EXPECT_THAT(HttpGet(port, "/"), StartsWith("HTTP/1.1 404 "));
  }
  cluster.KillWorker(1);
  EXPECT_TRUE(Eventually([&] { return ScrapeOf(coordinator)["tp_workers{state=\"lost\"}"] == 1; }));
  const Scrape scrape = ScrapeOf(coordinator);
  EXPECT_EQ(scrape["tp_workers_lost_total"], 1);
  EXPECT_EQ(scrape["tp_mesh_epochs_broken_total"], 1);
  EXPECT_EQ(scrape["tp_models{state=\"failed\"}"], 1);
  EXPECT_TRUE(Eventually([&] { return ScrapeOf(survivor)["tp_worker_epochs_ended_total"] == 1; }));
  EXPECT_THAT(HttpGet(survivor, "/readyz"), StartsWith("HTTP/1.1 200 "));
  cluster.KillCoordinator();
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(HttpGet(survivor, "/readyz"), "\r\n\r\nnot a member: "); }));
  EXPECT_THAT(HttpGet(survivor, "/livez"), StartsWith("HTTP/1.1 200 "));
}

TEST(Metrics, AWorkerWithoutACoordinatorIsAliveAndNotReady) {
  Process worker({Program("tp-worker"), "--server", "127.0.0.1:1", "--id", "w", "--threads", "1", "--metrics-listen",
                  "127.0.0.1:0"});
  const int port = PortOf(worker);
  EXPECT_THAT(HttpGet(port, "/livez"), StartsWith("HTTP/1.1 200 "));
  const std::string ready = HttpGet(port, "/readyz");
  EXPECT_THAT(ready, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(ready, HasSubstr("\r\n\r\nnot a member: "));
  EXPECT_EQ(ScrapeOf(port)["tp_worker_member"], 0);
}

TEST(Metrics, AnAddressInUseEndsTheProgram) {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  TP_CHECK(bind(taken, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(taken, 1) == 0);
  TP_CHECK(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::string where = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{Program("tp-coordinator"), "--listen", "127.0.0.1:0", "--metrics-listen", where},
        {Program("tp-worker"), "--server", "127.0.0.1:1", "--metrics-listen", where}}) {
    const CommandResult result = RunCommand(words);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("--metrics-listen"));
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("can't listen on ", where)));
  }
  close(taken);
}

}  // namespace
}  // namespace tp::testing
