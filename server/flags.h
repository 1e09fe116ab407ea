// The options of tp-coordinator. Example:
//   CoordinatorFlags flags;  if (std::optional<int> exit = ParseCoordinatorFlags(argc, argv, &flags)) return *exit;
#pragma once

#include <optional>
#include <string>

#include "common/flags/program_flags.h"
#include "server/rpc/coordinator_server.h"

namespace tp::server {

struct CoordinatorFlags {
  ProgramFlags program{.listen = "127.0.0.1:7050"};
  CoordinatorServerOptions options;  // what `program` holds, too, once parsed
  std::string endpoint_file;
};

// `flags` are the defaults and outlive the parsing.
void AddCoordinatorFlags(CoordinatorFlags* flags, CLI::App* app);
// Nothing, or the status to exit with (ParseFlags).
std::optional<int> ParseCoordinatorFlags(int argc, char** argv, CoordinatorFlags* flags);

}  // namespace tp::server
