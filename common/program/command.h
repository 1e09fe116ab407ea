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
struct Stage {
  uint64_t stage_id = 0;
  uint64_t term = 0;
  std::variant<StageListen, StageConnect, StageLoad, StageReceive> kind;
};
struct StageResult {
  uint64_t stage_id = 0;
  absl::Status status;
  std::string address;          // of a listen
  int64_t bytes_read = 0;       // of a load
  int64_t parameter_bytes = 0;  // of a load
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
  std::string data;       // this rank's block, where stage_id is 0
  uint64_t stage_id = 0;  // a finished StageReceive
};
struct Run {
  std::string model;
  std::vector<RunInput> inputs;
  uint64_t transfer_id = 0;
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
  int steps = 1;  // 1 to 8
  std::vector<JoinSequence> joins;
  std::vector<PrefillPiece> pieces;
  std::vector<uint64_t> leaves;
};
struct Command {
  uint64_t term = 0;
  uint64_t sequence = 0;  // in the worker's stream, gap-free, from 1
  uint64_t order = 0;     // in the coordinator's total order
  uint64_t mesh_id = 0, epoch = 0;
  absl::Duration timeout = absl::Seconds(30);  // own deadline of its collectives
  std::variant<Commit, Run, Decode, Release, CloseMesh> kind;
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
  RunResult run;
  DecodeResult decode;
};

// Blocks of a run that together pass this many bytes on one rank go over a data stream, not in the answer.
inline constexpr int64_t kInlineResultBytes = 64 << 10;
inline constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace tp
