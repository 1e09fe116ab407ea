// WorkerMetrics: all that a worker counts. Commands are counted as they end, collectives in CollectiveCounters; what
// the runtime holds is taken over at each scrape. Example:
//   WorkerMetrics metrics("0.1.0", memory_limit);
//   metrics.CommandDone(command.kind.index(), absl::StatusCode::kOk, took);   metrics.Text();
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "worker/collective/counting_communicator.h"
#include "worker/runtime/worker_runtime.h"

namespace tp::worker {

MetricTable WorkerTable(const std::string& version);

// Thread-safe.
class WorkerMetrics {
 public:
  // `memory_limit_bytes`: 0 = none.
  WorkerMetrics(const std::string& version, int64_t memory_limit_bytes);

  // `kind`: index of Command::kind.
  void CommandDone(size_t kind, absl::StatusCode code, absl::Duration took);
  void StageDone(const StageResult& result);
  void Joined() { joins_.Increment(); }
  void Show(const RuntimeUsage& usage, const CollectiveTally& collectives);
  void ShowMembership(bool member, bool draining);
  std::string Text() { return metrics_.Text(); }

 private:
  Metrics metrics_;
  SeriesOf<prometheus::Counter>& commands_;
  SeriesOf<prometheus::Histogram>& seconds_;
  SeriesOf<prometheus::Counter>& stages_;
  prometheus::Counter& read_bytes_;
  prometheus::Counter& joins_;
};

}  // namespace tp::worker
