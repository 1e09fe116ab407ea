// CoordinatorMetrics: all that the coordinator counts. What happens to requests and relayed bytes is counted where it
// happens; the core's numbers are taken over at each scrape. Example:
//   CoordinatorMetrics metrics({"Forward", "Generate"}, "0.1.0");
//   metrics.RequestBegan(0);   metrics.RequestEnded(0, absl::StatusCode::kOk, absl::Milliseconds(3));
//   metrics.Show(core.numbers());   metrics.Text();
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "server/coordinator/core_numbers.h"

namespace tp::server {

// `rpcs`: the methods that clients call.
MetricTable CoordinatorTable(const std::vector<std::string>& rpcs, const std::string& version);

// Thread-safe.
class CoordinatorMetrics {
 public:
  CoordinatorMetrics(const std::vector<std::string>& rpcs, const std::string& version);

  // `rpc`: index in `rpcs`. Each Began is followed by one Ended.
  void RequestBegan(int rpc) { running_.At({rpc}).Increment(); }
  void RequestEnded(int rpc, absl::StatusCode code, absl::Duration took);

  // Bytes of tensors that pass through on data streams.
  void RelayedToWorker(size_t bytes) { to_workers_.Increment(static_cast<double>(bytes)); }
  void RelayedFromWorker(size_t bytes) { from_workers_.Increment(static_cast<double>(bytes)); }

  void Show(const CoreNumbers& numbers);
  // How long the core's thread took to answer a question; the longest wait where it did not.
  void ShowDelay(absl::Duration delay) { metrics_.SetGauge("tp_core_delay_seconds", absl::ToDoubleSeconds(delay)); }
  void ShowDraining(bool draining) { metrics_.SetGauge("tp_draining", draining ? 1 : 0); }
  std::string Text() { return metrics_.Text(); }

 private:
  Metrics metrics_;
  SeriesOf<prometheus::Counter>& requests_;
  SeriesOf<prometheus::Histogram>& seconds_;
  SeriesOf<prometheus::Gauge>& running_;
  prometheus::Counter& to_workers_;
  prometheus::Counter& from_workers_;
};

}  // namespace tp::server
