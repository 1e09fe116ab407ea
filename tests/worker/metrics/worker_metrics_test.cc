#include "worker/metrics/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/metrics/process_metrics.h"
#include "tests/support/metrics_document.h"

namespace tp::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkerMetrics, CommandsByKindAndCode) {
  WorkerMetrics metrics("1.2", 1000);
  const size_t decode = decltype(Command::kind)(Decode{}).index();
  for (int i = 0; i < 3; ++i) metrics.CommandDone(decode, absl::StatusCode::kOk, absl::Milliseconds(20));
  metrics.CommandDone(decltype(Command::kind)(ShareStates{}).index(), absl::StatusCode::kNotFound, absl::Seconds(2));
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("tp_worker_commands_total{code=\"OK\",kind=\"decode\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("tp_worker_commands_total{code=\"NOT_FOUND\",kind=\"share_states\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tp_worker_command_seconds_bucket{kind=\"decode\",le=\"0.01\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tp_worker_command_seconds_bucket{kind=\"decode\",le=\"0.025\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("tp_worker_command_seconds_sum{kind=\"share_states\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("kind=\"run\"")));
  EXPECT_THAT(text, HasSubstr("tp_worker_memory_limit_bytes 1000\n"));
  EXPECT_THAT(text, HasSubstr("tp_build_info{version=\"1.2\"} 1\n"));
}

TEST(WorkerMetrics, WhatTheRuntimeHolds) {
  WorkerMetrics metrics("1.2", 0);
  RuntimeUsage usage;
  usage.weight_bytes = 11;
  usage.cache_bytes = 12;
  usage.arena_bytes = 13;
  usage.tensor_bytes = 14;
  usage.models = 2;
  usage.meshes = 3;
  usage.queued = 4;
  usage.epochs_ended = 5;
  usage.wire = {60, 70};
  CollectiveTally tally;
  tally.calls[static_cast<size_t>(CollectiveKind::kAllGather)] = 8;
  tally.bytes[static_cast<size_t>(CollectiveKind::kAllGather)] = 900;
  tally.times[static_cast<size_t>(CollectiveKind::kAllGather)] = absl::Milliseconds(1500);
  metrics.Show(usage, tally);
  metrics.Show(usage, tally);  // totals, not additions
  metrics.ShowMembership(true, false);
  metrics.Joined();
  StageResult stage;
  stage.bytes_read = 77;
  metrics.StageDone(stage);
  const std::string text = metrics.Text();
  for (const char* line :
       {"tp_worker_memory_bytes{kind=\"weights\"} 11", "tp_worker_memory_bytes{kind=\"cache\"} 12",
        "tp_worker_memory_bytes{kind=\"arena\"} 13", "tp_worker_memory_bytes{kind=\"tensors\"} 14",
        "tp_worker_models 2", "tp_worker_meshes 3", "tp_worker_queue_length 4", "tp_worker_epochs_ended_total 5",
        "tp_worker_wire_bytes_total{direction=\"sent\"} 60", "tp_worker_wire_bytes_total{direction=\"received\"} 70",
        "tp_worker_collectives_total{op=\"all_gather\"} 8", "tp_worker_collective_bytes_total{op=\"all_gather\"} 900",
        "tp_worker_collective_seconds_total{op=\"all_gather\"} 1.5", "tp_worker_collectives_total{op=\"headers\"} 0",
        "tp_worker_member 1", "tp_worker_draining 0", "tp_worker_joins_total 1", "tp_worker_read_bytes_total 77",
        "tp_worker_stages_total{code=\"OK\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

TEST(WorkerMetrics, TheDocumentHasItsTable) {
  std::vector<std::string> rows = MarkdownRows(WorkerTable("1.2"));
  rows.resize(rows.size() - ProcessTable("1.2").size());
  EXPECT_EQ(absl::StrJoin(tp::testing::DocumentedRows("Worker"), "\n"), absl::StrJoin(rows, "\n"));
}

}  // namespace
}  // namespace tp::worker
