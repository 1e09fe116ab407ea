// Requests are counted by method and status, whatever kind of call; what the coordinator says over HTTP.
#include "server/rpc/request_metrics.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "server/rpc/coordinator_server.h"
#include "tp/v1/coordinator.grpc.pb.h"

namespace tp::server {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class RequestMetrics : public ::testing::Test {
 protected:
  void SetUp() override {
    CoordinatorServerOptions options;
    options.listen = "127.0.0.1:0";
    options.version = "test";
    auto started = CoordinatorServer::Start(options, &clock_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    stub_ = v1::CoordinatorService::NewStub(CreateChannel(server_->endpoint()));
  }
  void ExpectLine(const std::string& line) {
    EXPECT_THAT(server_->MetricsText(), HasSubstr(absl::StrCat("\n", line, "\n")));
  }
  // Until a scrape has the line; only a broken product needs the whole time.
  void Await(const std::string& line) {
    const absl::Time end = clock_.Now() + absl::Minutes(1);
    while (server_->MetricsText().find(absl::StrCat("\n", line, "\n")) == std::string::npos) {
      ASSERT_LT(clock_.Now(), end) << line;
    }
  }
  RealClock clock_;
  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

TEST_F(RequestMetrics, UnaryCallsAndStreams) {
  EXPECT_THAT(CoordinatorRpcs(), Contains("Forward"));
  EXPECT_THAT(server_->MetricsText(), Not(HasSubstr("tp_requests_total{")));
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    ASSERT_TRUE(stub_->GetStatus(&context, {}, &response).ok());
  }
  {
    grpc::ClientContext context;
    v1::GetModelRequest request;
    v1::GetModelResponse response;
    request.set_name("nothing");
    EXPECT_EQ(stub_->GetModel(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  }
  {
    grpc::ClientContext context;
    auto stream = stub_->Forward(&context);
    v1::ForwardRequest request;
    request.mutable_chunk();
    stream->Write(request);
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    grpc::ClientContext context;
    v1::GenerateRequest request;
    request.set_model("nothing");
    request.set_text("a");
    auto stream = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(stream->Read(&response));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  }
  {
    grpc::ClientContext context;
    v1::SubmitResponse response;
    auto stream = stub_->Submit(&context, &response);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  ExpectLine("tp_requests_total{code=\"OK\",rpc=\"GetStatus\"} 3");
  ExpectLine("tp_requests_total{code=\"NOT_FOUND\",rpc=\"GetModel\"} 1");
  ExpectLine("tp_requests_total{code=\"INVALID_ARGUMENT\",rpc=\"Forward\"} 1");
  ExpectLine("tp_requests_total{code=\"NOT_FOUND\",rpc=\"Generate\"} 1");
  ExpectLine("tp_requests_total{code=\"INVALID_ARGUMENT\",rpc=\"Submit\"} 1");
  ExpectLine("tp_request_seconds_count{rpc=\"GetStatus\"} 3");
  ExpectLine("tp_request_seconds_bucket{rpc=\"GetStatus\",le=\"+Inf\"} 3");
  ExpectLine("tp_requests_running{rpc=\"Forward\"} 0");
}

TEST_F(RequestMetrics, AStreamRunsUntilItsClientGoes) {
  grpc::ClientContext context;
  auto stream = stub_->Forward(&context);
  Await("tp_requests_running{rpc=\"Forward\"} 1");
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  Await("tp_requests_running{rpc=\"Forward\"} 0");
  ExpectLine("tp_requests_total{code=\"CANCELLED\",rpc=\"Forward\"} 1");
}

TEST_F(RequestMetrics, ADeadlineThatPassedIsOne) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(stub_->Forward(&context)->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  Await("tp_requests_total{code=\"DEADLINE_EXCEEDED\",rpc=\"Forward\"} 1");
}

TEST_F(RequestMetrics, TheCoreAnswersProbesAndScrapes) {
  EXPECT_EQ(server_->Live(), absl::OkStatus());
  EXPECT_EQ(server_->Ready(), absl::OkStatus());
  ExpectLine("tp_queue_limit 1024");
  ExpectLine("tp_draining 0");
  EXPECT_THAT(server_->MetricsText(), Not(HasSubstr("\ntp_core_delay_seconds 1\n")));
  server_->Stop(absl::ZeroDuration(), nullptr);
  EXPECT_EQ(server_->Ready(), absl::UnavailableError("draining"));
  // Its core is at rest now: no answer, and the numbers of before.
  EXPECT_EQ(server_->Live().code(), absl::StatusCode::kUnavailable);
  ExpectLine("tp_core_delay_seconds 1");
  ExpectLine("tp_queue_limit 1024");
  ExpectLine("tp_draining 1");
}

}  // namespace
}  // namespace tp::server
