// Decode steps as recorded graphs of the device: a step of one token a sequence is the same calls at the same addresses
// again and again, so the second one of a kind is recorded and later ones are run by one call. Example:
//   StepOutcome outcome = model.graphs.Execute(*model.step, step, *bound);
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "worker/runtime/executor.h"

namespace tp::worker {

// Owned by the executor thread.
class StepGraphs {
 public:
  // As executor.Execute, recorded where the device and the communicator can and every sequence has one token.
  // `epoch`: of the communicator.
  StepOutcome Execute(const ProgramExecutor& executor, const StepContext& context, const BoundProgram& bound,
                      uint64_t epoch);
  // Before the communicator or the memory that recorded steps use goes.
  void Clear() { entries_.clear(); }
  // Steps that were run as a recorded graph.
  int64_t runs() const { return runs_; }

 private:
  struct Key {
    Bindings bindings;
    size_t sequences = 0;
    int64_t longest = 0;
    const void* arena = nullptr;
    uint64_t epoch = 0;
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    std::unique_ptr<DeviceGraph> graph = nullptr;
    StepOutcome outcome = {};    // of the recording
    CollectiveTally calls = {};  // that it recorded
    bool refused = false;        // could not be recorded
  };
  void Record(const ProgramExecutor& executor, const StepContext& context, const BoundProgram& bound, Entry* entry);

  std::list<Entry> entries_;  // last used first
  int64_t runs_ = 0;
};

}  // namespace tp::worker
