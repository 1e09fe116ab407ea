// Collectives between threads of one process, for tests and simulations. Backends made from one hub meet each other.
#pragma once

#include <memory>

#include "worker/collective/algorithms.h"
#include "worker/collective/communicator.h"

namespace tp::worker {

// Where ranks of one test meet. Thread-safe; outlives its backends.
class InProcessHub;
std::shared_ptr<InProcessHub> CreateInProcessHub();
std::unique_ptr<CollectiveBackend> CreateInProcessBackend(std::shared_ptr<InProcessHub> hub,
                                                          const CollectiveMemory& memory = {});

}  // namespace tp::worker
