// Names of hosts, as text. Example: IsLoopbackHost("127.0.1.1") is true, IsLoopbackHost("10.0.0.2") is not.
#pragma once

#include <string>

namespace tp {

// Only the host itself reaches it: 127.x.x.x, ::1 (in brackets or not) or localhost. Nothing is looked up.
inline bool IsLoopbackHost(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.rfind("127.", 0) == 0 ||
         host.rfind("::ffff:127.", 0) == 0;
}

}  // namespace tp
