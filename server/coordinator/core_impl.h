// The inside of Core: its steps by concern; records.h holds what they keep. core.cc dispatches; core_workers.cc holds
// membership and lost workers; core_commands.cc streams and answers; core_stages.cc work beside them and connecting a
// mesh. A model's life is in core_submit.cc,
// core_steps.cc, core_load.cc, core_replace.cc and core_delete.cc, its work in core_forward.cc
// (core_boundary.cc: inputs that are shards or tensors) and core_generate.cc. Named meshes are in core_meshes.cc, links
// between them in core_links.cc; named tensors in core_tensors.cc and a file for each request, all of them operations
// (core_operations.cc). Included by those only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/core.h"
#include "server/coordinator/memory_ledger.h"
#include "server/coordinator/records.h"
#include "server/coordinator/request_ids.h"
#include "server/coordinator/tensor_plan.h"
#include "server/scheduler/streams.h"

namespace tp::server {

class Core::Impl {
 public:
  explicit Impl(CoreOptions options);
  std::vector<Action> Apply(Event event, absl::Time now);
  int RunningCalls() const;
  CoreNumbers CountAll() const;  // core_numbers.cc

  CoreOptions options_;
  std::map<std::string, WorkerState> workers_;
  std::map<std::string, ModelState> models_;  // by name
  // By resident name: replacements on their way, and models that were replaced and still work.
  std::map<std::string, ModelState> behind_;
  std::map<uint64_t, MeshState> meshes_;
  std::map<std::string, NamedMesh> named_meshes_;
  std::map<std::string, TensorState> tensors_;
  MemoryLedger ledger_;

 private:
  // --- core.cc
  void On(Tick);
  void On(DrainRequested);
  void On(CallCancelled event);
  void Emit(Action action) { actions_.push_back(std::move(action)); }
  void Changed(const std::string& model) { Emit(ModelChanged{model}); }
  absl::Status NoSuchModel(const std::string& name) const;
  // What new requests get once a drain was requested.
  static absl::Status Draining();
  // The model, where it can work; else the error that its clients get.
  absl::StatusOr<ModelState*> ReadyModel(const std::string& name);
  absl::Status CheckQueue() const;
  absl::Duration Scaled(absl::Duration limit) const { return limit * options_.time_scale; }

  // --- core_workers.cc
  void On(WorkerJoined event);
  void On(WorkerLost event);
  void On(WorkerHeartbeat event);
  void On(WorkerDraining event);
  // Lets draining workers go that have no work any more.
  void LetWorkersGo();
  // Meshes on which something is under way that a client waits for.
  std::set<uint64_t> MeshesAtWork();
  // UNAVAILABLE naming the rank where a worker of the mesh drains.
  absl::Status CheckNotDraining(uint64_t mesh_id) const;
  // The healthy worker of that life; nullptr otherwise.
  WorkerState* Live(const std::string& worker, const std::string& incarnation);
  bool AliveRank(uint64_t mesh_id, int rank) const;
  void LoseWorker(const std::string& worker, const std::string& reason);
  void SendAborts(uint64_t mesh_id, const std::string& reason);
  // Ends a mesh's epoch: all calls, loads and operations on it fail with `status`.
  void BreakMesh(uint64_t mesh_id, const absl::Status& status);
  bool WaitsForPeers(const WorkerState& worker) const;
  void CheckWorkers();
  std::string RankText(uint64_t mesh_id, int rank) const;  // "rank 1 (worker w1)"
  // Workers for a new mesh. FAILED_PRECONDITION naming both numbers where too few are healthy.
  // `near`: a mesh that ends with it, 0 = none: its ranks do not count, its workers come first among equals.
  absl::StatusOr<std::vector<std::string>> WorkersFor(const Mesh& mesh, uint64_t near = 0) const;
  // FAILED_PRECONDITION where these can't form a mesh: of two kinds, on one device, or out of each other's reach.
  absl::Status CheckTogether(const std::vector<std::string>& workers) const;
  // RESOURCE_EXHAUSTED as MemoryLedger's; `workers` and `bytes` by rank.
  absl::StatusOr<uint64_t> ReserveMemory(const std::string& what, const std::vector<std::string>& workers,
                                         const std::vector<int64_t>& bytes);

  // --- core_commands.cc
  using KindForRank = std::function<decltype(Command::kind)(int rank)>;
  struct AppendOptions {
    CommandClass command_class = CommandClass::kControl;
    bool commits = false, frees = false;              // of CommandRecord
    std::vector<int> ranks = {};                      // that get it; empty = all
    absl::Duration allowance = absl::ZeroDuration();  // for the bytes that it moves, over the usual limit
  };
  // Beside the usual limit of a command, by the bytes that it moves.
  static absl::Duration AllowanceFor(int64_t bytes) {
    constexpr double kSlowestBytesPerSecond = 32 << 20;
    return absl::Seconds(static_cast<double>(bytes) / kSlowestBytesPerSecond);
  }
  // Appends one command to the streams of the mesh's live ranks. Returns its order number; 0 where no rank lives: then
  // `done` is never called.
  uint64_t Append(uint64_t mesh_id, const AppendOptions& options, const KindForRank& kind,
                  std::function<void(const CommandRecord&, const absl::Status&)> done);
  void On(AckReceived event);
  void Complete(uint64_t order);
  void CheckAborting();
  void ForgetCommands(uint64_t mesh_id);    // but those that free
  void FreedOn(const std::string& worker);  // a lost worker has freed all
  // Release (where `model` is not empty) and CloseMesh on all live ranks; `done` after each. The number of commands.
  int FreeRanks(uint64_t mesh_id, const std::string& model, const std::function<void()>& done);
  absl::Status FirstCause(const CommandRecord& record) const;
  bool Usable(uint64_t mesh_id) const;

  // --- core_stages.cc
  // A group without stages, whose `done` is called once all that AddStage gave it have finished.
  uint64_t OpenGroup(std::string what, Done done);
  uint64_t AddStage(uint64_t group, uint64_t mesh_id, int rank, decltype(Stage::kind) what);
  // Stops or frees what it staged and forgets it; `done` is not called any more.
  void DropGroup(uint64_t group);
  void ForgetGroup(uint64_t group);
  // Makes a mesh of these workers; not connected yet.
  uint64_t MakeMesh(const Mesh& mesh, const std::vector<std::string>& workers);
  // Its ranks listen, then connect with each other. What they staged is in MeshRecord::connect.
  void Connect(uint64_t mesh_id, Done done);
  // Publishes what the mesh's ranks staged: its connection, where it is not committed yet, then the groups in order.
  // The groups are the caller's still, until `done`.
  void CommitGroups(uint64_t mesh_id, std::vector<uint64_t> groups, Done done);
  // Forgets what is awaited of it and what it staged; its ranks are not told.
  void ForgetMesh(uint64_t mesh_id);
  void On(StageProgressed event);
  void On(StageFinished event);
  void FinishStage(uint64_t stage_id, const StageResult& result);  // a failure names its rank
  void FailStagesOn(const std::string& worker, const std::string& reason);
  void CheckStages();

  // --- core_steps.cc
  void On(CreateModelRequested event);
  void On(InitStatesRequested event);
  void On(ParallelizeRequested event);
  // Takes a submit or a step of one in. False: it is answered already, or waits with an equal one.
  bool BeginStep(CallId call, const std::string& request_id, const std::string& digest, const std::string& name);
  void EndStep(CallId call, const std::string& request_id, const absl::Status& status, const std::string& name);
  absl::StatusOr<ModelState*> ModelForStep(const std::string& name);
  // Both are known: stores and loads it; `after` is the model with plan and submission.
  void LoadAfterStep(CallId call, const std::string& request_id, ModelState after);

  // --- core_submit.cc
  void On(SubmitRequested event);
  void On(StoreFinished event);
  absl::Status CheckName(const std::string& name) const;
  // Chooses workers, checks their memory and makes the mesh.
  absl::Status Reserve(ModelState* model);
  absl::Status ReserveOn(ModelState* model, const std::vector<std::string>& chosen);
  void JoinLoad(const std::string& request_id, CallId call);
  void TryRestored();

  // --- core_replace.cc
  // The model that workers know by this name.
  ModelState& Resident(const std::string& resident);
  std::string NewResident(const std::string& name);
  // NOT_FOUND; FAILED_PRECONDITION where it is not READY, or is being replaced.
  absl::Status CheckReplace(const std::string& name) const;
  std::string ReplacementOf(const std::string& name) const;  // resident name; "" where none is on its way
  // Takes values over where they are the same, then loads.
  void StartMoves(const std::string& resident);
  absl::Status ReserveMoves(const std::string& resident);
  void MoveSome(const std::string& resident);
  absl::Status MoveStates(const std::string& resident, size_t end);
  void StoreReplacement(const std::string& resident);
  void SwitchTo(const std::string& resident);
  void FreeReplaced();  // those that have no more work

  // --- core_load.cc: by resident name
  void StartStaging(const std::string& name);
  void CommitLoad(const std::string& name);
  void OnLoadCommitted(const std::string& name, const absl::Status& status);
  void PublishLoad(const std::string& name);  // READY
  void FailLoad(const std::string& name, const absl::Status& status);
  // Drops what it staged and forgets it. Returns whether ranks may have committed it.
  bool AbandonLoad(const std::string& name);

  // --- core_delete.cc: by resident name
  void On(DeleteRequested event);
  void StartFreeing(const std::string& resident, bool committed, DeletionRecord deletion);
  void FinishDeletion(const std::string& name);
  void ReplySubmit(const LoadRecord& load, const absl::Status& status, const std::string& name);
  void ForgetReservation(const std::string& model);

  // --- core_forward.cc
  void On(ForwardRequested event);
  void PumpForwards(const std::string& model);
  absl::Status StartForward(CallId id);
  void AppendRun(CallId id);
  // One of the things that a forward waits for has ended.
  void OnInputReady(CallId id, const absl::Status& status);
  void OnRunDone(CallId id, const std::string& model, const CommandRecord& record, const absl::Status& status);
  // Answers with a failure and forgets the call.
  void FailForward(CallId id, const absl::Status& status);
  void FailCalls(const std::string& model, const absl::Status& status);
  void CheckDeadlines();

  // --- core_boundary.cc
  // Checks all inputs and fills the call's; holds the tensors that it reads.
  absl::Status TakeInputs(ForwardRequested* event, const ModelState& model, const ForwardProgram& program,
                          ForwardCall* call);
  absl::StatusOr<MovedInput> RefInput(const std::string& input, const std::string& tensor, const ModelState& model,
                                      const ForwardProgram& program);
  // Has the ranks make what the program takes of a moved input.
  absl::Status StartMove(CallId id, MovedInput input);
  absl::Status StageShards(CallId id, MovedInput input);
  absl::Status Redistribute(CallId id, const MovedInput& input);
  void OnMoved(CallId id, const std::string& input, uint64_t tensor_id);

  // --- core_generate.cc
  void On(GenerateRequested event);
  absl::StatusOr<NewSequence> CheckGenerate(const ModelState& model, const GenerateRequested& event) const;
  void PumpDecode(const std::string& model, size_t replica);
  void OnDecodeDone(const std::string& model, size_t replica, const CommandRecord& record, const absl::Status& status);
  void FailGenerate(CallId id, const absl::Status& status);

  // --- core_operations.cc
  // Takes a request in. 0: it is answered already, or waits with an equal one.
  uint64_t BeginOperation(const RequestHead& head, std::string what);
  Operation* FindOperation(uint64_t id);
  uint64_t OperationOf(CallId call) const;  // 0 = none
  // Frees what it holds, undoes it where `status` is a failure, and answers.
  void EndOperation(uint64_t id, const absl::Status& status);
  void CancelOperation(uint64_t id, CallId call);
  void EndOperationsOn(uint64_t mesh_id, const absl::Status& status);
  // Goes on with `next` while the operation lives; ends it where what was awaited, or `next`, fails.
  Done Then(uint64_t id, std::function<absl::Status()> next);
  absl::Status MeshInUse(uint64_t mesh_id, uint64_t but_operation) const;

  // --- core_blocks.cc: tensors' blocks on workers
  // Reserves `bytes` by rank for a new id.
  absl::StatusOr<uint64_t> NewBlocks(uint64_t mesh_id, const std::string& what, const std::vector<int64_t>& bytes);
  void UseBlocks(uint64_t operation, uint64_t tensor_id);
  void ReleaseBlocks(uint64_t tensor_id);  // one use
  // Frees them on all live ranks once nothing uses them; `dropped` then.
  void DropBlocks(uint64_t tensor_id, Done dropped);
  void TryDrop(uint64_t tensor_id);
  // Stages `tensors` by rank, each into its new blocks.
  uint64_t StageBlocks(uint64_t operation, uint64_t mesh_id, const std::string& what, uint64_t seed,
                       const std::function<std::vector<NewTensor>(int rank)>& tensors, Done done);
  // Commits a group that staged the blocks of `tensor_ids`.
  void CommitBlocks(uint64_t operation, uint64_t mesh_id, uint64_t group, const std::vector<uint64_t>& tensor_ids,
                    Done done);
  // Runs a plan on blocks; `output` is new. Adds to the operation's counts.
  void RunTransform(uint64_t operation, uint64_t mesh_id, const TransformPlan& plan, uint64_t input, uint64_t output,
                    Done done);
  // New blocks for a plan's output, and its scratch, which the operation holds.
  absl::StatusOr<uint64_t> BlocksForTransform(uint64_t operation, uint64_t mesh_id, const std::string& what,
                                              const TransformPlan& plan);

  // --- core_meshes.cc
  void On(CreateMeshRequested event);
  void On(DeleteMeshRequested event);
  absl::Status StartMesh(uint64_t operation, const CreateMeshRequested& event);
  absl::Status StartMeshDeletion(uint64_t operation, const std::string& name);
  absl::StatusOr<NamedMesh*> FindMesh(const std::string& name, const std::string& field);
  // One that can be worked on.
  absl::StatusOr<NamedMesh*> ReadyMesh(const std::string& name, const std::string& field);
  absl::Status CheckUsable(const NamedMesh& mesh) const;
  void NamedMeshBroken(uint64_t mesh_id, const absl::Status& status);

  // --- core_links.cc
  // Connects a link between two meshes, or takes the one that is there.
  void WithLink(uint64_t a, uint64_t b, Done done);
  const LinkRecord* FindLink(uint64_t a, uint64_t b) const;
  void CloseLinks(uint64_t mesh_id, const absl::Status& status);  // that begin or end at it, or are it
  // Moves blocks to another mesh over its link.
  void RunTransfer(uint64_t operation, const HopPlan& plan, uint64_t input, uint64_t output, uint64_t source_mesh,
                   uint64_t target_mesh, Done done);

  // --- core_tensors.cc
  void On(DeleteTensorRequested event);
  absl::Status StartTensorDeletion(uint64_t operation, const std::string& name);
  absl::StatusOr<TensorState*> FindTensor(const std::string& name, const std::string& field);
  // One that has its values.
  absl::StatusOr<TensorState*> ReadyTensor(const std::string& name, const std::string& field);
  absl::Status CheckTensorName(const std::string& name, const std::string& field) const;
  // Enters a name that the operation makes; it is CREATING until PublishTensor.
  TensorState* EnterTensor(uint64_t operation, TensorState state);
  void PublishTensor(uint64_t operation, const std::string& name);
  void LoseTensors(uint64_t mesh_id, const std::string& cause);

  // --- core_put.cc
  void On(PutTensorRequested event);
  void On(PutProgressed event);
  void On(PutSent event);
  absl::Status StartPut(uint64_t operation, CallId call, PutTensorRequested event);
  void CommitPut(uint64_t operation);

  // --- core_create.cc
  void On(CreateTensorRequested event);
  absl::Status StartCreate(uint64_t operation, const CreateTensorRequested& event);
  void On(LoadTensorsRequested event);
  absl::Status StartLoad(uint64_t operation, const LoadTensorsRequested& event);
  absl::Status LoadFound(uint64_t operation, const LoadTensorsRequested& event, const std::vector<FoundTensor>& found);

  // --- core_redistribute.cc
  void On(RedistributeTensorRequested event);
  absl::Status StartRedistribute(uint64_t operation, const RedistributeTensorRequested& event);
  void RunMove(uint64_t operation, std::shared_ptr<const MovePlan> plan, std::vector<uint64_t> ids,
               uint64_t source_mesh, uint64_t target_mesh, Done done);
  void FinishRedistribute(uint64_t operation, const std::string& source, const std::string& target, uint64_t result);

  // --- core_get.cc
  void On(GetTensorRequested event);
  void On(GetFinished event);
  absl::Status StartGet(uint64_t operation, const GetTensorRequested& event);
  absl::Status SendBlocks(uint64_t operation, const TensorState& tensor, bool local_blocks);
  // Without P: `next` gets the tensor itself, or a temporary.
  absl::Status ReducePartial(uint64_t operation, const TensorState& tensor,
                             std::function<absl::Status(const TensorState&)> next);

  // --- core_save.cc
  void On(SaveTensorsRequested event);
  absl::Status StartSave(uint64_t operation, const SaveTensorsRequested& event);
  absl::Status WriteFiles(uint64_t operation, const std::string& directory, const std::vector<TensorState>& tensors,
                          const std::vector<std::string>& names);

  absl::Time now_;
  CoreCounts counts_;
  std::vector<Action> actions_;
  Order order_;
  RequestIds request_ids_;
  std::map<uint64_t, MeshRecord> mesh_records_;
  std::map<uint64_t, CommandRecord> commands_;  // by order number
  std::map<uint64_t, StageRecord> stages_;
  std::map<uint64_t, StageGroup> groups_;
  std::map<std::string, LoadRecord> loads_;
  std::vector<std::string> restored_;  // models that wait for workers, oldest first
  std::map<std::string, DeletionRecord> deletions_;
  std::map<std::string, uint64_t> reserved_;  // memory of each model
  std::map<CallId, ForwardCall> forwards_;
  std::map<CallId, GenerateCall> generates_;
  std::map<std::string, ModelWork> work_;
  std::map<uint64_t, Operation> operations_;
  std::map<uint64_t, BlockRecord> blocks_;                     // by tensor id
  std::map<std::pair<uint64_t, uint64_t>, LinkRecord> links_;  // by both meshes' ids, the smaller one first
  uint64_t last_mesh_ = 0, last_stage_ = 0, last_group_ = 0, last_token_ = 0, last_transfer_ = 0, last_sequence_ = 0,
           last_session_ = 0, last_operation_ = 0, last_tensor_ = 0, last_resident_ = 1;
  bool draining_ = false;
};

}  // namespace tp::server
