// Commands that the coordinator gives to workers, and their results, as values (worker.proto says what each is for).
// Commands run strictly in the order of a worker's stream; stages run beside it and are published by a Commit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/model/model.h"
#include "common/program/memory.h"
#include "common/program/program.h"

namespace tp {

// --- Beside the stream.
struct StageListen {
  uint64_t mesh_id = 0, epoch = 0;
  int rank = 0, size = 1;
};
struct StageConnect {
  uint64_t mesh_id = 0, epoch = 0;
  std::vector<std::string> addresses;  // by rank
  absl::Duration timeout = absl::Seconds(10);
};
struct LoadState {
  std::string path;
  Shape shape;  // global
  DType dtype = DType::kF32;
  Placements placements;
  WeightSource source;
  bool buffer = false;
  bool packed = false;  // the weight of a linear
  // Not 0: of a StageLoad, its values are those of this tensor on the worker, which leaves the table, and not the
  // source's; of a ShareStates, what they become.
  uint64_t tensor_id = 0;
};
struct StageLoad {
  std::string model;
  uint64_t mesh_id = 0, epoch = 0;
  int rank = 0;
  std::shared_ptr<const ForwardProgram> program;
  std::shared_ptr<const ForwardProgram> step_program;  // null: does not generate
  std::string fingerprint;
  std::vector<LoadState> states;
  uint64_t seed = 0;
  int cache_pages = 0;
};
struct StageReceive {
  uint64_t transfer_id = 0;
  int64_t size_bytes = 0;
};
// A tensor of which a rank makes its block.
struct NewTensor {
  enum class Origin {
    kSource,     // state.source
    kTransfer,   // the block's bytes come over a data stream, row-major
    kBroadcast,  // from another rank, by a Broadcast that follows
  };
  uint64_t tensor_id = 0;
  LoadState state;  // path: its name
  Origin origin = Origin::kSource;
  uint64_t transfer_id = 0;  // kTransfer
};
struct StageTensors {
  uint64_t mesh_id = 0;
  Mesh mesh;
  int rank = 0;
  uint64_t seed = 0;  // of initializers
  std::vector<NewTensor> tensors;
};
// Sends this rank's block of a tensor: its LocalBoxes (common/layout/boxes.h) one after the other. Answered at once.
struct StageSend {
  uint64_t tensor_id = 0, transfer_id = 0;
};
struct StageInspect {
  std::string path;  // a safetensors file, or a folder with an index or one file
};
struct SavedFile {
  std::string name;    // in the folder
  std::string header;  // its first bytes
  int64_t size_bytes = 0;
};
struct SavedTensor {
  uint64_t tensor_id = 0;
  int file = 0;
  int64_t begin = 0;   // offset of its first byte in the file
  bool owner = false;  // this rank writes its block
};
// Writes NAME.TAG.part files, which a StageSeal renames; dropping the one with `create` removes them.
struct StageSave {
  std::string directory, tag;
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;
  bool create = false;  // makes the folder, writes the headers
};
struct StageSeal {
  std::string directory, tag;
  std::vector<SavedFile> files;
  std::string index;  // text of model.safetensors.index.json; "" = none
};
struct Stage {
  uint64_t stage_id = 0;
  uint64_t term = 0;
  std::variant<StageListen, StageConnect, StageLoad, StageReceive, StageTensors, StageSend, StageInspect, StageSave,
               StageSeal>
      kind;
};
struct FoundTensor {
  std::string name, file;
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const FoundTensor&) const = default;
};
struct StageResult {
  uint64_t stage_id = 0;
  absl::Status status;
  std::string address;                  // of a listen
  int64_t bytes_read = 0;               // of a load, of tensors
  int64_t parameter_bytes = 0;          // of a load
  std::vector<FoundTensor> found = {};  // of an inspect
};

// --- In order.
struct Commit {
  std::vector<uint64_t> stage_ids;
};
struct Release {
  std::string model;
};
struct CloseMesh {};
struct RunInput {
  std::string name;
  Shape global_shape;
  std::string data;        // this rank's block, where both ids are 0
  uint64_t stage_id = 0;   // a finished StageReceive
  uint64_t tensor_id = 0;  // a tensor in the program's layout, on a mesh of the same ranks
};
struct Run {
  std::string model;
  std::vector<RunInput> inputs;
  uint64_t transfer_id = 0;
  bool local_blocks = false;  // every rank answers its whole block, not only what it owns
  // Runs in place of the model's forward program, on its states; nullptr = that. It has memory of its own, which is
  // freed at the end.
  std::shared_ptr<const ForwardProgram> program = nullptr;
};
struct Sampling {
  double temperature = 0;  // 0 = greedy
  int top_k = 0;           // 0 = all
  double top_p = 0;        // 0 = all
  uint64_t seed = 0;
};
struct JoinSequence {
  uint64_t sequence_id = 0;
  Sampling sampling;
  int max_new_tokens = 0;
  std::vector<int64_t> stop_ids;
};
struct PrefillPiece {
  uint64_t sequence_id = 0;
  std::vector<int64_t> token_ids;
  bool last = false;
};
struct Decode {
  std::string model;
  int steps = 1;           // 1 to 8
  std::vector<int> ranks;  // of the mesh, that take part: one replica of the model; empty = all
  std::vector<JoinSequence> joins;
  std::vector<PrefillPiece> pieces;
  std::vector<uint64_t> leaves;
};
// Fills the blocks of NewTensor::Origin::kBroadcast: of equal copies on axes of R, the one at coordinate
// `src_data_rank` sends.
struct Broadcast {
  std::vector<uint64_t> tensor_ids;
  int src_data_rank = 0;
};
// Runs a program on named tensors; its operands are of kind kTensor, its outputs become new tensors.
struct Transform {
  std::shared_ptr<const ForwardProgram> program;
  std::vector<uint64_t> inputs, outputs;  // tensor ids, by operand and by output
};
// Moves a tensor to another mesh; the command's mesh is the union of both meshes' workers.
struct Transfer {
  uint64_t input = 0, output = 0;
  DType dtype = DType::kF32;
  Shape shape;  // global
  Mesh source_mesh, target_mesh;
  Placements source, target;                    // no partial
  std::vector<int> source_ranks, target_ranks;  // rank in the union of each rank of the mesh
  uint64_t target_mesh_id = 0;
};
// Enters states of a model in the worker's tensors, each with its tensor_id: plain ones share their memory, packed ones
// are unpacked into new memory. All or none.
struct ShareStates {
  std::string model;
  Mesh mesh;  // the model's
  std::vector<LoadState> states;
};
struct DropTensors {
  std::vector<uint64_t> tensor_ids;
};
struct Command {
  uint64_t term = 0;
  uint64_t sequence = 0;  // in the worker's stream, gap-free, from 1
  uint64_t order = 0;     // in the coordinator's total order
  uint64_t mesh_id = 0, epoch = 0;
  absl::Duration timeout = absl::Seconds(30);  // own deadline of its collectives
  std::variant<Commit, Run, Decode, Release, CloseMesh, Broadcast, Transform, Transfer, DropTensors, ShareStates> kind;
};

// --- Results.
struct ResultBlock {
  std::string output;
  DType dtype = DType::kF32;
  Shape global_shape, offset, shape;
  std::string data;  // empty where streamed
  bool streamed = false;
};
struct RunResult {
  std::vector<ResultBlock> blocks;
  std::vector<CollectiveRecord> collectives;
  int64_t wire_bytes = 0;
  int64_t duration_us = 0;
};
struct SequenceTokens {
  uint64_t sequence_id = 0;
  std::vector<int64_t> token_ids;
  std::string finish_reason;  // "stop", "length" or ""
  bool operator==(const SequenceTokens&) const = default;
};
struct DecodeResult {
  std::vector<SequenceTokens> sequences;
  int64_t duration_us = 0;
};
struct Ack {
  uint64_t sequence = 0, order = 0;
  absl::Status status;
  int failed_rank = -1;
  RunResult run;  // of a run, a transform or a transfer
  DecodeResult decode;
};

// Blocks of a run that together pass this many bytes on one rank go over a data stream, not in the answer.
inline constexpr int64_t kInlineResultBytes = 64 << 10;
inline constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace tp
