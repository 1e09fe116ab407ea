// Where a call comes from. Example: HostOfPeer("ipv4:10.0.0.3:4123") is "10.0.0.3"; so is IsThisHost("10.0.0.3") where
// an interface of this host has it.
#pragma once

#include <string>

namespace tp::server {

// Of grpc::ServerContext::peer(): the address alone, IPv6 without brackets; "" for what has none (unix:).
std::string HostOfPeer(const std::string& peer);
// "", loopback, or an address of one of this host's interfaces.
bool IsThisHost(const std::string& address);

}  // namespace tp::server
