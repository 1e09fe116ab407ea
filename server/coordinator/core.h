// The coordinator's core: a pure function of (state, event, now) to actions (Foundation 4). No gRPC, file, thread or
// clock: the same events at the same times give the same actions. Example:
//   Core core(options);
//   for (Action& action : core.Apply(WorkerJoined{...}, now)) adapter.Execute(std::move(action));
// Thread-compatible: one thread calls it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/coordinator/core_numbers.h"
#include "server/coordinator/events.h"
#include "server/coordinator/state.h"

namespace tp::server {

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();
  std::vector<Action> Apply(Event event, absl::Time now);

  // Views for queries.
  const CoreOptions& options() const;
  const std::map<std::string, WorkerState>& workers() const;
  const std::map<std::string, ModelState>& models() const;
  const std::map<uint64_t, MeshState>& meshes() const;
  const std::map<std::string, NamedMesh>& named_meshes() const;
  const std::map<std::string, TensorState>& tensors() const;
  // Bytes that the coordinator counts on a worker: of models, tensors and operations under way.
  int64_t reserved_bytes(const std::string& worker) const;
  int running_calls() const;
  CoreNumbers numbers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// FAILED_PRECONDITION: a second Parallelize.
absl::Status AlreadyParallelized(const std::string& model);

}  // namespace tp::server
