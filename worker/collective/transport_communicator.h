// A Communicator whose collectives are those of algorithms.h over a Transport; device memory is host memory.
// Example: `auto communicator = CreateTransportCommunicator(std::make_unique<GlooTransport>(...));`
#pragma once

#include <memory>

#include "worker/collective/algorithms.h"
#include "worker/collective/communicator.h"
#include "worker/collective/transport.h"

namespace tp::worker {

// Checks arguments (INVALID_ARGUMENT naming the argument, the communicator stays usable). After any other error the
// communicator is dead, as ranks may stand at different messages: later calls return ABORTED with the first error.
std::unique_ptr<Communicator> CreateTransportCommunicator(std::unique_ptr<Transport> transport,
                                                          const CollectiveMemory& memory = {});

}  // namespace tp::worker
