#include "common/flags/program_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/flags/parse.h"
#include "common/rpc/channel.h"

namespace tp {

void AddProgramFlags(const ProgramHelp& help, ProgramFlags* flags, CLI::App* app) {
  app->add_option("--listen", flags->listen, help.listen)->check(HostPort)->capture_default_str();
  app->add_flag("--insecure", flags->insecure, "Serve plain text on addresses other than loopback");
  app->add_option("--metrics-listen", flags->metrics_listen,
                  "HOST:PORT of /metrics, /livez and /readyz over HTTP; none = off, port 0 = any")
      ->check([](const std::string& text) { return text.empty() ? "" : HostPort(text); });
  app->add_option("--tls-cert", flags->tls.cert, help.tls_cert);
  app->add_option("--tls-key", flags->tls.key, "Its private key (PEM)");
  app->add_option("--tls-ca", flags->tls.ca, help.tls_ca);
  app->add_option("--time-scale", flags->time_scale, "Multiplies every time limit, but for the drain's")
      ->check(Between(0.1, 1000))
      ->capture_default_str();
  app->add_option("--drain-seconds", flags->drain_seconds, help.drain_seconds)
      ->check(Between(0, 86400))
      ->capture_default_str();
  app->add_option("--log-level", flags->log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app->add_option("--log-format", flags->log_format, "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

void InitLog(std::string_view program, const ProgramFlags& flags) {
  const std::string& level = flags.log_level;
  InitLog(program,
          level == "debug"     ? LogLevel::kDebug
          : level == "warning" ? LogLevel::kWarning
          : level == "error"   ? LogLevel::kError
                               : LogLevel::kInfo,
          flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
}

absl::Status CheckProgramFlags(const ProgramFlags& flags, bool server) {
  TP_RETURN_IF_ERROR(CheckTls(flags.tls, server));
  if (IsLoopback(flags.listen) || flags.insecure || !flags.tls.cert.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--listen ", flags.listen,
                   " is not loopback and would serve plain text; give --tls-cert and --tls-key, or --insecure to "
                   "allow it"));
}

}  // namespace tp
