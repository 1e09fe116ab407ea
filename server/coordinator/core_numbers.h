// CoreNumbers: how much of everything the core has, and how much it did since its start; for metrics. Plain values,
// made on the core's thread. Example:
//   loop.Run([&](const Core& core) { numbers = core.numbers(); });
#pragma once

#include <array>
#include <cstdint>

namespace tp::server {

// Since the start.
struct CoreCounts {
  int64_t prompt_tokens = 0;     // of generations that were accepted
  int64_t generated_tokens = 0;  // that were sent to clients
  int64_t decode_steps = 0;      // of all replicas of all models
  int64_t epochs = 0;            // of meshes: each of models, named ones and links has one after the other
  int64_t epochs_broken = 0;     // that ended by a failure
  int64_t workers_joined = 0, workers_lost = 0;
};

struct CoreNumbers {
  CoreCounts counts;
  int workers_healthy = 0, workers_draining = 0, workers_lost = 0;
  std::array<int, 7> models{};   // by ModelPhase
  std::array<int, 3> meshes{};   // named ones, by NamedMeshPhase
  std::array<int, 3> tensors{};  // by TensorPhase
  int forwards_waiting = 0, forwards_running = 0;
  int sequences_waiting = 0, sequences_decoding = 0;
  int queue_limit = 0;          // CoreOptions::max_queued_requests, of all four together
  int64_t memory_limit = 0;     // bytes on all healthy workers; one without a limit adds 0
  int64_t memory_reserved = 0;  // of it, by the coordinator's own count
  int64_t memory_used = 0;      // of it, as the workers say
};

}  // namespace tp::server
