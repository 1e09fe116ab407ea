// Records of the coordinator's core: what it awaits, and for whom. Included by core_impl.h only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/coordinator/events.h"
#include "server/coordinator/forward_shards.h"
#include "server/coordinator/replace_plan.h"
#include "server/coordinator/tensor_plan.h"
#include "server/scheduler/decode_composer.h"

namespace tp::server {

// What follows once something has ended. Where what it belongs to has gone meanwhile it does nothing.
using Done = std::function<void(const absl::Status&)>;

// A command whose answers are awaited.
struct CommandRecord {
  uint64_t mesh_id = 0;
  bool commits = false;  // is undone on all ranks where some fail; else those that differ end the epoch
  bool frees = false;    // outlives its mesh; a lost worker has done it
  std::vector<int> ranks;
  std::vector<std::string> workers;
  std::vector<uint64_t> sessions;
  std::vector<std::optional<Ack>> acks;
  int missing = 0;
  // Once all have answered; never where its mesh breaks or is forgotten before.
  std::function<void(const CommandRecord&, const absl::Status&)> done;
};

// Work beside the streams, on one worker.
struct StageRecord {
  uint64_t group = 0;
  std::string worker;
  uint64_t session = 0;
  int rank = 0;
  std::string label;  // "rank 1 (worker w1)"
  bool finished = false;
  int64_t done_bytes = -1;
  absl::Time last_change;
};

// Stages that must all finish; the first failure is the group's. Ends by DropGroup, or by ForgetGroup once a command
// took what was staged.
struct StageGroup {
  std::string what;  // "loading", for messages
  std::vector<uint64_t> stages;
  int missing = 0;
  std::function<void(const StageRecord&, const StageResult&)> each;                       // of one that succeeded
  std::function<void(const StageRecord&, int64_t done_bytes, int64_t total)> progressed;  // may be empty
  Done done;                                                                              // called once
};

// What the coordinator knows of a mesh beside MeshState.
struct MeshRecord {
  std::vector<uint64_t> sessions;      // of its workers, by rank: a worker that joined again is another one
  uint64_t connect = 0;                // group of its listening and connecting, until it is committed
  std::vector<std::string> addresses;  // by rank
  std::optional<absl::Time> aborting;  // a command failed and more answers are awaited until then, for the first cause
  absl::Status cause;                  // what failed it
};

// --- Models.

// The values that a replacement takes over from the model that it replaces.
struct MoveRecord {
  uint64_t operation = 0;
  std::vector<LoadState> states;  // of the replacement's load; those taken over have their tensor's id
  std::vector<TakenState> taken;
  size_t next = 0;  // of `taken`, to be moved
  int awaited = 0;  // commands
};

// A submission between its acceptance and READY.
struct LoadRecord {
  enum class Step { kStoring, kWaiting, kMoving, kStaging, kCommitting, kSwitching };
  Step step = Step::kStoring;
  std::vector<CallId> calls;
  std::string request_id;
  bool restored = false;
  bool replaces = false;              // the model of its name, once all ranks hold it and it is stored (kSwitching)
  std::shared_ptr<MoveRecord> moves;  // of one that takes values over
  std::shared_ptr<const ModelState> before;  // of a step: what the model is again where the load fails
  uint64_t store_token = 0;
  uint64_t group = 0;  // of the ranks' loads
  bool connected = false, loaded = false;
};

struct DeletionRecord {
  uint64_t id = 0;
  std::vector<CallId> calls;
  std::vector<std::string> request_ids;
  int commands = 0;          // whose answers are awaited
  uint64_t erase_token = 0;  // 0 = erased
  absl::Status status;
};

// An input that the ranks hold as a tensor, or get as blocks of another layout than the program's: they redistribute
// it.
struct MovedInput {
  std::string name;
  uint64_t mesh_id = 0;  // of the tensor; the model's for shards
  Mesh axes;
  TensorType type;
  Placements from, to;
  uint64_t tensor_id = 0;    // 0: of shards that are not staged yet
  PlacedShards shards = {};  // their bytes
};

struct ForwardCall {
  enum class Step { kQueued, kStaging, kRunning };
  Step step = Step::kQueued;
  std::string model;
  std::map<std::string, HostTensor> inputs;
  std::map<std::string, PlacedShards> shards;  // in the program's layout
  std::vector<MovedInput> moved;
  Bindings bindings;
  absl::Time deadline;
  bool local_blocks = false;
  std::shared_ptr<const ForwardProgram> program;  // of ForwardRequested
  std::shared_ptr<const Submission> base;
  std::vector<std::vector<RunInput>> rank_inputs;
  std::vector<CollectiveRecord> collectives;  // of moved inputs
  uint64_t operation = 0;                     // holds the tensors of moved inputs; 0 = none
  uint64_t group = 0;                         // of inputs that ranks receive; 0 = none
  int waiting = 0;                            // what must end before the run: the group and each moved input
  std::vector<uint64_t> input_transfers, result_transfers;
};

struct GenerateCall {
  std::string model;
  size_t replica = 0;  // that runs its sequence
  uint64_t sequence_id = 0;
  absl::Time deadline;
};

// The ranks that generate together: one for each coordinate of the axes over which a model spreads its sequences.
struct Replica {
  std::vector<int> ranks;  // ascending
  DecodeComposer composer;
};

// The work of one READY model.
struct ModelWork {
  std::deque<CallId> queue;  // forwards that wait
  int runs_in_flight = 0;
  bool executed = false;          // something has run since its load
  std::vector<Replica> replicas;  // empty: does not generate
  std::map<uint64_t, CallId> sequences;
};

// --- Named meshes and tensors.

// The blocks behind a tensor's name, or of a value in between.
struct BlockRecord {
  uint64_t mesh_id = 0;
  uint64_t reservation = 0;
  int uses = 0;            // operations that read it
  bool published = false;  // a command that makes it was sent
  bool dropping = false;   // freed once nothing uses it
  Done dropped;
};

// A mesh over the workers of two named ones, for what moves between them.
struct LinkRecord {
  uint64_t mesh_id = 0;
  bool ready = false;
  std::vector<Done> waiting;
};

// A request about named meshes or tensors that is under way. However it ends, EndOperation undoes and frees what is
// listed here.
struct Operation {
  std::string what;  // "put of tensor 'x'"
  std::vector<CallId> calls;
  std::string request_id;
  bool goes_on = false;                // whoever waits for it
  bool answered = false;               // of a get, whose call still reads
  std::set<uint64_t> meshes;           // whose end is its end
  std::vector<uint64_t> groups;        // of stages
  std::vector<uint64_t> transfers;     // cancelled
  std::vector<uint64_t> uses;          // blocks that it reads
  std::vector<uint64_t> temporaries;   // blocks that are dropped at its end
  std::vector<uint64_t> reservations;  // released at its end
  // Where it fails:
  std::vector<std::string> names;  // of tensors that it makes: forgotten
  std::vector<uint64_t> made;      // their blocks: dropped
  std::string moves;               // the tensor that it changes in place
  std::function<void()> undo;
  Done ended;  // however it ends
  // Of a put: its bytes are passed on, its ranks have them.
  bool sent = false, staged = false;
  std::function<void()> commit;
  OperationReply reply;
};

}  // namespace tp::server
