// What the three gRPC services share. Example: MembershipService service({&loop, &dispatcher, &pool, &clock, limits});
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "server/rpc/core_loop.h"
#include "server/rpc/dispatcher.h"
#include "server/rpc/work_pool.h"

namespace tp::server {

struct Limits {
  int64_t submission_bytes = int64_t{64} << 20;
  int64_t input_bytes = int64_t{256} << 20;  // of all inputs of one forward
};

// All outlive the services.
struct ServiceContext {
  CoreLoop* loop = nullptr;
  Dispatcher* dispatcher = nullptr;  // within CoreLoop::Run only
  WorkPool* pool = nullptr;
  const Clock* clock = nullptr;
  Limits limits;
  std::string version;
  absl::Time started;
  std::atomic<int>* relays = nullptr;  // forward calls whose client is still served
};

}  // namespace tp::server
