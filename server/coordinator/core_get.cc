// Gets: ranks send their blocks over data streams, which the client's call relays. Terms of P are reduced before, into
// a temporary that goes with the call.
#include <utility>

#include "common/base/status.h"
#include "common/layout/boxes.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

void Core::Impl::On(GetTensorRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("get of tensor '", event.name, "'"));
  if (operation == 0) return;
  const absl::Status status = StartGet(operation, event);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartGet(uint64_t operation, const GetTensorRequested& event) {
  TP_ASSIGN_OR_RETURN(const TensorState* tensor, ReadyTensor(event.name, "name"));
  UseBlocks(operation, tensor->tensor_id);
  operations_.at(operation).reply.tensors = {*tensor};
  if (event.local_blocks) return SendBlocks(operation, *tensor, true);
  return ReducePartial(operation, *tensor,
                       [this, operation](const TensorState& whole) { return SendBlocks(operation, whole, false); });
}

absl::Status Core::Impl::ReducePartial(uint64_t operation, const TensorState& tensor,
                                       std::function<absl::Status(const TensorState&)> next) {
  if (!HasPartial(tensor.placements)) return next(tensor);
  TP_ASSIGN_OR_RETURN(const NamedMesh* mesh, ReadyMesh(tensor.mesh, "mesh"));
  const uint64_t mesh_id = mesh->mesh_id;
  absl::StatusOr<TransformPlan> planned =
      PlanWithoutPartial(tensor.axes, {tensor.dtype, tensor.shape}, tensor.placements);
  if (!planned.ok()) return Annotate(planned.status(), absl::StrCat("reducing tensor '", tensor.name, "'"));
  const auto plan = std::make_shared<const TransformPlan>(*std::move(planned));
  TensorState whole = tensor;
  whole.placements = plan->to;
  TP_ASSIGN_OR_RETURN(whole.tensor_id, BlocksForTransform(operation, mesh_id,
                                                          absl::StrCat("reducing tensor '", tensor.name, "'"), *plan));
  operations_.at(operation).temporaries.push_back(whole.tensor_id);
  RunTransform(operation, mesh_id, *plan, tensor.tensor_id, whole.tensor_id,
               Then(operation, [this, operation, mesh_id, whole, next = std::move(next)] {
                 operations_.at(operation).meshes.erase(mesh_id);  // the rest does without its communicators
                 return next(whole);
               }));
  return absl::OkStatus();
}

absl::Status Core::Impl::SendBlocks(uint64_t operation, const TensorState& tensor, bool local_blocks) {
  const uint64_t group = OpenGroup("sending a tensor", Then(operation, [this, operation] {
                                     // Answered, but not over: the call reads the blocks and says when it has them.
                                     Operation& running = operations_.at(operation);
                                     for (const CallId call : running.calls) {
                                       OperationReply reply = running.reply;
                                       reply.call = call;
                                       Emit(std::move(reply));
                                     }
                                     running.answered = true;
                                     return absl::OkStatus();
                                   }));
  Operation& running = operations_.at(operation);
  running.groups.push_back(group);
  for (int rank = 0; rank < tensor.axes.rank_count(); ++rank) {
    const Coordinate coordinate = tensor.axes.CoordinateOf(rank);
    if (!local_blocks && !IsOwner(tensor.placements, tensor.axes, coordinate)) continue;
    const std::vector<Box> boxes = LocalBoxes(tensor.shape, tensor.placements, tensor.axes, coordinate);
    if (boxes.empty()) continue;
    const uint64_t transfer = ++last_transfer_;
    running.transfers.push_back(transfer);
    uint32_t index = 0;
    for (const Box& box : boxes) {
      AnswerBlock block;
      block.offset = box.offset;
      block.shape = box.shape;
      block.transfer_id = transfer;
      block.stream_index = index++;
      block.size_bytes = ElementCount(box.shape) * ItemSize(tensor.dtype);
      block.rank = rank;
      running.reply.blocks.push_back(std::move(block));
    }
    AddStage(group, tensor.mesh_id, rank, StageSend{tensor.tensor_id, transfer});
  }
  // A tensor without elements: nothing is sent.
  if (groups_.at(group).stages.empty()) std::exchange(groups_.at(group).done, nullptr)(absl::OkStatus());
  return absl::OkStatus();
}

void Core::Impl::On(GetFinished event) {
  const uint64_t operation = OperationOf(event.call);
  if (operation != 0) EndOperation(operation, absl::OkStatus());
}

}  // namespace tp::server
