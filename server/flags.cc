#include "server/flags.h"

#include <CLI/CLI.hpp>

#include "common/flags/parse.h"

namespace tp::server {

void AddCoordinatorFlags(CoordinatorFlags* flags, CLI::App* app) {
  CoordinatorServerOptions& options = flags->options;
  AddProgramFlags({.listen = "HOST:PORT to serve at; port 0 = any",
                   .drain_seconds = "How long running calls may go on after SIGTERM",
                   .tls_cert = "Certificate to serve with (PEM); turns TLS on",
                   .tls_ca = "Only clients and workers whose certificate this authority signed are served"},
                  &flags->program, app);
  app->add_option("--data-dir", options.data_dir, "Folder of coordinator.db; none = nothing is kept");
  app->add_option("--endpoint-file", flags->endpoint_file, "File that gets HOST:PORT once it serves");
  app->add_option("--max-submission-bytes", options.max_submission_bytes, "Largest submission")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--max-input-bytes", options.max_input_bytes, "Largest inputs of one forward")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--max-queued-requests", options.max_queued_requests, "Requests that wait or run")
      ->check(AtLeast(1))
      ->capture_default_str();
  app->add_option("--cache-bytes", options.cache_bytes, "Largest cache of a model on a worker")
      ->check(AtLeast(0))
      ->capture_default_str();
  app->add_flag("--check-collectives", options.check_collectives,
                "Workers agree on every collective call before its payload; slower, for finding what diverges");
}

std::optional<int> ParseCoordinatorFlags(int argc, char** argv, CoordinatorFlags* flags) {
  CLI::App app("Tensorplane's coordinator", "tp-coordinator");
  app.set_version_flag("--version", TP_VERSION);
  AddCoordinatorFlags(flags, &app);
  if (std::optional<int> exit = ParseFlags(argc, argv, ConfigKind::kCoordinator, &app)) return exit;
  CoordinatorServerOptions& options = flags->options;
  options.version = TP_VERSION;
  options.listen = flags->program.listen;
  options.metrics_listen = flags->program.metrics_listen;
  options.tls = flags->program.tls;
  options.time_scale = flags->program.time_scale;
  return std::nullopt;
}

}  // namespace tp::server
