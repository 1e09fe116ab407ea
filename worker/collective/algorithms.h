// Collectives over point-to-point messages in host memory, the same for every Transport. Arguments are checked already
// (TransportCommunicator): `group` is a list of different ranks, `me` this rank's index in it, counts are in elements.
// Example: `AllReduceHost(transport, {0, 1}, me, data, 1000, DType::kF32, ReduceOp::kSum, deadline)`.
// All sends and receives of a collective are direct and posted at once: one hop, no matter how many ranks.
#pragma once

#include <cstdint>

#include "worker/collective/transport.h"

namespace tp::worker {

// Memory that all_reduce and reduce_scatter take for terms of others; equal on all ranks. Results have the same bits
// whatever it is.
struct CollectiveMemory {
  int64_t piece_bytes = 512 << 10;  // of a block, added while the next ones are on their way
  int64_t heap_bytes = 32 << 20;    // at most, for all pieces on their way (with one element a member at least)
};

struct Members {
  Transport& transport;
  absl::Span<const int> group;
  int me;
  absl::Time deadline;
  CollectiveMemory memory;
  int size() const { return static_cast<int>(group.size()); }
};

// Below 16 KiB every member sends all to all and adds in group order; from there on a reduce_scatter by pieces followed
// by an all_gather, which moves 2 (n - 1) / n of the data. Either way each element is added once, in group order, or by
// each member alike, so that all hold the same bits.
absl::Status AllReduceHost(const Members& members, void* data, int64_t count, DType dtype, ReduceOp op);
absl::Status ReduceScatterHost(const Members& members, const void* input, absl::Span<const int64_t> counts,
                               void* output, DType dtype, ReduceOp op);
// Block sizes in bytes.
absl::Status AllGatherHost(const Members& members, const void* input, void* output, absl::Span<const int64_t> bytes);
absl::Status AllToAllHost(const Members& members, const void* input, absl::Span<const int64_t> send_bytes, void* output,
                          absl::Span<const int64_t> receive_bytes);
// `root` is an index in the group. From 256 KiB and three members on: a scatter and an all_gather.
absl::Status BroadcastHost(const Members& members, int root, void* data, int64_t bytes);
absl::Status ScatterHost(const Members& members, int root, const void* input, absl::Span<const int64_t> bytes,
                         void* output);
absl::Status GatherHost(const Members& members, int root, const void* input, void* output,
                        absl::Span<const int64_t> bytes);

}  // namespace tp::worker
