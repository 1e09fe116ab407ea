#include "worker/collective/gloo/gloo_address.h"

#include "gtest/gtest.h"

namespace tp::worker {
namespace {

TEST(GlooAddressTest, PortIndexSkipsTheRankItself) {
  EXPECT_EQ(PortIndex(1, 0), 0);  // rank 1 of 3 has ports for 0 and 2
  EXPECT_EQ(PortIndex(1, 2), 1);
  EXPECT_EQ(PortIndex(0, 1), 0);
  EXPECT_EQ(PortIndex(2, 1), 1);
}

TEST(GlooAddressTest, ParsesAndFormatsBothFamilies) {
  for (const char* text : {"10.0.0.2:40001,40002", "[fe80::2]:40001,40002"}) {
    auto first = ParseGlooAddress(text, 2, 0), second = ParseGlooAddress(text, 2, 1);
    ASSERT_TRUE(first.ok() && second.ok()) << text;
    EXPECT_EQ(*FormatGlooAddress({*first, *second}), text);
  }
  EXPECT_EQ(SocketText(*ParseGlooAddress("10.0.0.2:40001,40002", 2, 1)), "10.0.0.2:40002");
  EXPECT_EQ(SocketText(*ParseGlooAddress("[::1]:7", 1, 0)), "[::1]:7");
}

TEST(GlooAddressTest, RefusesWhatIsMalformed) {
  for (const char* text :
       {"", ":1", "host:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:1,2", "[::1:1", "::1:1"}) {
    EXPECT_EQ(ParseGlooAddress(text, 1, 0).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(GlooAddressTest, OnlyAnAddressOfThisMachineThatPeersCanReach) {
  EXPECT_EQ(HostText(*ResolveLocalHost("127.0.0.1")), "127.0.0.1");
  EXPECT_EQ(HostText(*ResolveLocalHost("127.0.1.1")), "127.0.1.1");  // given as such
  const struct {
    std::string host, text;
  } wrong[] = {{"", "no host given"},
               {"0.0.0.0", "give the one that the peers reach"},
               {"192.0.2.1", "collective address \"192.0.2.1\" is not one of this machine's"},
               {"no.such.host.invalid", "collective address \"no.such.host.invalid\": "}};
  for (const auto& [host, text] : wrong) {
    const absl::Status status = ResolveLocalHost(host).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace tp::worker
