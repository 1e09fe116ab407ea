// What is refused of the options that both programs share.
#include "common/flags/program_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/flags/parse.h"

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

TEST(Checks, AddressesAreHostAndPort) {
  EXPECT_EQ(HostPort("127.0.0.1:0"), "");
  for (const char* wrong : {"7050", "", ":1", "a:", "a:+5", "a:-1", "a:65536", "a:1 ", "a b:1"}) {
    EXPECT_THAT(HostPort(wrong), HasSubstr("is not HOST:PORT")) << wrong;
  }
}

TEST(Checks, WholeNumbersFromALowestOne) {
  EXPECT_EQ(AtLeast(1)("1"), "");
  EXPECT_EQ(AtLeast(0)("9223372036854775807"), "");
  for (const char* wrong : {"0", "-1", "1.5", "9223372036854775808", "x", ""}) {
    EXPECT_EQ(AtLeast(1)(wrong), "must be a whole number of 1 or more") << wrong;
  }
}

TEST(CheckProgramFlags, FilesOfTlsAreRead) {
  const absl::Status half =
      CheckProgramFlags({.listen = "0.0.0.0:0", .tls = {.cert = "a.pem", .key = "", .ca = ""}}, true);
  EXPECT_EQ(half.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tp
