// What the three gRPC services share. Example: MembershipService service({&loop, &dispatcher, &pool, &clock, limits});
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "server/metrics/coordinator_metrics.h"
#include "server/rpc/core_loop.h"
#include "server/rpc/dispatcher.h"
#include "server/rpc/work_pool.h"

namespace tp::server {

struct Limits {
  int64_t submission_bytes = int64_t{64} << 20;
  int64_t input_bytes = int64_t{256} << 20;  // of all inputs of one forward
};

// Calls whose clients are served, until the last byte has gone out; `late` ones came after `draining`.
struct RunningCalls {
  std::atomic<bool> draining{false};
  std::atomic<int> begun{0}, late{0};
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
  RunningCalls* running = nullptr;
  CoordinatorMetrics* metrics = nullptr;
};

// Counts a client's call for as long as it lives.
class RunningCall {
 public:
  explicit RunningCall(const ServiceContext& context) : count_(&context.running->begun) {
    ++*count_;
    if (!context.running->draining) return;
    count_ = &context.running->late;
    ++*count_;
    --context.running->begun;
  }
  ~RunningCall() { --*count_; }
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  std::atomic<int>* count_;
};

}  // namespace tp::server
