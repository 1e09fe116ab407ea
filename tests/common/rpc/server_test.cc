#include "common/rpc/server.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

TEST(RpcServer, GivesTheChosenPortAndRefusesATakenOne) {
  auto server = RpcServer::Start("127.0.0.1:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
  const std::string address = absl::StrCat("127.0.0.1:", (*server)->port());
  auto second = RpcServer::Start(address, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  auto channel = CreateChannel(address);
  EXPECT_TRUE(channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(30))));
  (*server)->Shutdown(absl::ZeroDuration());
}

TEST(HostPort, IsChecked) {
  EXPECT_TRUE(ValidateHostPort("127.0.0.1:7050").ok());
  EXPECT_TRUE(ValidateHostPort("[::1]:0").ok());
  for (const char* bad : {"", "host", ":1", "host:", "host:x", "host:65536", "host:-1"}) {
    EXPECT_EQ(ValidateHostPort(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_TRUE(IsLoopback("127.0.0.1:1"));
  EXPECT_TRUE(IsLoopback("localhost:1"));
  EXPECT_TRUE(IsLoopback("[::1]:1"));
  EXPECT_FALSE(IsLoopback("0.0.0.0:1"));
  EXPECT_FALSE(IsLoopback("10.0.0.1:1"));
}

TEST(GrpcStatus, KeepsCodeAndCutsText) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  grpc::Status status = ToGrpcStatus(absl::NotFoundError("model 'm'"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(FromGrpcStatus(status), absl::NotFoundError("model 'm'"));
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(std::string(9000, 'x'))).error_message().size(), 1000u);
}

}  // namespace
}  // namespace tp
