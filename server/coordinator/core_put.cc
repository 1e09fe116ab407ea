// Puts: ranks stage their blocks from bytes that the client's call passes on; then a Commit, and a Broadcast where
// equal copies come from another rank.
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/put_plan.h"

namespace tp::server {

void Core::Impl::On(PutTensorRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("put of tensor '", event.name, "'"));
  if (operation == 0) return;
  const CallId call = event.head.call;
  const absl::Status status = StartPut(operation, call, std::move(event));
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartPut(uint64_t operation, CallId call, PutTensorRequested event) {
  TP_RETURN_IF_ERROR(CheckTensorName(event.name, "name"));
  TP_ASSIGN_OR_RETURN(const NamedMesh* named, ReadyMesh(event.mesh, "mesh"));
  const uint64_t mesh_id = named->mesh_id;
  const MeshState& mesh = meshes_.at(mesh_id);
  TP_ASSIGN_OR_RETURN(const PutPlan plan, PlanPut(event, mesh.mesh));
  TensorState tensor;
  tensor.name = event.name;
  tensor.mesh = event.mesh;
  tensor.mesh_id = mesh_id;
  tensor.axes = mesh.mesh;
  tensor.dtype = event.dtype;
  tensor.shape = plan.shape;
  tensor.placements = plan.placements;
  TP_ASSIGN_OR_RETURN(tensor.tensor_id, NewBlocks(mesh_id, absl::StrCat("tensor '", event.name, "'"), plan.bytes));
  const TensorState& entered = *EnterTensor(operation, std::move(tensor));
  const uint64_t tensor_id = entered.tensor_id;

  PutStarted started;
  started.call = call;
  started.mesh = mesh.mesh;
  started.dtype = event.dtype;
  started.shape = plan.shape;
  started.placements = plan.placements;
  Operation& running = operations_.at(operation);
  for (int rank = 0; rank < mesh.mesh.rank_count(); ++rank) {
    if (plan.origins[rank] != NewTensor::Origin::kTransfer) continue;
    PutTarget target;
    target.rank = rank;
    target.worker = mesh.workers[rank];
    target.transfer_id = ++last_transfer_;
    target.size_bytes = plan.bytes[rank];
    target.local = plan.locals[rank];
    target.copy_of = plan.copy_of[rank];
    running.transfers.push_back(target.transfer_id);
    started.targets.push_back(std::move(target));
  }
  LoadState state;
  state.path = event.name;
  state.shape = plan.shape;
  state.dtype = event.dtype;
  state.placements = plan.placements;
  size_t next = 0;
  const auto block_of = [&](int rank) {
    NewTensor block;
    block.tensor_id = tensor_id;
    block.state = state;
    block.origin = plan.origins[rank];
    if (block.origin == NewTensor::Origin::kTransfer) block.transfer_id = started.targets[next++].transfer_id;
    return std::vector<NewTensor>{std::move(block)};
  };
  const uint64_t group = StageBlocks(operation, mesh_id, "receiving a tensor", 0, block_of, Then(operation, [=, this] {
                                       operations_.at(operation).staged = true;
                                       CommitPut(operation);
                                       return absl::OkStatus();
                                     }));
  const auto publish = [this, operation, name = event.name] {
    PublishTensor(operation, name);
    EndOperation(operation, absl::OkStatus());
    return absl::OkStatus();
  };
  const auto broadcast = [=, this, copies = plan.broadcast, source = event.src_data_rank] {
    if (!copies) return publish();
    if (!Usable(mesh_id)) return absl::UnavailableError("the mesh has ended its epoch");
    AppendOptions options;
    options.command_class = CommandClass::kFirstWork;
    options.allowance = AllowanceFor(plan.bytes[0]);
    Append(
        mesh_id, options,
        [&](int) {
          return Broadcast{{tensor_id}, source};
        },
        [then = Then(operation, publish)](const CommandRecord&, const absl::Status& status) { then(status); });
    return absl::OkStatus();
  };
  operations_.at(operation).commit = [=, this] {
    CommitBlocks(operation, mesh_id, group, {tensor_id}, Then(operation, broadcast));
  };
  Emit(std::move(started));
  return absl::OkStatus();
}

void Core::Impl::CommitPut(uint64_t operation) {
  const Operation& running = operations_.at(operation);
  // A client that sends more than the tensor has is known to do so only at the end of its stream.
  if (running.sent && running.staged) std::function<void()>(running.commit)();
}

void Core::Impl::On(PutProgressed event) {
  const uint64_t operation = OperationOf(event.call);
  if (operation == 0) return;
  // Ranks get their blocks one after the other: all wait while one receives.
  for (const uint64_t group : operations_.at(operation).groups) {
    for (const uint64_t stage : groups_.at(group).stages) stages_.at(stage).last_change = now_;
  }
}

void Core::Impl::On(PutSent event) {
  const uint64_t operation = OperationOf(event.call);
  if (operation == 0 || !operations_.at(operation).commit) return;
  operations_.at(operation).sent = true;
  CommitPut(operation);
}

}  // namespace tp::server
