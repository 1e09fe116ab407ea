// Metrics: what a program counts, for Prometheus. All series of a program stand in one table with names, helps and the
// closed sets of their labels' values, so that documents and tests can list them and no label grows without bound.
// Example:
//   Metrics metrics({{"tp_requests_total", MetricType::kCounter, "Requests that ended.", {{"rpc", {"Forward"}}}}});
//   prometheus::Counter& forwards = metrics.counters("tp_requests_total").At({0});   // looked up once
//   forwards.Increment();   metrics.Text();   // tp_requests_total{rpc="Forward"} 1
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tp {

enum class MetricType { kCounter, kGauge, kHistogram };

struct MetricLabel {
  std::string name;
  std::vector<std::string> values;  // all that it can have
};

struct MetricDeclaration {
  std::string name;
  MetricType type = MetricType::kCounter;
  std::string help;  // one sentence, with the unit
  std::vector<MetricLabel> labels = {};
  std::vector<double> buckets = {};  // of a histogram: upper ends, ascending
  bool sparse = false;               // a series is shown from its first event on; else from the start, as 0
};
using MetricTable = std::vector<MetricDeclaration>;

// Upper ends of buckets for durations in seconds, from 1 ms to 5 min.
std::vector<double> SecondsBuckets();
// "OK", "CANCELLED", ...: names of absl's and gRPC's status codes, by number.
std::vector<std::string> StatusCodeNames();

// The series of one name. Thread-safe.
template <typename Series>
class SeriesOf {
 public:
  explicit SeriesOf(const MetricDeclaration& declaration, std::function<Series&(const std::vector<int>&)> make);
  // The one whose labels have the values with these indices, in the order of the declaration. A fixed address; after
  // the first call for it this takes no lock.
  Series& At(const std::vector<int>& values = {});

 private:
  std::vector<int> sizes_;
  std::function<Series&(const std::vector<int>&)> make_;
  std::vector<std::atomic<Series*>> series_;
};

// Thread-safe.
class Metrics {
 public:
  // TP_CHECKs the table: names, no name twice, labels with values.
  explicit Metrics(MetricTable table);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  const MetricTable& table() const { return table_; }
  // TP_CHECK that the table has it, of that type.
  SeriesOf<prometheus::Counter>& counters(const std::string& name);
  SeriesOf<prometheus::Gauge>& gauges(const std::string& name);
  SeriesOf<prometheus::Histogram>& histograms(const std::string& name);

  // Of series without labels, for values that are kept elsewhere; a counter never goes down.
  void SetGauge(const std::string& name, double value) { gauges(name).At().Set(value); }
  void SetCounter(const std::string& name, double total) { Raise(counters(name).At(), total); }
  static void Raise(prometheus::Counter& counter, double total) { counter.Increment(total - counter.Value()); }

  // Called before each Text(), one at a time, in the order in which they were added.
  void OnScrape(std::function<void()> refresh);
  // All series in Prometheus's text format, version 0.0.4.
  std::string Text();

 private:
  struct Families;
  const MetricTable table_;
  std::unique_ptr<Families> families_;
  absl::Mutex scrape_;
  std::vector<std::function<void()>> refresh_ ABSL_GUARDED_BY(scrape_);
};

// The table as rows of a Markdown table: | `name` | type | labels | help |.
std::vector<std::string> MarkdownRows(const MetricTable& table);

}  // namespace tp
