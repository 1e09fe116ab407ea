// What is refused of the options that both programs share.
#include "common/flags/program_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp {
namespace {

using ::testing::HasSubstr;

TEST(CheckProgramFlags, PlainTextBeyondLoopbackIsAskedFor) {
  EXPECT_TRUE(CheckProgramFlags({.listen = "127.0.0.1:0"}, true).ok());
  EXPECT_TRUE(CheckProgramFlags({.listen = "0.0.0.0:0", .insecure = true}, true).ok());
  const absl::Status refused = CheckProgramFlags({.listen = "0.0.0.0:0"}, false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--listen 0.0.0.0:0 is not loopback and would serve plain text"));
}

TEST(CheckProgramFlags, AddressesAreHostAndPort) {
  EXPECT_EQ(CheckProgramFlags({.listen = "7050"}, true).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status metrics = CheckProgramFlags({.listen = "127.0.0.1:0", .metrics_listen = "nine"}, true);
  EXPECT_EQ(metrics.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(metrics.message()), HasSubstr("--metrics-listen"));
}

TEST(CheckProgramFlags, FilesOfTlsAreRead) {
  const absl::Status half =
      CheckProgramFlags({.listen = "0.0.0.0:0", .tls = {.cert = "a.pem", .key = "", .ca = ""}}, true);
  EXPECT_EQ(half.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tp
