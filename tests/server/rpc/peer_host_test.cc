#include "server/rpc/peer_host.h"

#include <gtest/gtest.h>

namespace tp::server {
namespace {

TEST(PeerHostTest, TheAddressOfAPeer) {
  EXPECT_EQ(HostOfPeer("ipv4:10.0.0.3:4123"), "10.0.0.3");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::1%5D:4123"), "::1");
  EXPECT_EQ(HostOfPeer("ipv6:[fe80::1%25eth0]:4123"), "fe80::1%eth0");
  EXPECT_EQ(HostOfPeer("ipv6:%5B::ffff:10.0.0.3%5D:4123"), "10.0.0.3");
  EXPECT_EQ(HostOfPeer("unix:/run/socket"), "");
  EXPECT_EQ(HostOfPeer(""), "");
}

TEST(PeerHostTest, AddressesOfThisHost) {
  for (const char* address : {"", "127.0.0.1", "127.0.1.1", "::1", "localhost"}) EXPECT_TRUE(IsThisHost(address));
  for (const char* address : {"192.0.2.1", "2001:db8::1", "host"}) EXPECT_FALSE(IsThisHost(address));
}

}  // namespace
}  // namespace tp::server
