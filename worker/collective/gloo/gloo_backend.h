// Collectives between processes over Gloo's TCP transport (CPUs). Algorithms are our own over unbound buffers; Gloo's
// collectives can't be aborted (see gloo_communicator.cc). Example: `CreateGlooBackend("127.0.0.1")`.
#pragma once

#include <memory>
#include <string>

#include "worker/collective/communicator.h"

namespace tp::worker {

// `host`: name or address of the interface that peers reach. INVALID_ARGUMENT where it can't be bound.
absl::StatusOr<std::unique_ptr<CollectiveBackend>> CreateGlooBackend(const std::string& host);

}  // namespace tp::worker
