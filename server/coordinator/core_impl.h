// The inside of Core: its records, and its steps by concern. core.cc dispatches; core_workers.cc holds membership and
// lost workers; core_commands.cc streams and answers; core_submit.cc, core_load.cc and core_delete.cc a model's life;
// core_forward.cc and core_generate.cc its work. Included by those files only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/coordinator/core.h"
#include "server/coordinator/request_ids.h"
#include "server/scheduler/decode_composer.h"
#include "server/scheduler/streams.h"

namespace tp::server {

// A command whose answers are awaited.
struct CommandRecord {
  enum class Purpose { kCommit, kRun, kDecode, kFree };
  Purpose purpose = Purpose::kRun;
  uint64_t mesh_id = 0;
  std::string model;
  uint64_t call = 0;  // of a run, 0 = its client is gone; of a free, its deletion's id
  std::vector<int> ranks;
  std::vector<std::string> workers;
  std::vector<uint64_t> sessions;
  std::vector<std::optional<Ack>> acks;
  int missing = 0;
};

// Work beside the streams.
struct StageRecord {
  enum class Kind { kListen, kConnect, kLoad, kReceive };
  Kind kind = Kind::kListen;
  std::string worker;
  uint64_t session = 0;
  int rank = 0;
  std::string model;
  CallId call = 0;  // of a receive
  bool finished = false;
  int64_t done_bytes = -1;
  absl::Time last_change;
};

// A submission between its acceptance and READY.
struct LoadRecord {
  enum class Step { kStoring, kWaiting, kStaging, kCommitting };
  Step step = Step::kStoring;
  std::vector<CallId> calls;
  std::string request_id;
  bool restored = false;
  uint64_t store_token = 0;
  std::vector<uint64_t> stages;
  std::vector<std::string> addresses;  // by rank
  int listening = 0;                   // ranks
  bool connecting = false;
};

struct DeletionRecord {
  uint64_t id = 0;
  std::vector<CallId> calls;
  std::vector<std::string> request_ids;
  int commands = 0;          // whose answers are awaited
  uint64_t erase_token = 0;  // 0 = erased
  absl::Status status;
};

// What the coordinator knows of a mesh beside MeshState.
struct MeshRecord {
  std::vector<uint64_t> sessions;      // of its workers, by rank: a worker that joined again is another one
  std::optional<absl::Time> aborting;  // a command failed and more answers are awaited until then, for the first cause
  absl::Status cause;                  // what failed it
};

struct ForwardCall {
  enum class Step { kQueued, kStaging, kRunning };
  Step step = Step::kQueued;
  std::string model;
  std::map<std::string, HostTensor> inputs;
  Bindings bindings;
  absl::Time deadline;
  std::vector<std::vector<RunInput>> rank_inputs;
  std::vector<uint64_t> stages, input_transfers, result_transfers;
  int unstaged = 0;
};

struct GenerateCall {
  std::string model;
  uint64_t sequence_id = 0;
  absl::Time deadline;
};

// The work of one READY model.
struct ModelWork {
  std::deque<CallId> queue;  // forwards that wait
  int runs_in_flight = 0;
  bool executed = false;  // something has run since its load
  std::optional<DecodeComposer> composer;
  std::map<uint64_t, CallId> sequences;
};

class Core::Impl {
 public:
  explicit Impl(CoreOptions options);
  std::vector<Action> Apply(Event event, absl::Time now);
  int RunningCalls() const;

  CoreOptions options_;
  std::map<std::string, WorkerState> workers_;
  std::map<std::string, ModelState> models_;
  std::map<uint64_t, MeshState> meshes_;

 private:
  // --- core.cc
  void On(Tick);
  void On(DrainRequested);
  void On(CallCancelled event);
  void Emit(Action action) { actions_.push_back(std::move(action)); }
  void Changed(const std::string& model) { Emit(ModelChanged{model}); }
  absl::Status NoSuchModel(const std::string& name) const;
  // The model, where it can work; else the error that its clients get.
  absl::StatusOr<ModelState*> ReadyModel(const std::string& name);
  absl::Status CheckQueue() const;
  absl::Duration Scaled(absl::Duration limit) const { return limit * options_.time_scale; }

  // --- core_workers.cc
  void On(WorkerJoined event);
  void On(WorkerLost event);
  void On(WorkerHeartbeat event);
  // The healthy worker of that life; nullptr otherwise.
  WorkerState* Live(const std::string& worker, const std::string& incarnation);
  bool AliveRank(uint64_t mesh_id, int rank) const;
  void LoseWorker(const std::string& worker, const std::string& reason);
  void SendAborts(uint64_t mesh_id, const std::string& reason);
  // Ends a mesh's epoch: all calls and loads on it fail with `status`.
  void BreakMesh(uint64_t mesh_id, const absl::Status& status);
  bool WaitsForPeers(const WorkerState& worker) const;
  void CheckWorkers();
  std::string RankText(uint64_t mesh_id, int rank) const;  // "rank 1 (worker w1)"

  // --- core_commands.cc
  using KindForRank = std::function<decltype(Command::kind)(int rank)>;
  // Appends one command to the streams of the mesh's live ranks. Returns its order number; 0 where no rank lives.
  uint64_t Append(uint64_t mesh_id, CommandRecord::Purpose purpose, CommandClass command_class,
                  const std::string& model, CallId call, const KindForRank& kind);
  void On(AckReceived event);
  void Complete(uint64_t order);
  void CheckAborting();
  void ForgetCommands(uint64_t mesh_id);    // but those that free
  void FreedOn(const std::string& worker);  // a lost worker has freed all
  // Release and CloseMesh on all live ranks; the number of commands sent. `deletion`: whose answers they are, 0 =
  // nobody's.
  int FreeRanks(uint64_t mesh_id, const std::string& model, uint64_t deletion);
  absl::Status FirstCause(const CommandRecord& record) const;
  bool Usable(uint64_t mesh_id) const;

  // --- core_submit.cc
  void On(SubmitRequested event);
  void On(StoreFinished event);
  absl::Status CheckName(const std::string& name) const;
  // Chooses workers, checks their memory and makes the mesh.
  absl::Status Reserve(ModelState* model);
  void TryRestored();

  // --- core_load.cc
  void StartStaging(const std::string& name);
  uint64_t SendStageTo(uint64_t mesh_id, int rank, StageRecord::Kind kind, const std::string& model, CallId call,
                       decltype(Stage::kind) what);
  void On(StageProgressed event);
  void On(StageFinished event);
  void LoadStageFinished(StageRecord* stage, const StageResult& result);
  void OnCommitted(const CommandRecord& record, const absl::Status& status);
  void FailLoad(const std::string& name, const absl::Status& status);
  // Drops what it staged and forgets it. Returns whether ranks may have committed it.
  bool AbandonLoad(const std::string& name);
  void DropStages(const std::vector<uint64_t>& stages);
  void ForgetMesh(uint64_t mesh_id);
  void CheckStages();

  // --- core_delete.cc
  void On(DeleteRequested event);
  void FinishDeletion(const std::string& name);
  void ReplySubmit(const LoadRecord& load, const absl::Status& status, const std::string& name);

  // --- core_forward.cc
  void On(ForwardRequested event);
  void PumpForwards(const std::string& model);
  absl::Status StartForward(CallId id);
  void AppendRun(CallId id);
  void ReceiveFinished(const StageRecord& stage, const StageResult& result);
  void OnRunDone(const CommandRecord& record, const absl::Status& status);
  // Answers with a failure and forgets the call.
  void FailForward(CallId id, const absl::Status& status);
  void FailCalls(const std::string& model, const absl::Status& status);
  void CheckDeadlines();

  // --- core_generate.cc
  void On(GenerateRequested event);
  absl::StatusOr<NewSequence> CheckGenerate(const ModelState& model, const GenerateRequested& event) const;
  void PumpDecode(const std::string& model);
  void OnDecodeDone(const CommandRecord& record, const absl::Status& status);
  void FailGenerate(CallId id, const absl::Status& status);

  absl::Time now_;
  std::vector<Action> actions_;
  Order order_;
  RequestIds request_ids_;
  std::map<uint64_t, MeshRecord> mesh_records_;
  std::map<uint64_t, CommandRecord> commands_;  // by order number
  std::map<uint64_t, StageRecord> stages_;
  std::map<std::string, LoadRecord> loads_;
  std::vector<std::string> restored_;  // models that wait for workers, oldest first
  std::map<std::string, DeletionRecord> deletions_;
  std::map<std::string, std::vector<int64_t>> reserved_;  // bytes of each model by rank
  std::map<CallId, ForwardCall> forwards_;
  std::map<CallId, GenerateCall> generates_;
  std::map<std::string, ModelWork> work_;
  uint64_t last_mesh_ = 0, last_stage_ = 0, last_token_ = 0, last_transfer_ = 0, last_sequence_ = 0, last_session_ = 0;
  bool draining_ = false, drained_ = false;
};

}  // namespace tp::server
