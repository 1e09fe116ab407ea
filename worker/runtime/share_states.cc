#include "worker/runtime/share_states.h"

#include <memory>
#include <utility>

#include "common/base/status.h"

namespace tp::worker {
namespace {

absl::StatusOr<HeldTensorPtr> Shared(const LoadedModel& model, const Mesh& mesh, const LoadState& state,
                                     const SharePlace& place) {
  const auto it = model.states.find(state.path);
  if (it == model.states.end()) return absl::NotFoundError("the model has no such state");
  const DeviceState& held = it->second;
  auto tensor = std::make_shared<HeldTensor>();
  tensor->id = state.tensor_id;
  tensor->mesh_id = model.mesh_id;
  tensor->mesh = mesh;
  tensor->rank = model.rank;
  tensor->dtype = state.dtype;
  tensor->shape = state.shape;
  tensor->placements = state.placements;
  if (held.dtype != state.dtype || held.shape != tensor->LocalShape()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ", std::string(DTypeName(held.dtype)), ShapeText(held.shape), " on rank ", model.rank,
                     ", expected ", std::string(DTypeName(state.dtype)), ShapeText(tensor->LocalShape())));
  }
  if (held.plain != nullptr) {
    tensor->buffer = held.plain;
    return tensor;
  }
  TP_ASSIGN_OR_RETURN(tensor->buffer, place.memory.Allocate(tensor->size_bytes()));
  if (tensor->size_bytes() > 0) {
    TP_RETURN_IF_ERROR(
        place.device.UnpackWeight(place.stream, *held.packed, {held.dtype, tensor->buffer->data(), held.shape}));
  }
  return tensor;
}

}  // namespace

absl::Status ShareStatesOf(const LoadedModel& model, const ShareStates& share, const SharePlace& place) {
  if (model.rank >= share.mesh.rank_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", model.name, "' is rank ", model.rank, " here, the mesh is ", share.mesh.ToString()));
  }
  std::vector<HeldTensorPtr> shared;
  for (const LoadState& state : share.states) {
    absl::StatusOr<HeldTensorPtr> tensor = Shared(model, share.mesh, state, place);
    if (!tensor.ok()) return Annotate(tensor.status(), state.path);
    shared.push_back(*std::move(tensor));
  }
  TP_RETURN_IF_ERROR(place.device.Synchronize(place.stream));
  return place.tensors.Publish(shared);
}

}  // namespace tp::worker
