// Redistributes: out of place, on one mesh or to another by way of a link; then the result takes the source's name.
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

void Core::Impl::On(RedistributeTensorRequested event) {
  const uint64_t operation = BeginOperation(event.head, absl::StrCat("redistribute of tensor '", event.name, "'"));
  if (operation == 0) return;
  const absl::Status status = StartRedistribute(operation, event);
  if (!status.ok()) EndOperation(operation, status);
}

absl::Status Core::Impl::StartRedistribute(uint64_t operation, const RedistributeTensorRequested& event) {
  TP_ASSIGN_OR_RETURN(TensorState * source, ReadyTensor(event.name, "name"));
  if (source->moving) {
    return absl::FailedPreconditionError(absl::StrCat("name: tensor '", event.name, "' is being redistributed"));
  }
  const bool in_place = event.as.empty();
  if (!in_place) TP_RETURN_IF_ERROR(CheckTensorName(event.as, "as"));
  TP_ASSIGN_OR_RETURN(const NamedMesh* from_mesh, FindMesh(source->mesh, "mesh"));
  const bool crosses = !event.mesh.empty() && event.mesh != source->mesh;
  const NamedMesh* to_mesh = from_mesh;
  if (crosses) {
    TP_ASSIGN_OR_RETURN(to_mesh, ReadyMesh(event.mesh, "mesh"));
  }
  TP_RETURN_IF_ERROR(CheckUsable(*from_mesh));
  const uint64_t source_mesh = from_mesh->mesh_id, target_mesh = to_mesh->mesh_id;
  const MeshState& here = meshes_.at(source_mesh);
  const MeshState& there = meshes_.at(target_mesh);
  const TensorType type{source->dtype, source->shape};
  TP_ASSIGN_OR_RETURN(const Placements placements,
                      ResolvePlacements(there.mesh, type, event.placements,
                                        crosses ? Placements(there.mesh.axis_count()) : source->placements));
  if (in_place && !crosses && placements == source->placements) {  // it is there already
    operations_.at(operation).reply.tensors.push_back(*source);
    EndOperation(operation, absl::OkStatus());
    return absl::OkStatus();
  }
  const MeshPlace target{there.mesh, there.workers};
  absl::StatusOr<MovePlan> planned =
      PlanMove(type, {here.mesh, here.workers}, source->placements, crosses ? &target : nullptr, placements);
  if (!planned.ok()) return Annotate(planned.status(), "placements");
  const auto plan = std::make_shared<const MovePlan>(*std::move(planned));
  operations_.at(operation).reply.steps = plan->steps;

  // Memory for all of it, before anything moves. The last blocks are the result, those before are temporary.
  const std::string what = absl::StrCat("redistribute of tensor '", event.name, "'");
  std::vector<uint64_t> ids = {source->tensor_id};
  const auto add = [&](absl::StatusOr<uint64_t> id) {
    if (!id.ok()) return id.status();
    if (ids.size() > 1) operations_.at(operation).temporaries.push_back(ids.back());
    ids.push_back(*id);
    return absl::OkStatus();
  };
  absl::Status reserved = absl::OkStatus();
  if (plan->first.has_value()) reserved = add(BlocksForTransform(operation, source_mesh, what, *plan->first));
  if (reserved.ok() && plan->hop.has_value()) reserved = add(NewBlocks(target_mesh, what, plan->hop->output_bytes));
  if (reserved.ok() && plan->last.has_value()) {
    reserved = add(BlocksForTransform(operation, target_mesh, what, *plan->last));
  }
  if (!reserved.ok()) {
    if (ids.size() > 1) operations_.at(operation).temporaries.push_back(ids.back());
    return reserved;
  }
  const uint64_t result = ids.back();
  UseBlocks(operation, source->tensor_id);
  TensorState state = *source;
  state.mesh = to_mesh->name;
  state.mesh_id = target_mesh;
  state.axes = there.mesh;
  state.placements = placements;
  state.tensor_id = result;
  state.moving = false;
  if (in_place) {
    source->moving = true;
    operations_.at(operation).moves = event.name;
    operations_.at(operation).made.push_back(result);
  } else {
    state.name = event.as;
    state.phase = TensorPhase::kCreating;
    EnterTensor(operation, state);
  }
  operations_.at(operation).meshes = {source_mesh, target_mesh};
  RunMove(operation, plan, ids, source_mesh, target_mesh, Then(operation, [this, operation, event, state] {
            if (!event.as.empty()) {
              PublishTensor(operation, event.as);
              EndOperation(operation, absl::OkStatus());
              return absl::OkStatus();
            }
            const uint64_t old = tensors_.at(event.name).tensor_id;
            tensors_[event.name] = state;
            Operation& running = operations_.at(operation);
            running.reply.tensors.push_back(state);
            running.goes_on = true;
            running.meshes.clear();
            // Answered once the source's memory is free, so that a next one finds it; readers are not awaited.
            running.uses.clear();
            ReleaseBlocks(old);
            const auto end = [this, operation](const absl::Status&) { EndOperation(operation, absl::OkStatus()); };
            const bool read = blocks_.at(old).uses > 0;
            DropBlocks(old, read ? Done(nullptr) : Done(end));
            if (read) EndOperation(operation, absl::OkStatus());
            return absl::OkStatus();
          }));
  return absl::OkStatus();
}

void Core::Impl::RunMove(uint64_t operation, std::shared_ptr<const MovePlan> plan, std::vector<uint64_t> ids,
                         uint64_t source_mesh, uint64_t target_mesh, Done done) {
  size_t at = 0;
  const size_t first = at;
  if (plan->first.has_value()) ++at;
  const size_t hop = at;
  if (plan->hop.has_value()) ++at;
  const size_t last = at;
  const auto run_last = [=, this] {
    if (!plan->last.has_value()) {
      done(absl::OkStatus());
    } else {
      RunTransform(operation, target_mesh, *plan->last, ids[last], ids[last + 1], done);
    }
    return absl::OkStatus();
  };
  const auto run_hop = [=, this] {
    if (!plan->hop.has_value()) return run_last();
    WithLink(source_mesh, target_mesh, Then(operation, [=, this] {
               RunTransfer(operation, *plan->hop, ids[hop], ids[hop + 1], source_mesh, target_mesh,
                           Then(operation, run_last));
               return absl::OkStatus();
             }));
    return absl::OkStatus();
  };
  if (plan->first.has_value()) {
    RunTransform(operation, source_mesh, *plan->first, ids[first], ids[first + 1], Then(operation, run_hop));
  } else {
    Then(operation, run_hop)(absl::OkStatus());
  }
}

}  // namespace tp::server
