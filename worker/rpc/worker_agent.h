// WorkerAgent: a worker as a member of a cluster: its runtime, and sessions one after the other for as long as it runs.
// Example:
//   WorkerAgent agent(options, std::move(device), std::move(backend), &clock);
//   std::thread thread([&] { agent.Run(); });  ...  agent.Stop();  thread.join();
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/tls_files.h"
#include "worker/metrics/worker_metrics.h"
#include "worker/rpc/session.h"

namespace tp::worker {

struct WorkerAgentOptions {
  std::string server;  // HOST:PORT of the coordinator
  std::string id;
  std::string version;
  std::string collective_host;
  std::string metrics_listen = {};  // HOST:PORT of /metrics, /livez and /readyz; "" = none, port 0 = any
  double drain_seconds = 10;        // how long a worker that was told to stop waits for what it runs
  TlsFiles tls = {};                // towards the coordinator; plain text where none is named
  int64_t memory_limit_bytes = 0;
  WorkerRuntimeOptions runtime;
};

class WorkerAgent : public RuntimeSink {
 public:
  WorkerAgent(WorkerAgentOptions options, std::unique_ptr<Device> device, std::unique_ptr<CollectiveBackend> backend,
              const Clock* clock);
  ~WorkerAgent() override;

  // Joins, serves, and joins anew with backoff whenever a session ends. Returns OK after Stop() or Drain(); the
  // coordinator's status where it refuses the worker as it is: another version, or an address that others can't reach.
  absl::Status Run();
  // Leaves once its work is done: the coordinator gives it no more. At the latest after `limit` or `*hurry` it leaves
  // as Stop() does. Blocks. Thread-safe.
  void Drain(absl::Duration limit, const std::atomic<bool>* hurry);
  // Leaves cleanly, and cuts what runs. Thread-safe.
  void Stop();

  // --- For HTTP (common/http/probes.h); thread-safe.
  std::string MetricsText();
  // OK where the thread in Run() goes on.
  absl::Status Live();
  // OK while the worker is a member and does not leave; else why it is none.
  absl::Status Ready();

  // --- RuntimeSink
  void OnAck(Ack ack) override;
  void OnStageResult(StageResult result) override;
  void OnProgress(uint64_t stage_id, int64_t done_bytes, int64_t total_bytes) override;
  void OnResultData(uint64_t transfer_id, std::vector<DataBlock> blocks) override;
  void OnReceiveWanted(uint64_t stage_id, uint64_t transfer_id, int64_t size_bytes) override;
  void OnTransferDropped(uint64_t transfer_id) override;
  void OnCommandDone(size_t kind, absl::StatusCode code, absl::Duration took) override;

 private:
  // The session that is a member now, if any.
  std::shared_ptr<WorkerSession> Member();
  void SetMember(std::shared_ptr<WorkerSession> session);
  absl::Status RunSession(bool* refused);
  void Turn();

  const WorkerAgentOptions options_;
  const std::string device_text_;
  const bool widens_bf16_;
  const std::string collectives_text_, device_identity_;
  const Clock* const clock_;
  const WorkerChannels channels_;
  CollectiveCounters counters_;
  WorkerMetrics metrics_;
  std::unique_ptr<WorkerRuntime> runtime_;
  absl::Mutex mutex_;
  std::shared_ptr<WorkerSession> session_ ABSL_GUARDED_BY(mutex_);  // that runs
  std::shared_ptr<WorkerSession> member_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("it has not joined yet");  // it is no member
  absl::Time turned_ ABSL_GUARDED_BY(mutex_);  // when Run() last went on
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;  // joins no more
};

}  // namespace tp::worker
