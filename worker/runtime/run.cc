#include <utility>

#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "worker/runtime/tensor_commands.h"
#include "worker/runtime/work.h"

namespace tp::worker {
namespace {

StepContext StepContextOf(const WorkContext& context) {
  return {context.device,     context.stream, context.communicator, context.arena, context.pace, false, {},
          context.collectives};
}

// Of what the ranks are about to run.
uint64_t FingerprintOfRun(const LoadedModel* model, const Run& run) {
  if (run.program != nullptr) return CommandFingerprint(ProgramText(*run.program));
  return model == nullptr ? 0 : model->fingerprint;
}

// The model's forward program, or the one that came with the run.
absl::StatusOr<ProgramExecutor*> ExecutorOf(LoadedModel& model, const Run& run) {
  if (run.program == nullptr) return model.forward.get();
  std::string fingerprint = FingerprintOf(*run.program);
  if (model.other == nullptr || model.other_fingerprint != fingerprint) {
    model.other.reset();
    TP_RETURN_IF_ERROR(ValidateProgram(*run.program));
    if (!(run.program->mesh == model.forward->program().mesh)) {
      return absl::InvalidArgumentError(absl::StrCat("a program for mesh ", run.program->mesh.ToString(),
                                                     " on a model of mesh ", model.forward->program().mesh.ToString()));
    }
    if (WorksOnTensors(*run.program)) return absl::InvalidArgumentError("a run's program works on tensors");
    TP_ASSIGN_OR_RETURN(model.other, ProgramExecutor::Create(run.program,
                                                             Coordinate(model.forward->coordinate().begin(),
                                                                        model.forward->coordinate().end()),
                                                             &model.states, model.caches));
    model.other_fingerprint = std::move(fingerprint);
  }
  return model.other.get();
}

// What can be refused before anything is sent.
absl::StatusOr<const BoundProgram*> Prepare(const WorkContext& context, ProgramExecutor& executor, const Run& run) {
  std::map<std::string, Shape> shapes;
  for (const RunInput& input : run.inputs) {
    TP_RETURN_IF_ERROR(CheckedElementCount(input.global_shape).status());
    if (!shapes.emplace(input.name, input.global_shape).second) {
      return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "' is given twice"));
    }
  }
  TP_ASSIGN_OR_RETURN(const Bindings bindings, BindInputs(executor.program(), shapes));
  TP_ASSIGN_OR_RETURN(const BoundProgram* bound, executor.Bind(bindings));
  TP_RETURN_IF_ERROR(context.arena.Reserve(context.device, bound->memory.total_bytes));
  return bound;
}

// Whether the block of a tensor is what the program takes as an operand.
absl::Status CheckTensor(const ProgramExecutor& executor, const BoundProgram& bound, const Operand& operand,
                         const HeldTensor& tensor, int rank) {
  const ForwardProgram& program = executor.program();
  const DTensorSpec& spec = program.values[operand.value].spec;
  if (tensor.rank == rank && tensor.mesh == program.mesh && tensor.dtype == spec.dtype &&
      tensor.shape == bound.global[operand.value] && tensor.placements == spec.placements) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("input '", operand.name, "': tensor ", tensor.id, " is ", std::string(DTypeName(tensor.dtype)),
                   ShapeText(tensor.shape), " ", PlacementsText(tensor.mesh, tensor.placements), " on rank ",
                   tensor.rank, ", the program takes ", SpecText(spec, program.mesh), " on rank ", rank));
}

absl::Status SetOperands(const WorkContext& context, const ProgramExecutor& executor, const BoundProgram& bound,
                         const Run& run, const std::vector<RunBlock>& inputs) {
  const StepContext step = StepContextOf(context);
  for (const Operand& operand : executor.program().operands) {
    if (operand.kind == OperandKind::kPositions) {
      const Shape& shape = bound.global[operand.value];  // [batch, time]
      std::vector<int64_t> positions;
      for (int64_t row = 0; row < shape[0]; ++row) {
        for (int64_t at = 0; at < shape[1]; ++at) positions.push_back(at);
      }
      TP_RETURN_IF_ERROR(executor.SetOperand(step, bound, operand.value, positions.data(),
                                             static_cast<int64_t>(positions.size() * sizeof(int64_t))));
    } else if (operand.kind == OperandKind::kRows) {
      return absl::InternalError("a forward program with rows");
    } else if (operand.kind == OperandKind::kInput) {
      size_t i = 0;
      while (i < run.inputs.size() && run.inputs[i].name != operand.name) ++i;
      if (i == run.inputs.size())
        return absl::InvalidArgumentError(absl::StrCat("input '", operand.name, "' is missing"));
      if (inputs[i].tensor != nullptr) {
        const HeldTensor& tensor = *inputs[i].tensor;
        TP_RETURN_IF_ERROR(CheckTensor(executor, bound, operand, tensor, context.communicator.rank()));
        TP_RETURN_IF_ERROR(executor.SetOperand(step, bound, operand.value, tensor.buffer->data(), tensor.size_bytes(),
                                               /*on_device=*/true));
        continue;
      }
      TP_RETURN_IF_ERROR(executor.SetOperand(step, bound, operand.value, inputs[i].bytes.data(),
                                             static_cast<int64_t>(inputs[i].bytes.size())));
    }
  }
  return context.device.Synchronize(context.stream);
}

// The boxes of this rank's block of an output that it answers for; with `local_blocks` its whole block, as one.
absl::Status AppendBlocks(const WorkContext& context, const ProgramExecutor& executor, const BoundProgram& bound,
                          const NamedValue& output, bool local_blocks, std::vector<ResultBlock>* blocks) {
  const ForwardProgram& program = executor.program();
  const absl::Span<const int> coordinate = executor.coordinate();
  const ValueView value = executor.View(StepContextOf(context), bound, output.value);
  const Shape& global = *value.global;
  if (!local_blocks && !IsOwner(value.spec->placements, program.mesh, coordinate)) return absl::OkStatus();
  // Of an empty tensor rank 0 answers, so that its shape is known; of an empty shard nobody does.
  const int64_t elements = ElementCount(value.view.shape);
  if (!local_blocks && elements == 0 && (ElementCount(global) > 0 || context.communicator.rank() != 0))
    return absl::OkStatus();
  if (elements > 0 && value.view.data == nullptr) {
    return absl::UnimplementedError(absl::StrCat("output '", output.name, "' is a packed weight"));
  }
  std::string whole(static_cast<size_t>(elements * ItemSize(value.view.dtype)), '\0');
  if (elements > 0) {
    TP_RETURN_IF_ERROR(
        context.device.CopyToHost(context.stream, value.view.data, whole.data(), static_cast<int64_t>(whole.size())));
    TP_RETURN_IF_ERROR(context.device.Synchronize(context.stream));
  }
  std::vector<Box> boxes = LocalBoxes(global, value.spec->placements, program.mesh, coordinate);
  if (local_blocks || elements == 0) {
    boxes = {{LocalOffset(global, value.spec->placements, program.mesh, coordinate), value.view.shape, {}}};
  }
  for (const Box& box : boxes) {
    ResultBlock block{output.name, value.view.dtype, global, box.offset, box.shape, {}, false};
    if (boxes.size() == 1) {
      block.data = std::move(whole);
    } else {
      block.data.resize(static_cast<size_t>(ElementCount(block.shape) * ItemSize(block.dtype)));
      CopyBox(whole.data(), value.view.shape, box.local, block.data.data(), block.shape, Shape(box.shape.size(), 0),
              block.shape, ItemSize(block.dtype));
    }
    blocks->push_back(std::move(block));
  }
  return absl::OkStatus();
}

// Blocks that are too large together are marked, and their bytes move to `streamed`.
void MoveLargeBlocks(RunResult* result, std::vector<std::string>* streamed) {
  int64_t bytes = 0;
  for (const ResultBlock& block : result->blocks) bytes += static_cast<int64_t>(block.data.size());
  if (bytes <= kInlineResultBytes) return;
  for (ResultBlock& block : result->blocks) {
    block.streamed = true;
    streamed->push_back(std::exchange(block.data, {}));
  }
}

}  // namespace

WorkOutcome ExecuteRun(const WorkContext& shared, LoadedModel* model, const Run& run,
                       const std::vector<RunBlock>& inputs, const absl::Status& refused) {
  WorkOutcome outcome;
  Arena own;  // of a program that came with the run: its memory is not kept
  const WorkContext context{
      shared.device, shared.stream, shared.communicator, run.program == nullptr ? shared.arena : own,
      shared.pace,   shared.epoch,  shared.order,        shared.collectives};
  const int64_t wire_before = context.communicator.wire().bytes_received;
  CommandHeaders headers(context, FingerprintOfRun(model, run), &outcome);
  absl::Status local = refused;
  ProgramExecutor* executor = nullptr;
  const BoundProgram* bound = nullptr;
  if (local.ok()) {
    const absl::StatusOr<ProgramExecutor*> found = ExecutorOf(*model, run);
    local = found.status();
    if (local.ok()) executor = *found;
  }
  if (local.ok()) {
    absl::StatusOr<const BoundProgram*> prepared = Prepare(context, *executor, run);
    local = prepared.status();
    if (local.ok()) {
      bound = *prepared;
      local = SetOperands(context, *executor, *bound, run, inputs);
    }
  }
  if (!headers.Agree(0, false, local)) return outcome;

  const StepOutcome step = executor->Execute(StepContextOf(context), *bound);
  if (!step.transport.ok()) {
    outcome.transport = true;
    outcome.status = step.status();
    return outcome;
  }
  local = step.local;
  RunResult result;
  for (const NamedValue& output : executor->program().outputs) {
    if (local.ok()) local = AppendBlocks(context, *executor, *bound, output, run.local_blocks, &result.blocks);
  }
  if (!headers.Agree(1, true, local)) return outcome;
  result.collectives = step.collectives;
  result.wire_bytes = context.communicator.wire().bytes_received - wire_before;
  MoveLargeBlocks(&result, &outcome.streamed);
  outcome.run = std::move(result);
  return outcome;
}

}  // namespace tp::worker
