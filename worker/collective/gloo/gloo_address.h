// The address that a rank advertises: where it listens, one port for each peer. Example, rank 1 of 3 at 10.0.0.2:
// "10.0.0.2:40001,40002" - rank 0 connects to port 40001, rank 2 to port 40002; IPv6 as "[fe80::2]:40001,40002".
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tp::worker {

// Where the entry for `peer` stands in the list of `rank`, which has none for itself.
inline int PortIndex(int rank, int peer) { return peer < rank ? peer : peer - 1; }

// `listeners`: one socket address for each peer, all of one host. INVALID_ARGUMENT where there are several hosts.
absl::StatusOr<std::string> FormatGlooAddress(const std::vector<sockaddr_storage>& listeners);
// The socket address of one of the ports. INVALID_ARGUMENT with the text where it is malformed or has other than
// `ports` ports. A numeric host only: nothing is looked up.
absl::StatusOr<sockaddr_storage> ParseGlooAddress(const std::string& address, int ports, int index);

// The first address of `host` (a name or an address) that a socket of this machine can be bound to, loopback only where
// there is no other. INVALID_ARGUMENT with `host` where there is none, and for one that no peer can reach: 0.0.0.0, or
// a name that is 127.0.1.1, as Debian's /etc/hosts has the host's own.
absl::StatusOr<sockaddr_storage> ResolveLocalHost(const std::string& host);

// "10.0.0.2".
std::string HostText(const sockaddr_storage& address);
// "10.0.0.2:40001".
std::string SocketText(const sockaddr_storage& address);

}  // namespace tp::worker
