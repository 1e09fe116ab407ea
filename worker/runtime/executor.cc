#include "worker/runtime/executor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "worker/runtime/paced_communicator.h"
#include "worker/tensor/redistribute_executor.h"

namespace tp::worker {
namespace {

constexpr size_t kBindingsKept = 16;

// Steps that need no peer: a failure of one is a failure of this rank alone.
bool IsLocalStep(RedistributeOp op) {
  return op == RedistributeOp::kNone || op == RedistributeOp::kSlice || op == RedistributeOp::kDivide ||
         op == RedistributeOp::kFill;
}

absl::Status Describe(const absl::Status& status, const Instruction& instruction) {
  return Annotate(status, instruction.module_path.empty()
                              ? instruction.function
                              : absl::StrCat(instruction.module_path, " (", instruction.function, ")"));
}

}  // namespace

void FinishStep(const StepContext& context, StepOutcome* outcome) {
  const absl::Status done = context.device.Synchronize(context.stream);
  // A collective that was on the stream and did not end: the ranks are not at one point.
  if (!done.ok() && (absl::IsAborted(done) || absl::IsUnavailable(done) || absl::IsDeadlineExceeded(done))) {
    outcome->transport = done;
  } else if (outcome->local.ok()) {
    outcome->local = done;
  }
}

absl::Status Arena::Reserve(Device& device, int64_t bytes) {
  if (buffer_ != nullptr && buffer_->size() >= bytes) return absl::OkStatus();
  buffer_.reset();
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> buffer = device.Allocate(bytes);
  if (!buffer.ok()) return Annotate(buffer.status(), "memory of a step");
  buffer_ = *std::move(buffer);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ProgramExecutor>> ProgramExecutor::Create(std::shared_ptr<const ForwardProgram> program,
                                                                         Coordinate coordinate,
                                                                         const StateTable* states,
                                                                         absl::Span<const PagedCache> caches,
                                                                         const std::map<int, DeviceState>* tensors) {
  auto executor = std::unique_ptr<ProgramExecutor>(new ProgramExecutor(program, std::move(coordinate), caches));
  executor->state_of_value_.resize(program->values.size(), nullptr);
  for (const Operand& operand : program->operands) {
    if (operand.kind != OperandKind::kParameter && operand.kind != OperandKind::kBuffer) continue;
    const auto state = states->find(operand.name);
    if (state == states->end()) return absl::InternalError(absl::StrCat("state '", operand.name, "' was not loaded"));
    const DTensorSpec& spec = program->values[operand.value].spec;
    TP_ASSIGN_OR_RETURN(const Shape global, EvaluateShape(spec.shape, {}));
    const Shape local = LocalShape(global, spec.placements, program->mesh, executor->coordinate_);
    if (state->second.shape != local || state->second.dtype != spec.dtype) {
      return absl::InternalError(absl::StrCat("state '", operand.name, "' was loaded as ",
                                              std::string(DTypeName(state->second.dtype)),
                                              ShapeText(state->second.shape), ", the program takes ",
                                              std::string(DTypeName(spec.dtype)), ShapeText(local)));
    }
    executor->state_of_value_[operand.value] = &state->second;
  }
  if (WorksOnTensors(*program)) {
    std::vector<int> outside;
    for (const Operand& operand : program->operands) {
      if (operand.kind == OperandKind::kTensor) outside.push_back(operand.value);
    }
    for (const NamedValue& output : program->outputs) outside.push_back(output.value);
    for (const int value : outside) {
      if (tensors == nullptr || !tensors->contains(value)) {
        return absl::InternalError(absl::StrCat("tensor '", program->values[value].name, "' has no memory"));
      }
      executor->state_of_value_[value] = &tensors->at(value);
    }
  }
  for (const Instruction& instruction : program->instructions) {
    Operation operation = nullptr;
    if (!instruction.step.has_value()) {
      operation = FindOperation(instruction.function);
      if (operation == nullptr) {
        return absl::UnimplementedError(
            absl::StrCat("function '", instruction.function, "' of '", instruction.module_path, "' is not built yet"));
      }
      for (size_t i = 0; i < instruction.inputs.size(); ++i) {
        const DeviceState* state =
            instruction.inputs[i] < 0 ? nullptr : executor->state_of_value_[instruction.inputs[i]];
        if (state != nullptr && state->plain == nullptr && !(instruction.function == "linear" && i == 1)) {
          return absl::InternalError(absl::StrCat("a packed weight as input of '", instruction.function, "' in '",
                                                  instruction.module_path, "'"));
        }
      }
    }
    executor->operations_.push_back(operation);
  }
  return executor;
}

absl::StatusOr<Bindings> ProgramExecutor::BindOperands(const std::map<int, Shape>& shapes) const {
  Bindings bindings;
  for (const auto& [value, shape] : shapes) {
    const ProgramValue& operand = program_->values[value];
    bool fits = operand.spec.shape.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      const Dim& dim = operand.spec.shape[d];
      if (dim.IsConstant()) {
        fits = dim.constant() == shape[d];
      } else if (dim == Dim::Symbol(dim.Symbols()[0])) {
        fits = bindings.emplace(dim.Symbols()[0], shape[d]).first->second == shape[d];
      } else {
        fits = false;
      }
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("operand '", operand.name, "' of shape ",
                                                     SymShapeText(operand.spec.shape), " given as ", ShapeText(shape)));
    }
  }
  return bindings;
}

absl::StatusOr<const BoundProgram*> ProgramExecutor::Bind(const Bindings& bindings) {
  for (auto it = bound_.begin(); it != bound_.end(); ++it) {
    if (it->bindings != bindings) continue;
    bound_.splice(bound_.begin(), bound_, it);
    return &bound_.front();
  }
  BoundProgram bound;
  bound.bindings = bindings;
  TP_ASSIGN_OR_RETURN(bound.memory, PlanMemory(*program_, bindings, coordinate_));
  for (const ProgramValue& value : program_->values) {
    TP_ASSIGN_OR_RETURN(Shape global, EvaluateShape(value.spec.shape, bindings));
    TP_RETURN_IF_ERROR(ValidateForShape(global, value.spec.placements, program_->mesh));
    bound.local.push_back(LocalShape(global, value.spec.placements, program_->mesh, coordinate_));
    bound.global.push_back(std::move(global));
  }
  for (const Instruction& instruction : program_->instructions) {
    bound.row_spans.emplace_back();
    if (instruction.function != "attention") continue;
    const Shape& query = bound.local[instruction.inputs[0]];
    for (int64_t row = 0; row < query[0]; ++row) {
      bound.row_spans.back().push_back({row * query[1], query[1], 0, {}});
    }
  }
  bound_.push_front(std::move(bound));
  if (bound_.size() > kBindingsKept) bound_.pop_back();
  return &bound_.front();
}

ValueView ProgramExecutor::View(const StepContext& context, const BoundProgram& bound, int value) const {
  ValueView view;
  if (value < 0) return view;
  view.present = true;
  view.spec = &program_->values[value].spec;
  view.global = &bound.global[value];
  view.view.dtype = view.spec->dtype;
  view.view.shape = bound.local[value];
  if (const DeviceState* state = state_of_value_[value]; state != nullptr) {
    view.view.data = state->plain == nullptr ? nullptr : state->plain->data();
    view.packed = state->packed.get();
  } else if (bound.memory.value_offset[value] >= 0) {
    view.view.data = context.arena.data() + bound.memory.value_offset[value];
  }
  return view;
}

absl::Status ProgramExecutor::SetOperand(const StepContext& context, const BoundProgram& bound, int value,
                                         const void* data, int64_t bytes, bool on_device) const {
  const ValueView view = View(context, bound, value);
  const int64_t expected = ElementCount(view.view.shape) * ItemSize(view.view.dtype);
  if (bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat("input '", program_->values[value].name, "': block ",
                                                   ShapeText(view.view.shape), ": expected ", expected, " bytes, got ",
                                                   bytes));
  }
  if (view.view.data == nullptr || bytes == 0) return absl::OkStatus();  // nothing uses it
  if (on_device) return context.device.CopyOnDevice(context.stream, data, view.view.data, bytes);
  return context.device.CopyToDevice(context.stream, data, view.view.data, bytes);
}

absl::Status ProgramExecutor::Run(const StepContext& context, const BoundProgram& bound, size_t index) const {
  const Instruction& instruction = program_->instructions[index];
  std::vector<ValueView> inputs, outputs;
  for (int value : instruction.inputs) inputs.push_back(View(context, bound, value));
  for (int value : instruction.outputs) outputs.push_back(View(context, bound, value));
  return operations_[index](
      {context.device, context.stream, program_->mesh, coordinate_, instruction, caches_,
       context.paged ? context.sequences : absl::MakeConstSpan(bound.row_spans[index]), context.paged},
      inputs, outputs);
}

MemoryUse ProgramExecutor::UseOf(const StepContext& context, const BoundProgram& bound, size_t index) const {
  const Instruction& instruction = program_->instructions[index];
  MemoryUse use;
  auto add = [&](int value, std::vector<MemoryRange>* ranges) {
    const TensorView view = View(context, bound, value).view;
    const int64_t bytes = ElementCount(view.shape) * ItemSize(view.dtype);
    if (view.data != nullptr && bytes > 0) ranges->push_back({static_cast<const char*>(view.data), bytes});
  };
  for (const int value : instruction.inputs) {
    if (value >= 0) add(value, &use.reads);
  }
  for (const int value : instruction.outputs) add(value, &use.writes);
  if (bound.memory.scratch_bytes[index] > 0) {
    use.writes.push_back(
        {context.arena.data() + bound.memory.scratch_offset[index], bound.memory.scratch_bytes[index]});
  }
  return use;
}

absl::StatusOr<int64_t> ProgramExecutor::Redistribute(const StepContext& context, const BoundProgram& bound,
                                                      size_t index, Stream& stream) const {
  const Instruction& instruction = program_->instructions[index];
  const ValueView from = View(context, bound, instruction.inputs[0]);
  const ValueView to = View(context, bound, instruction.outputs[0]);
  Scratch scratch;
  if (bound.memory.scratch_bytes[index] > 0) {
    scratch = {context.arena.data() + bound.memory.scratch_offset[index], bound.memory.scratch_bytes[index]};
  }
  PacedCommunicator paced(context.communicator, context.pace);
  const RedistributeContext redistribute{context.device, stream,      paced,
                                         program_->mesh, coordinate_, context.pace.Deadline()};
  return ExecuteRedistributeStep(redistribute, *instruction.step, *from.global, from.view, to.view, scratch);
}

void ProgramExecutor::ZeroOutputs(const StepContext& context, const BoundProgram& bound, size_t index) const {
  for (int value : program_->instructions[index].outputs) {
    const TensorView view = View(context, bound, value).view;
    const int64_t bytes = ElementCount(view.shape) * ItemSize(view.dtype);
    // Its own failure adds nothing: the step has failed, and its values never leave the worker.
    if (bytes > 0) context.device.FillZero(context.stream, view.data, bytes).IgnoreError();
  }
}

StepOutcome ProgramExecutor::Enqueue(const StepContext& context, const BoundProgram& bound) const {
  StepOutcome outcome;
  Overlap overlap(context.device, context.stream, context.collectives);
  const size_t count = program_->instructions.size();
  for (size_t i = 0; i < count; ++i) {
    context.pace.Advance();
    const Instruction& instruction = program_->instructions[i];
    const MemoryUse use = overlap.active() ? UseOf(context, bound, i) : MemoryUse();
    absl::Status order = overlap.Before(use);
    if (instruction.step.has_value()) {
      const bool local_step = IsLocalStep(instruction.step->op);
      const bool beside = overlap.active() && !local_step && i + 1 < count && order.ok() &&
                          !Conflicts(use, UseOf(context, bound, i + 1));
      Stream* stream = &context.stream;
      if (beside) {
        absl::StatusOr<Stream*> side = overlap.Fork();
        order = side.status();
        if (side.ok()) stream = *side;
      }
      absl::StatusOr<int64_t> bytes =
          order.ok() ? Redistribute(context, bound, i, *stream) : absl::StatusOr<int64_t>(order);
      if (bytes.ok() && beside) {
        if (absl::Status forked = overlap.Forked(use); !forked.ok()) bytes = std::move(forked);
      }
      if (!bytes.ok() && !local_step) {
        outcome.transport = Describe(bytes.status(), instruction);
        return outcome;
      }
      if (!local_step) {
        outcome.collectives.push_back({instruction.module_path, std::string(RedistributeOpName(instruction.step->op)),
                                       StepAxesText(program_->mesh, *instruction.step), *bytes, instruction.reason});
      }
      if (bytes.ok()) continue;
      if (outcome.local.ok()) outcome.local = Describe(bytes.status(), instruction);
    } else if (outcome.local.ok()) {
      outcome.local = Describe(order.ok() ? Run(context, bound, i) : order, instruction);
      if (outcome.local.ok()) continue;
    }
    ZeroOutputs(context, bound, i);
  }
  if (absl::Status joined = overlap.Join(); !joined.ok()) outcome.transport = std::move(joined);
  return outcome;
}

StepOutcome ProgramExecutor::Execute(const StepContext& context, const BoundProgram& bound) const {
  StepOutcome outcome = Enqueue(context, bound);
  if (outcome.transport.ok()) FinishStep(context, &outcome);
  return outcome;
}

}  // namespace tp::worker
