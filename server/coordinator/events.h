// Events that reach the coordinator's core, and the actions that it answers with. Values; adapters translate gRPC,
// SQLite and timers to and from them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/program/command.h"
#include "common/program/compile.h"
#include "common/tensor/host_tensor.h"
#include "server/coordinator/state.h"

namespace tp::server {

using CallId = uint64_t;  // of one client call; given by the adapter, never reused

// --- Events.
struct WorkerJoined {
  WorkerDescription worker;
};
struct WorkerLost {  // its session or its command stream broke
  std::string worker, incarnation, reason;
};
struct WorkerDraining {  // it is asked to stop
  std::string worker, incarnation;
};
struct WorkerHeartbeat {
  std::string worker, incarnation;
  uint64_t completed_sequence = 0;
  int64_t used_bytes = 0;
  uint64_t progress = 0;  // grows while a command moves
};
struct StageProgressed {
  std::string worker, incarnation;
  uint64_t stage_id = 0;
  int64_t done_bytes = 0, total_bytes = 0;
};
struct StageFinished {
  std::string worker, incarnation;
  StageResult result;
};
struct AckReceived {
  std::string worker, incarnation;
  Ack ack;
};
struct SubmitRequested {
  CallId call = 0;         // 0: restored from the store, nobody waits
  std::string request_id;  // "" = none given
  std::string digest;      // of the request's content
  std::shared_ptr<const Submission> submission;
  std::shared_ptr<const CompiledModel> compiled;
  std::string blob;      // what the store keeps
  bool replace = false;  // the READY model of its name
  bool dry_run = false;  // only checks the name
};
// The steps of a submit, one by one; each is answered by a SubmitReply.
struct CreateModelRequested {
  CallId call = 0;
  std::string request_id, digest;
  std::shared_ptr<const Submission> submission;
};
struct InitStatesRequested {
  CallId call = 0;
  std::string request_id, digest;
  std::string name;
};
struct ParallelizeRequested {
  CallId call = 0;
  std::string request_id, digest;
  std::string name;
  std::shared_ptr<const Submission> base;        // that the model had when it was compiled
  std::shared_ptr<const Submission> submission;  // with the plan
  std::shared_ptr<const CompiledModel> compiled;
  std::string blob;  // what the store keeps
};
struct StoreFinished {
  uint64_t token = 0;
  absl::Status status;
};
struct DeleteRequested {
  CallId call = 0;
  std::string request_id;
  std::string name;
};
struct GenerateRequested {
  CallId call = 0;
  std::string model;
  std::vector<int64_t> token_ids;
  int max_new_tokens = 0;  // 0 = as many as fit, at most 256
  bool ignore_eos = false;
  Sampling sampling;
  absl::Time deadline = absl::InfiniteFuture();
};
struct CallCancelled {
  CallId call = 0;
};
// --- Named meshes and tensors.
struct RequestHead {
  CallId call = 0;
  std::string request_id;  // "" = none given
  std::string digest;      // of the request's content
};
using NamedPlacements = std::map<std::string, Placement>;  // axis name -> placement
struct CreateMeshRequested {
  RequestHead head;
  std::string name;
  Mesh mesh;
  std::vector<std::string> workers;  // by rank; empty: chosen
};
struct DeleteMeshRequested {
  RequestHead head;
  std::string name;
};
struct LocalBlockShape {
  int rank = 0;
  Shape shape;
};
// An input of a forward as blocks of ranks.
struct InputShards {
  NamedPlacements placements;
  DType dtype = DType::kF32;
  Shape shape;               // global
  bool infer_shape = false;  // of locals
  std::vector<LocalBlockShape> locals;
  std::vector<std::string> data;  // of the locals, row-major
};
// A name is in one of the three maps.
struct ForwardRequested {
  CallId call = 0;
  std::string model;
  std::map<std::string, HostTensor> inputs;  // full global tensors
  std::map<std::string, InputShards> shards = {};
  std::map<std::string, std::string> refs = {};  // names of tensors
  bool local_blocks = false;                     // the answer holds every rank's block of each output
  absl::Time deadline = absl::InfiniteFuture();
  // Runs in place of the model's program, on its states; nullptr = that. Compiled from `base`, the model's submission.
  std::shared_ptr<const ForwardProgram> program = nullptr;
  std::shared_ptr<const Submission> base = nullptr;
};
// Answered by a PutStarted; then come PutProgressed at times and one PutSent, or a CallCancelled.
struct PutTensorRequested {
  RequestHead head;
  std::string name, mesh;
  NamedPlacements placements;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<LocalBlockShape> locals = {};  // empty: the global tensor is sent
  bool infer_shape = false;                  // of locals
  int src_data_rank = 0;
  bool no_src_data_rank = false;
};
struct PutProgressed {
  CallId call = 0;
};
struct PutSent {  // all bytes have been passed on
  CallId call = 0;
};
struct CreateTensorRequested {
  RequestHead head;
  std::string name, mesh;
  NamedPlacements placements;
  DType dtype = DType::kF32;
  Shape shape;
  Initializer initializer;
  uint64_t seed = 0;
};
struct RedistributeTensorRequested {
  RequestHead head;
  std::string name, mesh;  // mesh "": its own
  NamedPlacements placements;
  std::string as;
};
// Answered with the blocks of its transfers; held until GetFinished or CallCancelled.
struct GetTensorRequested {
  RequestHead head;
  std::string name;
  bool local_blocks = false;
};
struct GetFinished {
  CallId call = 0;
};
struct DeleteTensorRequested {
  RequestHead head;
  std::string name;
};
struct SaveTensorsRequested {
  RequestHead head;
  std::string directory;
  std::vector<std::string> names;
};
struct LoadTensorsRequested {
  RequestHead head;
  std::string directory, mesh;
  NamedPlacements placements;
  std::vector<std::string> names;  // empty: all
};
struct Tick {};
struct DrainRequested {};  // new calls are refused with UNAVAILABLE

using Event = std::variant<WorkerJoined, WorkerLost, WorkerDraining, WorkerHeartbeat, StageProgressed, StageFinished,
                           AckReceived, SubmitRequested, CreateModelRequested, InitStatesRequested,
                           ParallelizeRequested, StoreFinished, DeleteRequested, ForwardRequested, GenerateRequested,
                           CallCancelled, CreateMeshRequested, DeleteMeshRequested, PutTensorRequested, PutProgressed,
                           PutSent, CreateTensorRequested, RedistributeTensorRequested, GetTensorRequested, GetFinished,
                           DeleteTensorRequested, SaveTensorsRequested, LoadTensorsRequested, Tick, DrainRequested>;

// --- Actions.
struct SendWelcome {
  std::string worker;
  uint64_t term = 0;
};
struct RefuseJoin {  // answers WorkerJoined in place of a welcome
  std::string worker, incarnation;
  absl::Status status;
};
struct SendCommand {
  std::string worker;
  Command command;
};
struct SendStage {
  std::string worker;
  Stage stage;
};
struct SendDrop {
  std::string worker;
  uint64_t stage_id = 0;
};
struct SendAbort {
  std::string worker;
  uint64_t mesh_id = 0, epoch = 0;
  std::string reason;
};
struct SendFence {  // and closes its streams
  std::string worker, incarnation, reason;
};
struct LetWorkerGo {  // a draining worker has no more work
  std::string worker;
};
// Bytes that a worker will fetch over a data stream.
struct OfferTransfer {
  std::string worker;
  uint64_t transfer_id = 0;
  std::shared_ptr<const std::string> bytes;
};
// Forget a transfer: nobody will use it any more.
struct CancelTransfer {
  uint64_t transfer_id = 0;
};
struct StoreSubmission {
  uint64_t token = 0;
  std::string name, blob;
};
struct EraseSubmission {
  uint64_t token = 0;
  std::string name;
};
struct SubmitReply {
  CallId call = 0;
  absl::Status status;
  std::string name;
};
struct DeleteReply {
  CallId call = 0;
  absl::Status status;
};
// A block of an answer: its bytes, or the streamed block `stream_index` of a transfer that a worker uploads.
struct AnswerBlock {
  uint32_t output = 0;
  Shape offset, shape;
  std::string data;
  uint64_t transfer_id = 0;  // 0 = `data`
  uint32_t stream_index = 0;
  int64_t size_bytes = 0;
  int rank = 0;  // that sends it
};
struct AnswerOutput {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  Placements placements;
};
struct ForwardReply {
  CallId call = 0;
  absl::Status status;
  Mesh mesh;  // of the model
  std::vector<AnswerOutput> outputs;
  std::vector<AnswerBlock> blocks;
  std::vector<CollectiveRecord> collectives;  // maximum over ranks, in program order
  int64_t wire_bytes = 0, duration_us = 0;
};
// Some new tokens of a generation; the last one has `done` (with a finish reason, or a failed status).
struct GenerateProgress {
  CallId call = 0;
  absl::Status status;
  std::vector<int64_t> token_ids;
  std::string finish_reason;
  bool done = false;
};
// The call may send a put's bytes: each target's block over its transfer, row-major.
struct PutTarget {
  int rank = 0;
  std::string worker;
  uint64_t transfer_id = 0;
  int64_t size_bytes = 0;
  int local = -1;   // index in the request's locals
  int copy_of = 0;  // rank of the first of its equal copies; of locals
};
struct PutStarted {
  CallId call = 0;
  Mesh mesh;
  DType dtype = DType::kF32;
  Shape shape;
  Placements placements;
  std::vector<PutTarget> targets;  // by rank; blocks without elements are left out
};
// A step of a redistribute, as planned or as counted.
struct StepCount {
  std::string op, axis;
  int64_t bytes = 0;
  bool operator==(const StepCount&) const = default;
};
// The answer to a request about named meshes and tensors; each uses its own fields.
struct OperationReply {
  CallId call = 0;
  absl::Status status;
  std::string mesh;                       // name of a mesh that was made
  std::vector<TensorState> tensors;       // as they are now
  std::vector<StepCount> steps, counted;  // of a redistribute
  int64_t wire_bytes = 0, duration_us = 0;
  std::vector<AnswerBlock> blocks;  // of a get
  std::vector<std::string> files;   // of a save
  int64_t size_bytes = 0;           // of a save; read by a load
};
struct ModelChanged {  // for watchers; also sent once it is gone
  std::string name;
};

using Action = std::variant<SendWelcome, RefuseJoin, SendCommand, SendStage, SendDrop, SendAbort, SendFence,
                            LetWorkerGo, OfferTransfer, CancelTransfer, StoreSubmission, EraseSubmission, SubmitReply,
                            DeleteReply, ForwardReply, GenerateProgress, PutStarted, OperationReply, ModelChanged>;

}  // namespace tp::server
