// Communicator: collectives among the ranks of one (list of workers, epoch). Any list of its ranks is a group; the
// calls of one rank come from one thread, in one order that is equal on all ranks of each group. Every call has a
// deadline. Abort() from any thread makes all blocked and later calls return ABORTED within 100 ms; an aborted
// communicator is dead. Buffers are device memory of the rank's device; counts are elements. Example:
//   comm.AllReduce(stream, {0, 1}, data, count, DType::kF32, ReduceOp::kSum, deadline);
// Results: all ranks of an all_reduce hold identical bits, and a repeated run gives the same bits (terms are added in
// rank order; BF16 and F16 accumulate in F32). A rank with nothing to send or receive calls all the same.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/layout/placement.h"
#include "common/tensor/dtype.h"
#include "worker/device/device.h"

namespace tp::worker {

// What the ranks agree on once a command and once a decode step, before any payload (32 bytes on the wire).
struct StepHeader {
  uint32_t epoch = 0;
  uint32_t flags = 0;        // bit 0: closing header
  uint64_t sequence = 0;     // of the command
  uint64_t fingerprint = 0;  // first 8 bytes of the program's
  uint32_t step = 0;         // within a Decode
  int32_t status = 0;        // absl status code of this rank's work so far
  bool operator==(const StepHeader&) const = default;
};

// Payload received is counted by the caller by definition; this counts what the transport moved.
struct WireCounters {
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};

// Owned by the thread that issues collectives; only Abort() and wire() are thread-safe.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place over `data` [count]. avg divides the sum by the group's size. BOOL: min, max only.
  virtual absl::Status AllReduce(Stream& stream, absl::Span<const int> group, void* data, int64_t count, DType dtype,
                                 ReduceOp op, absl::Time deadline) = 0;
  // input: blocks for group members in order, counts[i] elements each; output: this rank's block, reduced.
  virtual absl::Status ReduceScatter(Stream& stream, absl::Span<const int> group, const void* input,
                                     absl::Span<const int64_t> counts, void* output, DType dtype, ReduceOp op,
                                     absl::Time deadline) = 0;
  // output: every member's block in group order, counts[i] elements each; input: this rank's block.
  virtual absl::Status AllGather(Stream& stream, absl::Span<const int> group, const void* input, void* output,
                                 absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) = 0;
  // input: blocks for each member in order (send_counts); output: blocks from each (receive_counts). Serves permutes
  // too.
  virtual absl::Status AllToAll(Stream& stream, absl::Span<const int> group, const void* input,
                                absl::Span<const int64_t> send_counts, void* output,
                                absl::Span<const int64_t> receive_counts, DType dtype, absl::Time deadline) = 0;
  virtual absl::Status Broadcast(Stream& stream, absl::Span<const int> group, int root, void* data, int64_t count,
                                 DType dtype, absl::Time deadline) = 0;
  // root is a rank of the mesh, a member of the group. `input` is read on root only, `counts` for each member.
  virtual absl::Status Scatter(Stream& stream, absl::Span<const int> group, int root, const void* input,
                               absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time deadline) = 0;
  virtual absl::Status Gather(Stream& stream, absl::Span<const int> group, int root, const void* input, void* output,
                              absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) = 0;
  // Sends to one rank (-1: none) and receives from one (-1: none) at once.
  virtual absl::Status SendReceive(Stream& stream, int to, const void* input, int64_t send_count, int from,
                                   void* output, int64_t receive_count, DType dtype, absl::Time deadline) = 0;
  virtual absl::Status Barrier(absl::Span<const int> group, absl::Time deadline) = 0;
  // Every member's header in group order. No rank posts a payload receive before this returns.
  virtual absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                                  absl::Time deadline) = 0;
  // Makes the groups of `partitions` fast; any other group works all the same. Each partition is a list of groups that
  // share no rank and hold all ranks together (the groups along one set of mesh axes). Collective over all ranks, with
  // equal arguments; what is prepared already costs nothing.
  virtual absl::Status PrepareGroups(absl::Span<const std::vector<std::vector<int>>> /*partitions*/,
                                     absl::Time /*deadline*/) {
    return absl::OkStatus();
  }
  // UNAVAILABLE naming a rank that died, or one of `group` that left; does not block. OK where that is not known.
  virtual absl::Status CheckPeers(absl::Span<const int> /*group*/) { return absl::OkStatus(); }
  // Whether its collectives can be recorded in a graph of the device (they only put work on the stream).
  virtual bool Records() const { return false; }
  // A graph with its recorded collectives was launched on the stream and must be done by the deadline.
  virtual absl::Status Launched(Stream&, absl::Time /*deadline*/) { return absl::OkStatus(); }
  // Idempotent, thread-safe.
  virtual void Abort(absl::string_view reason) = 0;
  virtual WireCounters wire() const = 0;
};

// Two steps to connect, so that the coordinator carries the addresses: Address() at once, Connect() with all of them.
// A connector may be destroyed at any time; Abort() makes a blocked Connect() return ABORTED.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual std::string Address() const = 0;
  // addresses[r] is rank r's. Blocks until all ranks are connected. DEADLINE_EXCEEDED naming the ranks and addresses
  // that were not reached.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::vector<std::string>& addresses,
                                                                absl::Time deadline) = 0;
  virtual void Abort() = 0;
};
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  virtual absl::StatusOr<std::unique_ptr<Connector>> Listen(int rank, int size) = 0;
  // What it is, with the versions that must be equal on all ranks: "gloo", "nccl 2.28.9, cuda 13.0".
  virtual std::string Describe() const = 0;
};

// "ABORTED: collective mismatch rank 0 (epoch 1, command 7, ...) rank 1 (...)" where headers differ in anything but
// status; else the first rank's failure, with its code, naming the rank: the ranks are at one point, so it ends the
// command and not the epoch; else OK.
absl::Status AgreeOn(absl::Span<const int> group, const std::vector<StepHeader>& headers);

}  // namespace tp::worker
