// The options that both programs have. Example:
//   ProgramFlags flags{.listen = "127.0.0.1:7050"};
//   AddProgramFlags({.listen = "HOST:PORT to serve at", ...}, &flags, &app);
//   ... ParseFlags ...;  InitLog("tp-worker", flags);  TP_RETURN_IF_ERROR(CheckProgramFlags(flags, /*server=*/true));
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/base/tls_files.h"

namespace CLI {
class App;
}

namespace tp {

struct ProgramFlags {
  std::string listen;               // HOST:PORT of the gRPC server; port 0 = any
  std::string metrics_listen = {};  // HOST:PORT of the HTTP server; "" = none
  bool insecure = false;            // plain text beyond loopback is allowed
  TlsFiles tls = {};
  double time_scale = 1;      // multiplies every time limit
  double drain_seconds = 10;  // how long what runs may go on after SIGTERM
  std::string log_level = "info", log_format = "text";
};

// What --help says where the programs differ.
struct ProgramHelp {
  std::string listen, drain_seconds, tls_cert, tls_ca;
};

// The values of `flags` are the defaults. Both outlive the parsing.
void AddProgramFlags(const ProgramHelp& help, ProgramFlags* flags, CLI::App* app);
// Logs as the flags say from here on.
void InitLog(std::string_view program, const ProgramFlags& flags);
// Addresses, the files of TLS (CheckTls), and that nothing but loopback is served in plain text unasked. `server`: the
// program must show a certificate where TLS is on.
absl::Status CheckProgramFlags(const ProgramFlags& flags, bool server);

}  // namespace tp
