// Exchange of parts of blocks among the ranks of a group through scratch memory, in rounds, so that the memory needed
// is bounded whatever the size of the blocks. Shared by the redistribute and the transfer executors. Example: 10
// elements to one peer in 3 rounds are [0, 3), [3, 6) and [6, 10).
#pragma once

#include "common/redistribute/plan.h"
#include "worker/collective/communicator.h"
#include "worker/tensor/block.h"

namespace tp::worker {

struct Scratch {
  void* data = nullptr;  // aligned to 64 bytes
  int64_t bytes = 0;
};

// What is exchanged with one member of the group: of this rank's source block, and to this rank's result block. Both
// have 0 elements for this rank itself.
struct PeerParts {
  SharedPart send, receive;
};

// Elements of a message of `elements` before round `round` of `rounds`.
inline int64_t RoundBegin(int64_t elements, int64_t round, int64_t rounds) {
  return elements / rounds * round + elements % rounds * round / rounds;
}

// INTERNAL naming `what` where the scratch memory is too small.
absl::Status NeedScratch(absl::string_view what, const Scratch& scratch, int64_t bytes);

// Packs, sends, receives and unpacks; `peers` are the parts by member of `group`, in its order. Every member makes the
// call with the same `rounds`. `source` and `result` may lack data where nothing is sent or received. Needs the bytes
// of the longest round's sends, rounded up to 64, and those of its receives.
absl::Status ExchangeParts(Device& device, Stream& stream, Communicator& communicator, absl::Span<const int> group,
                           const std::vector<PeerParts>& peers, int64_t rounds, const ConstTensorView& source,
                           const TensorView& result, const Scratch& scratch, absl::Time deadline);

}  // namespace tp::worker
