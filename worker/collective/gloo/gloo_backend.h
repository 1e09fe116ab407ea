// Collectives between processes over Gloo's TCP transport (CPUs). Algorithms are our own over unbound buffers; Gloo's
// collectives can't be aborted (see gloo_transport.h). Example: `CreateGlooBackend("127.0.0.1")`.
#pragma once

#include <memory>
#include <string>

#include "worker/collective/communicator.h"

namespace tp::worker {

// `host`: name or address of the interface that peers reach. INVALID_ARGUMENT where it can't be bound, and for an
// address that no peer can reach, as 0.0.0.0. Each Listen() opens one port a peer and starts one thread, which end with
// the connector or its communicator. Connect() with a peer that refuses is UNAVAILABLE; every error names the addresses
// of both sides. Sets SIGPIPE to ignored where it has its default action: Gloo writes to sockets that may be closed.
absl::StatusOr<std::unique_ptr<CollectiveBackend>> CreateGlooBackend(const std::string& host);

}  // namespace tp::worker
