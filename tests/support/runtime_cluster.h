// N worker runtimes in one process over the in-process backend, driven as a coordinator would: one total order, the
// same commands on all ranks. Example:
//   RuntimeCluster cluster(2);
//   ASSERT_TRUE(cluster.Connect().ok());
//   ASSERT_TRUE(cluster.Load(submission).ok());
//   auto answer = cluster.Forward("mlp", {{"x", x}});
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/program/compile.h"
#include "common/tensor/host_tensor.h"
#include "worker/collective/in_process/in_process_backend.h"
#include "worker/runtime/worker_runtime.h"

namespace tp::testing {

// Keeps what one runtime answers. Thread-safe.
class RecordingSink : public worker::RuntimeSink {
 public:
  void OnAck(Ack ack) override;
  void OnStageResult(StageResult result) override;
  void OnProgress(uint64_t stage_id, int64_t done_bytes, int64_t total_bytes) override;
  void OnResultData(uint64_t transfer_id, std::vector<worker::DataBlock> blocks) override;
  void OnReceiveWanted(uint64_t stage_id, uint64_t transfer_id, int64_t size_bytes) override;
  void OnTransferDropped(uint64_t transfer_id) override;

  // The next unread answer, in order; a status DEADLINE_EXCEEDED where none comes within a minute.
  Ack NextAck();
  StageResult ResultOf(uint64_t stage_id);
  // Waits for the blocks of a transfer and reads them whole.
  std::vector<std::string> DataOf(uint64_t transfer_id);
  // Waits until this transfer is wanted; its size, -1 where it never is.
  int64_t WantedSize(uint64_t transfer_id);
  int64_t last_progress() const;
  std::vector<uint64_t> wanted() const;   // stage ids
  std::vector<uint64_t> dropped() const;  // transfer ids

 private:
  template <typename Ready>
  bool WaitFor(std::unique_lock<std::mutex>& lock, Ready ready);
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Ack> acks_;
  size_t read_ = 0;
  std::map<uint64_t, StageResult> results_;
  std::map<uint64_t, std::vector<worker::DataBlock>> data_;
  std::vector<uint64_t> wanted_, dropped_;
  std::map<uint64_t, int64_t> sizes_;
  int64_t progress_ = -1;
};

struct ClusterAnswer {
  absl::Status status;    // of the rank that failed first, else the first that is not OK
  std::vector<Ack> acks;  // by rank
  std::map<std::string, HostTensor> outputs;
};

class RuntimeCluster {
 public:
  using WrapDevice = std::function<std::unique_ptr<worker::Device>(int rank, std::unique_ptr<worker::Device>)>;
  // What rank's device exchanges tensors by, made around the in-process backend.
  using WrapBackend = std::function<std::unique_ptr<worker::CollectiveBackend>(
      int rank, worker::Device& device, std::unique_ptr<worker::CollectiveBackend>)>;
  // Ranks on the CPU. In runtime_cluster_cpu.cc, so that a program without that device can have the other one.
  explicit RuntimeCluster(int ranks, WrapDevice wrap = nullptr, worker::WorkerRuntimeOptions options = {},
                          WrapBackend wrap_backend = nullptr);
  // A rank on each of the devices.
  explicit RuntimeCluster(std::vector<std::unique_ptr<worker::Device>> devices,
                          worker::WorkerRuntimeOptions options = {}, const WrapBackend& wrap_backend = nullptr);

  int ranks() const { return static_cast<int>(runtimes_.size()); }
  worker::WorkerRuntime& runtime(int rank) { return *runtimes_[rank]; }
  RecordingSink& sink(int rank) { return *sinks_[rank]; }
  uint64_t epoch() const { return epoch_; }

  // Communicators of a new epoch.
  absl::Status Connect();
  // Compiles and loads; `compiled` gets the model.
  absl::Status Load(const Submission& submission, int cache_pages = 32, CompiledModel* compiled = nullptr);
  // The stage of one rank as Load makes it.
  StageLoad MakeLoad(const CompiledModel& model, const Submission& submission, int rank, int cache_pages) const;
  // Results by rank.
  std::vector<StageResult> RunStages(const std::function<Stage(int rank)>& make);
  uint64_t NextStageId() { return ++last_stage_; }

  ClusterAnswer Forward(const std::string& model, const std::map<std::string, HostTensor>& inputs);
  ClusterAnswer Decode(tp::Decode decode);
  // Sends a command to all ranks; what differs by rank is made by `make`.
  using Kind = decltype(Command::kind);
  void Send(const std::function<Kind(int rank)>& make);
  // The same to some of them, for a mesh of theirs; `make` gets an index in `members`.
  void SendTo(uint64_t mesh_id, uint64_t epoch, const std::vector<int>& members,
              const std::function<Kind(int rank)>& make);
  // The answers of all ranks to the oldest command that is not collected.
  ClusterAnswer Collect();
  ClusterAnswer CollectFrom(const std::vector<int>& members);
  // Stages on some of them; `make` gets an index in `members`.
  std::vector<StageResult> RunStagesOn(const std::vector<int>& members, const std::function<Stage(int rank)>& make);

 private:
  std::shared_ptr<worker::InProcessHub> hub_ = worker::CreateInProcessHub();
  RealClock clock_;
  std::vector<std::unique_ptr<RecordingSink>> sinks_;
  std::vector<std::unique_ptr<worker::WorkerRuntime>> runtimes_;
  std::map<std::string, CompiledModel> models_;
  std::vector<uint64_t> sequences_;  // last one sent, by rank
  uint64_t epoch_ = 0, order_ = 0, last_stage_ = 0;
  std::vector<int> all_;
};

}  // namespace tp::testing
