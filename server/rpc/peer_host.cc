#include "server/rpc/peer_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_replace.h"
#include "common/base/hosts.h"

namespace tp::server {

std::string HostOfPeer(const std::string& peer) {
  const size_t begin = peer.find(':'), end = peer.rfind(':');
  if (peer.rfind("ipv", 0) != 0 || begin == end) return "";
  std::string host = absl::StrReplaceAll(peer.substr(begin + 1, end - begin - 1),
                                         {{"%5B", ""}, {"%5D", ""}, {"%25", "%"}, {"[", ""}, {"]", ""}});
  if (host.rfind("::ffff:", 0) == 0 && host.find('.') != std::string::npos) host = host.substr(7);
  return host;
}

bool IsThisHost(const std::string& address) {
  if (address.empty() || IsLoopbackHost(address)) return true;
  sockaddr_in v4;
  sockaddr_in6 v6;
  std::memset(&v4, 0, sizeof v4);
  std::memset(&v6, 0, sizeof v6);
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  const bool is_v4 = inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) return false;
  const int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = is_v4 ? bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof v4) == 0
                           : bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof v6) == 0;
  close(fd);
  return bound;
}

}  // namespace tp::server
