// Every option of the programs has a field in the message of its configuration file, and every field has an option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "common/proto_convert/config.h"
#include "server/flags.h"
#include "worker/flags.h"

namespace tp {
namespace {

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option != app.get_help_ptr()) flags.push_back(option->get_name().substr(2));
  }
  return flags;
}

TEST(Programs, OptionsOfTheCoordinatorAreItsFields) {
  CLI::App app;
  server::CoordinatorFlags flags;
  server::AddCoordinatorFlags(&flags, &app);
  EXPECT_THAT(FlagsOf(app), ::testing::UnorderedElementsAreArray(ConfigFlags(ConfigKind::kCoordinator)));
}

TEST(Programs, OptionsOfTheWorkerAreItsFields) {
  CLI::App app;
  worker::WorkerFlags flags;
  worker::AddWorkerFlags(&flags, &app);
  EXPECT_THAT(FlagsOf(app), ::testing::UnorderedElementsAreArray(ConfigFlags(ConfigKind::kWorker)));
}

// Every field set: each reaches the option's variable, flags as flags.
TEST(Programs, EveryFieldOfAWorkerReachesItsOption) {
  const std::string path = ::testing::TempDir() + "all.textproto";
  std::ofstream(path) << R"(listen: "0.0.0.0:7051" insecure: true metrics_listen: "0.0.0.0:9464" log_level: "warning"
                            log_format: "json" drain_seconds: 2.5 tls_cert: "c" tls_key: "k" tls_ca: "a" time_scale: 4
                            server: "s:1" id: "w" device: "cuda:3" model_root: "/m" threads: 5 collective_host: "10.0.0.7"
                            memory_limit: 8589934592 cuda_module: "x.so" tf32: true no_graphs: true
                            time_products: true)";
  std::string words[] = {"tp-worker", "--config", path};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data()};
  worker::WorkerFlags flags;
  ASSERT_EQ(worker::ParseWorkerFlags(3, argv, &flags), std::nullopt);
  EXPECT_EQ(flags.program.listen, "0.0.0.0:7051");
  EXPECT_TRUE(flags.program.insecure);
  EXPECT_EQ(flags.options.metrics_listen, "0.0.0.0:9464");
  EXPECT_EQ(flags.program.log_level, "warning");
  EXPECT_EQ(flags.program.log_format, "json");
  EXPECT_EQ(flags.options.drain_seconds, 2.5);
  EXPECT_EQ(flags.options.tls.cert + flags.options.tls.key + flags.options.tls.ca, "cka");
  EXPECT_EQ(flags.options.runtime.time_scale, 4);
  EXPECT_EQ(flags.options.server, "s:1");
  EXPECT_EQ(flags.options.id, "w");
  EXPECT_EQ(flags.device.name, "cuda:3");
  EXPECT_EQ(flags.options.runtime.model_root, "/m");
  EXPECT_EQ(flags.device.threads, 5);
  EXPECT_EQ(flags.device.collective_host, "10.0.0.7");
  EXPECT_EQ(flags.options.collective_host, "10.0.0.7");
  EXPECT_EQ(flags.device.memory_limit_bytes, int64_t{8} << 30);
  EXPECT_EQ(flags.device.cuda_module, "x.so");
  EXPECT_TRUE(flags.device.tf32);
  EXPECT_FALSE(flags.options.runtime.graphs);
  EXPECT_TRUE(flags.device.time_products);
}

TEST(Programs, EveryFieldOfTheCoordinatorReachesItsOption) {
  const std::string path = ::testing::TempDir() + "all.textproto";
  std::ofstream(path) << R"(listen: "0.0.0.0:7050" insecure: true metrics_listen: "0.0.0.0:9464" log_level: "debug"
                            log_format: "json" drain_seconds: 2.5 tls_cert: "c" tls_key: "k" tls_ca: "a" time_scale: 4
                            data_dir: "/d" endpoint_file: "/e" max_submission_bytes: 5000000000 max_input_bytes: 6
                            max_queued_requests: 7 cache_bytes: 8 check_collectives: true)";
  std::string words[] = {"tp-coordinator", "--config", path};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data()};
  server::CoordinatorFlags flags;
  ASSERT_EQ(server::ParseCoordinatorFlags(3, argv, &flags), std::nullopt);
  EXPECT_EQ(flags.options.listen, "0.0.0.0:7050");
  EXPECT_TRUE(flags.program.insecure);
  EXPECT_EQ(flags.options.metrics_listen, "0.0.0.0:9464");
  EXPECT_EQ(flags.program.log_level, "debug");
  EXPECT_EQ(flags.program.log_format, "json");
  EXPECT_EQ(flags.program.drain_seconds, 2.5);
  EXPECT_EQ(flags.options.tls.cert + flags.options.tls.key + flags.options.tls.ca, "cka");
  EXPECT_EQ(flags.options.time_scale, 4);
  EXPECT_EQ(flags.options.data_dir, "/d");
  EXPECT_EQ(flags.endpoint_file, "/e");
  EXPECT_EQ(flags.options.max_submission_bytes, 5000000000);
  EXPECT_EQ(flags.options.max_input_bytes, 6);
  EXPECT_EQ(flags.options.max_queued_requests, 7);
  EXPECT_EQ(flags.options.cache_bytes, 8);
  EXPECT_TRUE(flags.options.check_collectives);
}

}  // namespace
}  // namespace tp
