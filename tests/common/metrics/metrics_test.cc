#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/metrics/process_metrics.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

MetricTable Table() {
  return {{"t_calls_total", MetricType::kCounter, "Calls.", {{"rpc", {"A", "B"}}, {"code", {"OK", "LOST"}}}, {}, true},
          {"t_seconds", MetricType::kHistogram, "Times.", {{"rpc", {"A", "B"}}}, {.5, 1, 10}},
          {"t_queue", MetricType::kGauge, "Length."},
          {"t_bytes_total", MetricType::kCounter, "Bytes.", {{"way", {"in", "out"}}}}};
}

TEST(Metrics, SeriesAreThereFromTheStartUnlessTheyAreSparse) {
  Metrics metrics(Table());
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# HELP t_bytes_total Bytes.\n# TYPE t_bytes_total counter\n"));
  EXPECT_THAT(text, HasSubstr("t_bytes_total{way=\"in\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("t_bytes_total{way=\"out\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("t_queue 0\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_count{rpc=\"B\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("t_calls_total{")));
}

TEST(Metrics, ValuesByLabels) {
  Metrics metrics(Table());
  prometheus::Counter& lost = metrics.counters("t_calls_total").At({0, 1});
  lost.Increment();
  lost.Increment();
  metrics.counters("t_calls_total").At({1, 0}).Increment(5);
  EXPECT_EQ(&lost, &metrics.counters("t_calls_total").At({0, 1}));
  metrics.SetGauge("t_queue", 7);
  prometheus::Histogram& times = metrics.histograms("t_seconds").At({1});
  for (const double seconds : {.25, .75, 4., 100.}) times.Observe(seconds);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("t_calls_total{code=\"LOST\",rpc=\"A\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("t_calls_total{code=\"OK\",rpc=\"B\"} 5\n"));
  EXPECT_THAT(text, Not(HasSubstr("t_calls_total{code=\"OK\",rpc=\"A\"}")));
  EXPECT_THAT(text, HasSubstr("t_queue 7\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_count{rpc=\"B\"} 4\nt_seconds_sum{rpc=\"B\"} 105\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_bucket{rpc=\"B\",le=\"0.5\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_bucket{rpc=\"B\",le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_bucket{rpc=\"B\",le=\"10\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_bucket{rpc=\"B\",le=\"+Inf\"} 4\n"));
}

TEST(Metrics, ACounterSetFromATotalNeverFalls) {
  Metrics metrics({{"t_total", MetricType::kCounter, "All."}});
  std::string text;
  for (const auto& [total, shown] : {std::pair(10, 10), {25, 25}, {5, 25}}) {
    metrics.SetCounter("t_total", total);
    EXPECT_THAT(metrics.Text(), HasSubstr(absl::StrCat("t_total ", shown, "\n")));
  }
}

TEST(Metrics, RefreshesBeforeEachText) {
  Metrics metrics({{"t_scrapes_total", MetricType::kCounter, "Scrapes."}});
  metrics.OnScrape([&] { metrics.counters("t_scrapes_total").At().Increment(); });
  EXPECT_THAT(metrics.Text(), HasSubstr("t_scrapes_total 1\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("t_scrapes_total 2\n"));
}

TEST(Metrics, ThreadsCountTogether) {
  Metrics metrics(Table());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        metrics.counters("t_calls_total").At({n % 2, 0}).Increment();
        metrics.histograms("t_seconds").At({0}).Observe(1);
        if (n % 100 == 0) metrics.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("t_calls_total{code=\"OK\",rpc=\"A\"} 2000\n"));
  EXPECT_THAT(text, HasSubstr("t_calls_total{code=\"OK\",rpc=\"B\"} 2000\n"));
  EXPECT_THAT(text, HasSubstr("t_seconds_count{rpc=\"A\"} 4000\n"));
}

TEST(Metrics, TheTableAsMarkdown) {
  EXPECT_THAT(MarkdownRows(Table()),
              ElementsAre("| `t_calls_total` | counter | `rpc`, `code` | Calls. |",
                          "| `t_seconds` | histogram | `rpc` | Times. |", "| `t_queue` | gauge |  | Length. |",
                          "| `t_bytes_total` | counter | `way` | Bytes. |"));
}

TEST(Metrics, NamesOfStatusCodesAreThoseOfGrpc) {
  EXPECT_THAT(StatusCodeNames(),
              ElementsAre("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
                          "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
                          "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"));
}

double ValueOf(const std::string& text, const std::string& series) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.substr(0, series.size() + 1) == series + " ") return std::stod(std::string(line.substr(series.size())));
  }
  ADD_FAILURE() << "no " << series << " in\n" << text;
  return -1;
}

TEST(ProcessMetrics, AreThoseOfThisProcess) {
  Metrics metrics(ProcessTable("1.2.3"));
  WatchProcess(&metrics);
  const std::string before = metrics.Text();
  EXPECT_EQ(ValueOf(before, "tp_build_info{version=\"1.2.3\"}"), 1);
  EXPECT_GT(ValueOf(before, "process_start_time_seconds"), 1e9);
  EXPECT_GE(ValueOf(before, "process_threads"), 1);
  // What another path to the kernel says: pages in use, files opened here, processor time burnt here.
  double pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  EXPECT_NEAR(ValueOf(before, "process_virtual_memory_bytes"), pages * static_cast<double>(sysconf(_SC_PAGESIZE)),
              64 << 20);
  EXPECT_LT(ValueOf(before, "process_resident_memory_bytes"), ValueOf(before, "process_virtual_memory_bytes"));
  std::vector<std::ifstream> files;
  for (int i = 0; i < 5; ++i) files.emplace_back("/proc/self/status");
  while (clock() < 2 * CLOCKS_PER_SEC / 10) continue;
  const std::string after = metrics.Text();
  EXPECT_EQ(ValueOf(after, "process_open_fds"), ValueOf(before, "process_open_fds") + 5);
  EXPECT_GE(ValueOf(after, "process_cpu_seconds_total"), .1);
  EXPECT_GT(ValueOf(after, "process_max_fds"), ValueOf(after, "process_open_fds"));
}

}  // namespace
}  // namespace tp
