// Runs a ForwardProgram on this rank for bound symbols: values lie in one arena by the memory plan, instructions become
// Device calls, redistribute steps go through the communicator. Example:
//   TP_ASSIGN_OR_RETURN(auto executor, ProgramExecutor::Create(program, coordinate, &states, caches));
//   TP_ASSIGN_OR_RETURN(const BoundProgram* bound, executor->Bind({{"batch", 1}, {"time", 4}}));
//   TP_RETURN_IF_ERROR(arena.Reserve(device, bound->memory.total_bytes));
//   executor->SetOperand(step, *bound, 3, ids, bytes);  StepOutcome outcome = executor->Execute(step, *bound);
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/program/memory.h"
#include "common/program/program.h"
#include "worker/collective/communicator.h"
#include "worker/collective/counting_communicator.h"
#include "worker/device/device.h"
#include "worker/runtime/operations.h"
#include "worker/runtime/overlap.h"
#include "worker/runtime/pace.h"

namespace tp::worker {

// A parameter or buffer on the device. Tied states share their memory.
struct DeviceState {
  DType dtype = DType::kF32;
  Shape shape;                           // local
  std::shared_ptr<DeviceBuffer> plain;   // nullptr where only packed
  std::shared_ptr<PackedWeight> packed;  // nullptr where only plain
};
using StateTable = std::map<std::string, DeviceState>;

// Memory of the values of a step; grows, never shrinks. Owned by the executor thread.
class Arena {
 public:
  absl::Status Reserve(Device& device, int64_t bytes);
  char* data() { return buffer_ == nullptr ? nullptr : static_cast<char*>(buffer_->data()); }
  int64_t size() const { return buffer_ == nullptr ? 0 : buffer_->size(); }
  void Free() { buffer_.reset(); }

 private:
  std::unique_ptr<DeviceBuffer> buffer_;
};

// A program with values for its symbols.
struct BoundProgram {
  Bindings bindings;
  MemoryPlan memory;
  std::vector<Shape> global, local;                  // of each value
  std::vector<std::vector<SequenceSpan>> row_spans;  // of each attention: one sequence a batch row
};

struct StepContext {
  Device& device;
  Stream& stream;
  Communicator& communicator;
  Arena& arena;
  Pace& pace;
  bool paged = false;  // a decode step: attention uses `sequences` and the caches
  absl::Span<const SequenceSpan> sequences;
  CollectiveStream* collectives = nullptr;  // where collectives may run beside the rest; nullptr: nowhere
  bool graphs = false;                      // the step may be recorded and run again as a graph of the device
  CollectiveCounters* counters = nullptr;   // of the communicator's calls; nullptr: not counted
};

struct StepOutcome {
  absl::Status transport;  // a collective failed: the step ended there, the communicator can't be used any more
  absl::Status local;      // this rank's first failure; it went on with zeros
  std::vector<CollectiveRecord> collectives;
  const absl::Status& status() const { return transport.ok() ? local : transport; }
};

// Waits for a step that was enqueued and adds how it ended.
void FinishStep(const StepContext& context, StepOutcome* outcome);

// Owned by the executor thread.
class ProgramExecutor {
 public:
  // `states`, `caches` and `tensors` must outlive it. `tensors`: by value, memory of its own for each operand of kind
  // kTensor and for each output of such a program. INTERNAL where it is missing, and for a parameter or buffer that
  // `states` has not, or has with another local shape or dtype; UNIMPLEMENTED for an unknown function, naming it.
  static absl::StatusOr<std::unique_ptr<ProgramExecutor>> Create(std::shared_ptr<const ForwardProgram> program,
                                                                 Coordinate coordinate, const StateTable* states,
                                                                 absl::Span<const PagedCache> caches,
                                                                 const std::map<int, DeviceState>* tensors = nullptr);
  const ForwardProgram& program() const { return *program_; }
  absl::Span<const int> coordinate() const { return coordinate_; }

  // Symbols of the operands' shapes from concrete global shapes by value index; limits are not checked.
  // INVALID_ARGUMENT where a rank, a constant or a repeated symbol does not fit.
  absl::StatusOr<Bindings> BindOperands(const std::map<int, Shape>& shapes) const;
  // Shapes and memory plan; the last few bindings are kept. The pointer lives until the next Bind.
  absl::StatusOr<const BoundProgram*> Bind(const Bindings& bindings);
  // Copies this rank's block of an operand, from the host's memory or the device's, into the arena. INVALID_ARGUMENT
  // for another number of bytes.
  absl::Status SetOperand(const StepContext& context, const BoundProgram& bound, int value, const void* data,
                          int64_t bytes, bool on_device = false) const;
  // Blocks until the step is done on the device. Allocates no device memory. Makes every collective call of the program
  // unless one fails.
  StepOutcome Execute(const StepContext& context, const BoundProgram& bound) const;
  // The same without the wait: puts the step on the stream.
  StepOutcome Enqueue(const StepContext& context, const BoundProgram& bound) const;
  // This rank's block of a value after Execute (an output or a state).
  ValueView View(const StepContext& context, const BoundProgram& bound, int value) const;

 private:
  ProgramExecutor(std::shared_ptr<const ForwardProgram> program, Coordinate coordinate,
                  absl::Span<const PagedCache> caches)
      : program_(std::move(program)), coordinate_(std::move(coordinate)), caches_(caches) {}
  absl::Status Run(const StepContext& context, const BoundProgram& bound, size_t index) const;
  absl::StatusOr<int64_t> Redistribute(const StepContext& context, const BoundProgram& bound, size_t index,
                                       Stream& stream) const;
  // What an instruction reads and writes in the arena.
  MemoryUse UseOf(const StepContext& context, const BoundProgram& bound, size_t index) const;
  void ZeroOutputs(const StepContext& context, const BoundProgram& bound, size_t index) const;

  const std::shared_ptr<const ForwardProgram> program_;
  const Coordinate coordinate_;
  const absl::Span<const PagedCache> caches_;
  std::vector<const DeviceState*> state_of_value_;  // nullptr: in the arena
  std::vector<Operation> operations_;               // of each instruction; nullptr: redistribute
  std::list<BoundProgram> bound_;                   // last used first
};

}  // namespace tp::worker
