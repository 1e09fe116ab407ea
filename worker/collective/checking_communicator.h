// A Communicator that lets the ranks of a group agree on each collective before any payload moves: op, dtype,
// reduction, root, counts and group. Where they differ, all of them fail alike with
//   ABORTED: collective mismatch rank 0 (all_reduce of F32, op sum, count 8, group [0, 1]) rank 1 (all_reduce of ...)
// and the inner communicator stays usable. For finding faults (--check-collectives): each call costs one or two small
// exchanges more. Example: `auto checked = CreateCheckingCommunicator(std::move(communicator));`
// Ranks that name different groups find that out where each waits for the other; a rank that waits for one that makes
// no call at all ends with its deadline, as without checks. send_receive has no group and is passed on unchecked.
#pragma once

#include <memory>

#include "worker/collective/communicator.h"

namespace tp::worker {

// Either all ranks of a communicator check or none does.
std::unique_ptr<Communicator> CreateCheckingCommunicator(std::unique_ptr<Communicator> inner);

}  // namespace tp::worker
