#include "server/metrics/coordinator_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/metrics/process_metrics.h"
#include "tests/support/metrics_document.h"

namespace tp::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CoordinatorMetrics, RequestsByMethodAndCode) {
  CoordinatorMetrics metrics({"Forward", "Generate"}, "1.2");
  metrics.RequestBegan(0);
  metrics.RequestBegan(0);
  metrics.RequestBegan(1);
  metrics.RequestEnded(0, absl::StatusCode::kOk, absl::Milliseconds(20));
  metrics.RequestEnded(1, absl::StatusCode::kNotFound, absl::Seconds(3));
  metrics.RelayedToWorker(100);
  metrics.RelayedFromWorker(7);
  metrics.RelayedFromWorker(8);
  const std::string text = metrics.Text();
  for (const char* line :
       {"tp_requests_total{code=\"OK\",rpc=\"Forward\"} 1", "tp_requests_total{code=\"NOT_FOUND\",rpc=\"Generate\"} 1",
        "tp_requests_running{rpc=\"Forward\"} 1", "tp_requests_running{rpc=\"Generate\"} 0",
        "tp_request_seconds_bucket{rpc=\"Forward\",le=\"0.01\"} 0",
        "tp_request_seconds_bucket{rpc=\"Forward\",le=\"0.025\"} 1", "tp_request_seconds_sum{rpc=\"Generate\"} 3",
        "tp_bytes_relayed_total{direction=\"to_workers\"} 100", "tp_bytes_relayed_total{direction=\"from_workers\"} 15",
        "tp_build_info{version=\"1.2\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
  EXPECT_THAT(text, Not(HasSubstr("{code=\"OK\",rpc=\"Generate\"}")));
}

TEST(CoordinatorMetrics, TheCoresNumbers) {
  CoordinatorMetrics metrics({"Forward"}, "1.2");
  CoreNumbers numbers;
  numbers.counts = {11, 12, 13, 14, 15, 16, 17};
  numbers.workers_healthy = 1;
  numbers.workers_draining = 2;
  numbers.workers_lost = 3;
  numbers.models = {20, 21, 22, 23, 24, 25, 26};
  numbers.meshes = {30, 31, 32};
  numbers.tensors = {40, 41, 42};
  numbers.forwards_waiting = 50;
  numbers.forwards_running = 51;
  numbers.sequences_waiting = 52;
  numbers.sequences_decoding = 53;
  numbers.queue_limit = 54;
  numbers.memory_limit = 60;
  numbers.memory_reserved = 61;
  numbers.memory_used = 62;
  metrics.Show(numbers);
  metrics.Show(numbers);  // totals, not additions
  metrics.ShowDelay(absl::Milliseconds(250));
  metrics.ShowDraining(true);
  const std::string text = metrics.Text();
  for (const char* line : {"tp_tokens_total{kind=\"prompt\"} 11",
                           "tp_tokens_total{kind=\"generated\"} 12",
                           "tp_decode_steps_total 13",
                           "tp_mesh_epochs_total 14",
                           "tp_mesh_epochs_broken_total 15",
                           "tp_workers_joined_total 16",
                           "tp_workers_lost_total 17",
                           "tp_workers{state=\"healthy\"} 1",
                           "tp_workers{state=\"draining\"} 2",
                           "tp_workers{state=\"lost\"} 3",
                           "tp_models{state=\"created\"} 20",
                           "tp_models{state=\"ready\"} 24",
                           "tp_models{state=\"failed\"} 25",
                           "tp_models{state=\"deleting\"} 26",
                           "tp_meshes{state=\"broken\"} 32",
                           "tp_tensors{state=\"creating\"} 40",
                           "tp_forwards{state=\"waiting\"} 50",
                           "tp_forwards{state=\"running\"} 51",
                           "tp_sequences{state=\"waiting\"} 52",
                           "tp_sequences{state=\"decoding\"} 53",
                           "tp_queue_length 206",
                           "tp_queue_limit 54",
                           "tp_cluster_memory_bytes{kind=\"limit\"} 60",
                           "tp_cluster_memory_bytes{kind=\"reserved\"} 61",
                           "tp_cluster_memory_bytes{kind=\"used\"} 62",
                           "tp_core_delay_seconds 0.25",
                           "tp_draining 1"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

TEST(CoordinatorMetrics, TheDocumentHasItsTable) {
  std::vector<std::string> rows = MarkdownRows(CoordinatorTable({"Forward"}, "1.2"));
  const std::vector<std::string> both = MarkdownRows(ProcessTable("1.2"));
  EXPECT_EQ(tp::testing::DocumentedRows("Both"), both);
  rows.resize(rows.size() - both.size());
  EXPECT_EQ(absl::StrJoin(tp::testing::DocumentedRows("Coordinator"), "\n"), absl::StrJoin(rows, "\n"));
}

}  // namespace
}  // namespace tp::server
