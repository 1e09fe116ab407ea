#include "worker/runtime/tensor_commands.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/digest.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

constexpr int64_t kBroadcastBytes = int64_t{64} << 20;

TensorView ViewOf(const HeldTensor& tensor) { return {tensor.dtype, tensor.buffer->data(), tensor.LocalShape()}; }

// One tensor of a Broadcast on this rank.
struct Copies {
  HeldTensorPtr tensor;
  std::vector<int> axes;  // of R, with more than one rank
  std::vector<int> group;
  int root = 0;
};

absl::StatusOr<Copies> CopiesOf(const TensorWork& work, uint64_t id, int source) {
  Copies copies;
  TP_ASSIGN_OR_RETURN(copies.tensor, HeldOn(work, id));
  const HeldTensor& tensor = *copies.tensor;
  Coordinate from = tensor.mesh.CoordinateOf(tensor.rank);
  for (int axis = 0; axis < tensor.mesh.axis_count(); ++axis) {
    if (!tensor.placements[axis].IsReplicate() || tensor.mesh.axis_size(axis) == 1) continue;
    if (source < 0 || source >= tensor.mesh.axis_size(axis)) {
      return absl::InvalidArgumentError(absl::StrCat("src_data_rank ", source, ": axis '",
                                                     tensor.mesh.axes()[axis].name, "' has ",
                                                     tensor.mesh.axis_size(axis), " ranks"));
    }
    copies.axes.push_back(axis);
    from[axis] = source;
  }
  copies.group = tensor.mesh.GroupAlong(absl::MakeConstSpan(copies.axes), tensor.rank);
  copies.root = tensor.mesh.RankAt(from);
  return copies;
}

// Payload that the busiest rank receives.
int64_t BroadcastBytes(const HeldTensor& tensor) {
  int64_t most = 0;
  for (int rank = 0; rank < tensor.mesh.rank_count(); ++rank) {
    most = std::max(
        most, ElementCount(LocalShape(tensor.shape, tensor.placements, tensor.mesh, tensor.mesh.CoordinateOf(rank))));
  }
  return most * ItemSize(tensor.dtype);
}

absl::Status Send(const WorkContext& context, const Copies& copies) {
  const TensorView view = ViewOf(*copies.tensor);
  const int64_t item = ItemSize(view.dtype), elements = ElementCount(view.shape), piece = kBroadcastBytes / item;
  for (int64_t at = 0; at < elements; at += piece) {
    context.pace.Advance();
    TP_RETURN_IF_ERROR(context.communicator.Broadcast(
        context.stream, copies.group, copies.root, static_cast<char*>(view.data) + at * item,
        std::min(piece, elements - at), view.dtype, context.pace.Deadline()));
  }
  return absl::OkStatus();
}

// A Transform that this rank can run.
struct Prepared {
  std::map<int, DeviceState> memory;  // by value
  std::vector<HeldTensorPtr> outputs;
  std::unique_ptr<ProgramExecutor> executor;
  const BoundProgram* bound = nullptr;
  Arena arena;
};

// Local shape of a value whose global shape is constant.
absl::StatusOr<Shape> LocalShapeOf(const ForwardProgram& program, int value, int rank, Shape* global) {
  const DTensorSpec& spec = program.values[value].spec;
  TP_ASSIGN_OR_RETURN(*global, EvaluateShape(spec.shape, {}));
  TP_RETURN_IF_ERROR(CheckedBytes(*global, spec.dtype).status());
  TP_RETURN_IF_ERROR(ValidateForShape(*global, spec.placements, program.mesh));
  return LocalShape(*global, spec.placements, program.mesh, program.mesh.CoordinateOf(rank));
}

absl::Status Prepare(const TensorWork& work, const Transform& transform, Prepared* prepared) {
  const ForwardProgram& program = *transform.program;
  const int rank = work.context.communicator.rank();
  TP_RETURN_IF_ERROR(ValidateProgram(program));
  if (program.mesh.rank_count() != work.context.communicator.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a program for ", program.mesh.rank_count(), " ranks on a mesh of ",
                                                   work.context.communicator.size()));
  }
  if (program.operands.size() != transform.inputs.size() || program.outputs.size() != transform.outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a program of ", program.operands.size(), " operands and ",
                                                   program.outputs.size(), " outputs for ", transform.inputs.size(),
                                                   " and ", transform.outputs.size(), " tensors"));
  }
  for (size_t i = 0; i < program.operands.size(); ++i) {
    const Operand& operand = program.operands[i];
    if (operand.kind != OperandKind::kTensor) {
      return absl::InvalidArgumentError(absl::StrCat("operand '", operand.name, "' is no tensor"));
    }
    TP_ASSIGN_OR_RETURN(const HeldTensorPtr tensor, HeldOn(work, transform.inputs[i]));
    const DTensorSpec& spec = program.values[operand.value].spec;
    Shape global;
    TP_ASSIGN_OR_RETURN(Shape local, LocalShapeOf(program, operand.value, rank, &global));
    if (tensor->dtype != spec.dtype || tensor->shape != global || tensor->placements != spec.placements ||
        !(tensor->mesh == program.mesh)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor->id, " is ", std::string(DTypeName(tensor->dtype)), ShapeText(tensor->shape), " ",
          PlacementsText(tensor->mesh, tensor->placements), ", the program takes ", SpecText(spec, program.mesh)));
    }
    prepared->memory[operand.value] = {spec.dtype, std::move(local), tensor->buffer, nullptr};
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const int value = program.outputs[i].value;
    if (work.tensors.Contains(transform.outputs[i]) ||
        std::count(transform.outputs.begin(), transform.outputs.end(), transform.outputs[i]) > 1) {
      return absl::AlreadyExistsError(absl::StrCat("tensor ", transform.outputs[i], " is there already"));
    }
    const DTensorSpec& spec = program.values[value].spec;
    auto held = std::make_shared<HeldTensor>();
    TP_ASSIGN_OR_RETURN(Shape local, LocalShapeOf(program, value, rank, &held->shape));
    if (!prepared->memory.contains(value)) {
      TP_ASSIGN_OR_RETURN(std::shared_ptr<DeviceBuffer> buffer,
                          work.memory.Allocate(ElementCount(local) * ItemSize(spec.dtype)));
      prepared->memory[value] = {spec.dtype, std::move(local), std::move(buffer), nullptr};
    }
    held->id = transform.outputs[i];
    held->mesh_id = work.mesh_id;
    held->mesh = program.mesh;
    held->rank = rank;
    held->dtype = spec.dtype;
    held->placements = spec.placements;
    held->buffer = prepared->memory[value].plain;
    prepared->outputs.push_back(std::move(held));
  }
  TP_ASSIGN_OR_RETURN(prepared->executor, ProgramExecutor::Create(transform.program, program.mesh.CoordinateOf(rank),
                                                                  nullptr, {}, &prepared->memory));
  TP_ASSIGN_OR_RETURN(prepared->bound, prepared->executor->Bind({}));
  return prepared->arena.Reserve(work.context.device, prepared->bound->memory.total_bytes);
}

}  // namespace

absl::StatusOr<HeldTensorPtr> HeldOn(const TensorWork& work, uint64_t id) {
  TP_ASSIGN_OR_RETURN(HeldTensorPtr tensor, work.tensors.Get(id));
  const Communicator& communicator = work.context.communicator;
  if (tensor->mesh_id == work.mesh_id && tensor->rank == communicator.rank() &&
      tensor->mesh.rank_count() == communicator.size()) {
    return tensor;
  }
  return absl::FailedPreconditionError(absl::StrCat("tensor ", id, " is on rank ", tensor->rank, " of mesh ",
                                                    tensor->mesh_id, ", not rank ", communicator.rank(), " of mesh ",
                                                    work.mesh_id));
}

uint64_t CommandFingerprint(const std::string& text) {
  return std::strtoull(Sha256Hex(text).substr(0, 16).c_str(), nullptr, 16);
}

WorkOutcome ExecuteBroadcast(const TensorWork& work, const Broadcast& broadcast) {
  const WorkContext& context = work.context;
  WorkOutcome outcome;
  const int64_t wire_before = context.communicator.wire().bytes_received;
  CommandHeaders headers(context,
                         CommandFingerprint(absl::StrCat("broadcast from ", broadcast.src_data_rank, ": ",
                                                         absl::StrJoin(broadcast.tensor_ids, ","))),
                         &outcome);
  absl::Status local;
  std::vector<Copies> all;
  for (const uint64_t id : broadcast.tensor_ids) {
    absl::StatusOr<Copies> copies = CopiesOf(work, id, broadcast.src_data_rank);
    if (local.ok()) local = copies.status();
    if (copies.ok()) all.push_back(*std::move(copies));
  }
  if (!headers.Agree(0, false, local)) return outcome;
  RunResult result;
  for (const Copies& copies : all) {
    if (copies.group.size() == 1) continue;
    const absl::Status sent = Send(context, copies);
    if (!sent.ok()) {
      outcome.transport = true;
      outcome.status = Annotate(sent, absl::StrCat("tensor ", copies.tensor->id));
      return outcome;
    }
    result.collectives.push_back({"", "broadcast",
                                  StepAxesText(copies.tensor->mesh, {RedistributeOp::kNone, copies.axes, {}, {}}),
                                  BroadcastBytes(*copies.tensor), ""});
  }
  if (!headers.Agree(1, true, context.device.Synchronize(context.stream))) return outcome;
  result.wire_bytes = context.communicator.wire().bytes_received - wire_before;
  outcome.run = std::move(result);
  return outcome;
}

WorkOutcome ExecuteTransform(const TensorWork& work, const Transform& transform) {
  const WorkContext& context = work.context;
  WorkOutcome outcome;
  const int64_t wire_before = context.communicator.wire().bytes_received;
  CommandHeaders headers(
      context,
      CommandFingerprint(absl::StrCat(ProgramText(*transform.program), "\n", absl::StrJoin(transform.inputs, ","),
                                      " -> ", absl::StrJoin(transform.outputs, ","))),
      &outcome);
  Prepared prepared;
  if (!headers.Agree(0, false, Prepare(work, transform, &prepared))) return outcome;
  const StepOutcome step = prepared.executor->Execute(
      {context.device, context.stream, context.communicator, prepared.arena, context.pace, false, {}}, *prepared.bound);
  if (!step.transport.ok()) {
    outcome.transport = true;
    outcome.status = step.status();
    return outcome;
  }
  if (!headers.Agree(1, true, step.local)) return outcome;
  outcome.status = work.tensors.Publish(prepared.outputs);
  outcome.run.collectives = step.collectives;
  outcome.run.wire_bytes = context.communicator.wire().bytes_received - wire_before;
  return outcome;
}

}  // namespace tp::worker
