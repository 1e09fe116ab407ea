// Inputs of a forward that the ranks hold as tensors (refs) or that come as blocks of ranks (shards). What is not in
// the layout that the program takes, the ranks redistribute, into temporary tensors; an operation without a caller
// holds these, and the tensors that are read, until the forward ends, however it does.
#include <memory>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/forward_inputs.h"

namespace tp::server {
namespace {

std::string InputText(const std::string& name) { return absl::StrCat("input '", name, "'"); }

const Operand* OperandOf(const ForwardProgram& program, const std::string& input) {
  for (const Operand& operand : program.operands) {
    if (operand.kind == OperandKind::kInput && operand.name == input) return &operand;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<MovedInput> Core::Impl::RefInput(const std::string& input, const std::string& tensor_name,
                                                const ModelState& model, const ForwardProgram& program) {
  TP_ASSIGN_OR_RETURN(const TensorState* tensor, ReadyTensor(tensor_name, InputText(input)));
  const MeshState& mesh = meshes_.at(model.mesh_id);
  const MeshState& other = meshes_.at(tensor->mesh_id);
  if (!(other.mesh == mesh.mesh) || other.workers != mesh.workers) {
    return absl::FailedPreconditionError(absl::StrCat(
        InputText(input), ": tensor '", tensor_name, "' is on mesh '", tensor->mesh, "' (", other.mesh.ToString(),
        " on ", absl::StrJoin(other.workers, ","), "), model '", model.name, "' on a mesh ", mesh.mesh.ToString(),
        " on ", absl::StrJoin(mesh.workers, ","), "; the axes and the workers by rank must be the same"));
  }
  MovedInput moved;
  moved.name = input;
  moved.mesh_id = tensor->mesh_id;
  moved.axes = tensor->axes;
  moved.type = {tensor->dtype, tensor->shape};
  moved.from = tensor->placements;
  moved.tensor_id = tensor->tensor_id;
  const Operand* operand = OperandOf(program, input);
  if (operand == nullptr) return moved;
  moved.to = program.values[operand->value].spec.placements;
  if (moved.from != moved.to) {
    TP_RETURN_IF_ERROR(Annotate(ReadyMesh(tensor->mesh, "mesh").status(), InputText(input)));
  }
  return moved;
}

absl::Status Core::Impl::TakeInputs(ForwardRequested* event, const ModelState& model, const ForwardProgram& program,
                                    ForwardCall* call) {
  GivenInputs given;
  std::map<std::string, PlacedShards> shards;
  for (const auto& [name, tensor] : event->inputs) given[name] = {tensor.dtype, tensor.shape, &tensor};
  for (auto& [name, blocks] : event->shards) {
    absl::StatusOr<PlacedShards> placed = PlaceShards(std::move(blocks), program.mesh);
    if (!placed.ok()) return Annotate(placed.status(), InputText(name));
    const PlacedShards& kept = shards[name] = *std::move(placed);
    given[name] = {kept.dtype, kept.shape, nullptr, &kept};
  }
  std::vector<MovedInput> moved;
  for (const auto& [name, tensor] : event->refs) {
    TP_ASSIGN_OR_RETURN(MovedInput input, RefInput(name, tensor, model, program));
    given[name] = {input.type.dtype, input.type.shape};
    if (OperandOf(program, name) != nullptr) moved.push_back(std::move(input));
  }
  TP_ASSIGN_OR_RETURN(call->bindings, CheckForwardInputs(model.submission->model, program, given));
  call->inputs = std::move(event->inputs);
  for (auto& [name, placed] : shards) {
    const Operand* operand = OperandOf(program, name);
    if (operand == nullptr) continue;
    const Placements& taken = program.values[operand->value].spec.placements;
    if (SameLayout(placed.placements, taken, program.mesh)) {
      call->shards[name] = std::move(placed);
      continue;
    }
    MovedInput input;
    input.name = name;
    input.mesh_id = model.mesh_id;
    input.axes = program.mesh;
    input.type = {placed.dtype, placed.shape};
    input.from = placed.placements;
    input.to = taken;
    input.shards = std::move(placed);
    moved.push_back(std::move(input));
  }
  if (!moved.empty()) {
    Operation operation;
    operation.what = absl::StrCat("forward of model '", model.name, "'");
    operation.ended = [this, id = event->call, name = model.resident](const absl::Status& status) {
      if (status.ok()) return;
      FailForward(id, status);
      PumpForwards(name);
    };
    call->operation = ++last_operation_;
    operations_[call->operation] = std::move(operation);
    // From now on: who deletes or redistributes one of them meanwhile does not take these values away.
    for (const MovedInput& input : moved) {
      if (input.tensor_id != 0) UseBlocks(call->operation, input.tensor_id);
    }
  }
  call->moved = std::move(moved);
  return absl::OkStatus();
}

absl::Status Core::Impl::StartMove(CallId id, MovedInput input) {
  if (input.tensor_id == 0) return StageShards(id, std::move(input));
  if (input.from != input.to) return Redistribute(id, input);
  OnMoved(id, input.name, input.tensor_id);
  return absl::OkStatus();
}

absl::Status Core::Impl::StageShards(CallId id, MovedInput input) {
  const uint64_t operation = forwards_.at(id).operation;
  TP_ASSIGN_OR_RETURN(input.tensor_id,
                      NewBlocks(input.mesh_id, InputText(input.name), BlockBytes(input.axes, input.type, input.from)));
  operations_.at(operation).temporaries.push_back(input.tensor_id);
  std::vector<std::string> data = std::move(input.shards.data);
  const auto block_of = [&](int rank) {
    NewTensor block;
    block.tensor_id = input.tensor_id;
    block.state.path = input.name;
    block.state.shape = input.type.shape;
    block.state.dtype = input.type.dtype;
    block.state.placements = input.from;
    if (data[rank].empty()) return std::vector<NewTensor>{std::move(block)};  // made, not sent
    block.origin = NewTensor::Origin::kTransfer;
    block.transfer_id = ++last_transfer_;
    operations_.at(operation).transfers.push_back(block.transfer_id);
    Emit(OfferTransfer{meshes_.at(input.mesh_id).workers[rank], block.transfer_id,
                       std::make_shared<const std::string>(std::move(data[rank]))});
    return std::vector<NewTensor>{std::move(block)};
  };
  input.shards = {};
  const auto group = std::make_shared<uint64_t>(0);
  const auto committed = [this, id, input] { return Redistribute(id, input); };
  const auto staged = [this, operation, input, group, committed] {
    if (!Usable(input.mesh_id)) return absl::UnavailableError("the mesh has ended its epoch");
    CommitBlocks(operation, input.mesh_id, *group, {input.tensor_id}, Then(operation, committed));
    return absl::OkStatus();
  };
  *group = StageBlocks(operation, input.mesh_id, "receiving an input", 0, block_of, Then(operation, staged));
  return absl::OkStatus();
}

absl::Status Core::Impl::Redistribute(CallId id, const MovedInput& input) {
  const uint64_t operation = forwards_.at(id).operation;
  if (!Usable(input.mesh_id)) return absl::UnavailableError("the mesh has ended its epoch");
  const absl::StatusOr<TransformPlan> plan = PlanTransform(input.axes, input.type, input.from, input.to);
  if (!plan.ok()) return Annotate(plan.status(), InputText(input.name));
  TP_ASSIGN_OR_RETURN(const uint64_t output,
                      BlocksForTransform(operation, input.mesh_id, InputText(input.name), *plan));
  operations_.at(operation).temporaries.push_back(output);
  RunTransform(operation, input.mesh_id, *plan, input.tensor_id, output,
               Then(operation, [this, id, operation, name = input.name, output] {
                 std::vector<StepCount> counted;
                 counted.swap(operations_.at(operation).reply.counted);
                 for (StepCount& step : counted) {
                   forwards_.at(id).collectives.push_back(
                       {absl::StrCat("(input ", name, ")"), std::move(step.op), std::move(step.axis), step.bytes, ""});
                 }
                 OnMoved(id, name, output);
                 return absl::OkStatus();
               }));
  return absl::OkStatus();
}

void Core::Impl::OnMoved(CallId id, const std::string& input, uint64_t tensor_id) {
  for (std::vector<RunInput>& inputs : forwards_.at(id).rank_inputs) {
    for (RunInput& taken : inputs) {
      if (taken.name == input) taken.tensor_id = tensor_id;
    }
  }
  OnInputReady(id, absl::OkStatus());
}

}  // namespace tp::server
