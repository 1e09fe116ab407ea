#include "server/coordinator/core_numbers.h"

#include "server/coordinator/core_impl.h"

namespace tp::server {

CoreNumbers Core::Impl::CountAll() const {
  CoreNumbers numbers;
  numbers.counts = counts_;
  numbers.queue_limit = options_.max_queued_requests;
  for (const auto& [id, worker] : workers_) {
    if (!worker.healthy) {
      ++numbers.workers_lost;
      continue;
    }
    ++(worker.draining ? numbers.workers_draining : numbers.workers_healthy);
    numbers.memory_limit += worker.description.memory_limit_bytes;
    numbers.memory_reserved += ledger_.Held(id);
    numbers.memory_used += worker.used_bytes;
  }
  for (const auto& [name, model] : models_) ++numbers.models.at(static_cast<size_t>(model.phase));
  for (const auto& [name, mesh] : named_meshes_) ++numbers.meshes.at(static_cast<size_t>(mesh.phase));
  for (const auto& [name, tensor] : tensors_) ++numbers.tensors.at(static_cast<size_t>(tensor.phase));
  for (const auto& [id, forward] : forwards_) {
    ++(forward.step == ForwardCall::Step::kRunning ? numbers.forwards_running : numbers.forwards_waiting);
  }
  for (const auto& [resident, work] : work_) {
    for (const Replica& replica : work.replicas) {
      numbers.sequences_waiting += replica.composer.waiting();
      numbers.sequences_decoding += replica.composer.admitted();
    }
  }
  return numbers;
}

}  // namespace tp::server
