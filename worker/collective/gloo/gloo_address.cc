#include "worker/collective/gloo/gloo_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/hosts.h"

namespace tp::worker {
namespace {

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

bool IsWildcard(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in*>(&address)->sin_addr.s_addr == INADDR_ANY;
}

// Groups and the broadcast address can be bound but are no interface's.
bool IsNobodys(const sockaddr_in& address) {
  const uint32_t bits = ntohl(address.sin_addr.s_addr);
  return IN_MULTICAST(bits) || bits == INADDR_BROADCAST;
}

bool CanBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = bind(fd, address.ai_addr, address.ai_addrlen) == 0;
  close(fd);
  return bound && !(address.ai_family == AF_INET && IsNobodys(*reinterpret_cast<const sockaddr_in*>(address.ai_addr)));
}

// "10.0.0.2", "[fe80::2]": what a port can be put behind.
std::string BracketedHost(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? absl::StrCat("[", HostText(address), "]") : HostText(address);
}

}  // namespace

std::string HostText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr, text, sizeof text);
  } else {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, text, sizeof text);
  }
  return text;
}

std::string SocketText(const sockaddr_storage& address) {
  return absl::StrCat(BracketedHost(address), ":", PortOf(address));
}

// Gloo has a search of its own, which ends the process where no address can be bound.
absl::StatusOr<sockaddr_storage> ResolveLocalHost(const std::string& host) {
  if (host.empty()) return absl::InvalidArgumentError("collective address: no host given");
  addrinfo hints;
  std::memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("collective address \"", host, "\": ", gai_strerror(error)));
  }
  sockaddr_storage result;
  std::memset(&result, 0, sizeof result);
  bool found = false, loopback = false;
  std::string all;
  // One that others reach comes first.
  for (const addrinfo* a = list; a != nullptr && (!found || loopback); a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    sockaddr_storage address;
    std::memset(&address, 0, sizeof address);
    std::memcpy(&address, a->ai_addr, a->ai_addrlen);
    absl::StrAppend(&all, all.empty() ? "" : ", ", HostText(address));
    const bool inside = IsLoopbackHost(HostText(address));
    if ((found && inside) || !CanBind(*a)) continue;
    result = address;
    found = true;
    loopback = inside;
  }
  freeaddrinfo(list);
  if (!found) {
    return absl::InvalidArgumentError(absl::StrCat("collective address \"", host, "\"", all == host ? "" : " = ",
                                                   all == host ? "" : all,
                                                   " is not one of this machine's: it can't be bound"));
  }
  const std::string text = HostText(result);
  if (loopback && text != host && text != "127.0.0.1" && text != "::1") {
    return absl::InvalidArgumentError(
        absl::StrCat("collective address \"", host, "\" resolves to ", text,
                     ", this host's own name on loopback, which no other host reaches: give --collective-host an "
                     "address of an interface that other workers reach"));
  }
  if (IsWildcard(result)) {
    return absl::InvalidArgumentError(
        absl::StrCat("collective address \"", host, "\": give the one that the peers reach"));
  }
  return result;
}

absl::StatusOr<std::string> FormatGlooAddress(const std::vector<sockaddr_storage>& listeners) {
  std::string text;
  for (const sockaddr_storage& listener : listeners) {
    if (HostText(listener) != HostText(listeners[0])) {
      return absl::InvalidArgumentError(
          absl::StrCat("listeners on ", HostText(listeners[0]), " and ", HostText(listener)));
    }
    absl::StrAppend(&text, text.empty() ? BracketedHost(listener) + ":" : ",", PortOf(listener));
  }
  return text;
}

absl::StatusOr<sockaddr_storage> ParseGlooAddress(const std::string& address, int ports, int index) {
  const absl::Status malformed = absl::InvalidArgumentError(
      absl::StrCat("collective address \"", address.substr(0, 128), "\" is not HOST:PORT,... with ", ports, " ports"));
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return malformed;
  const std::vector<std::string> list = absl::StrSplit(address.substr(colon + 1), ',');
  int port = 0;
  if (static_cast<int>(list.size()) != ports || index < 0 || index >= ports) return malformed;
  if (!absl::SimpleAtoi(list[index], &port) || port < 1 || port > 65535) return malformed;

  std::string host = address.substr(0, colon);
  sockaddr_storage result;
  std::memset(&result, 0, sizeof result);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&result);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) != 1) return malformed;
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&result);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) != 1) return malformed;
  }
  return result;
}

}  // namespace tp::worker
