// The blocks of tensors on workers: their ids and memory, how they are made, read and freed.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/forward_reply.h"

namespace tp::server {
namespace {

int64_t BytesOf(const TransformPlan& plan) {
  int64_t bytes = 0;
  for (const StepCount& step : plan.steps) bytes += step.bytes;
  for (const int64_t output : plan.output_bytes) bytes = std::max(bytes, output);
  return bytes;
}

}  // namespace

absl::StatusOr<uint64_t> Core::Impl::NewBlocks(uint64_t mesh_id, const std::string& what,
                                               const std::vector<int64_t>& bytes) {
  TP_ASSIGN_OR_RETURN(const uint64_t key, ReserveMemory(what, meshes_.at(mesh_id).workers, bytes));
  BlockRecord record;
  record.mesh_id = mesh_id;
  record.reservation = key;
  const uint64_t id = ++last_tensor_;
  blocks_[id] = std::move(record);
  return id;
}

void Core::Impl::UseBlocks(uint64_t operation, uint64_t tensor_id) {
  ++blocks_.at(tensor_id).uses;
  operations_.at(operation).uses.push_back(tensor_id);
}

void Core::Impl::ReleaseBlocks(uint64_t tensor_id) {
  --blocks_.at(tensor_id).uses;
  TryDrop(tensor_id);
}

void Core::Impl::DropBlocks(uint64_t tensor_id, Done dropped) {
  BlockRecord& record = blocks_.at(tensor_id);
  record.dropping = true;
  record.dropped = std::move(dropped);
  TryDrop(tensor_id);
}

void Core::Impl::TryDrop(uint64_t tensor_id) {
  const BlockRecord& record = blocks_.at(tensor_id);
  if (!record.dropping || record.uses > 0) return;
  const auto freed = [this, tensor_id](const CommandRecord&, const absl::Status&) {
    const auto it = blocks_.find(tensor_id);
    const BlockRecord gone = std::move(it->second);
    blocks_.erase(it);
    ledger_.Release(gone.reservation);
    if (gone.dropped) gone.dropped(absl::OkStatus());
  };
  AppendOptions options;
  options.frees = true;
  const bool there = record.published && meshes_.count(record.mesh_id) != 0;
  const auto drop = [&](int) { return DropTensors{{tensor_id}}; };
  if (!there || Append(record.mesh_id, options, drop, freed) == 0) freed({}, absl::OkStatus());
}

uint64_t Core::Impl::StageBlocks(uint64_t operation, uint64_t mesh_id, const std::string& what, uint64_t seed,
                                 const std::function<std::vector<NewTensor>(int rank)>& tensors, Done done) {
  const uint64_t group = OpenGroup(what, std::move(done));
  operations_.at(operation).groups.push_back(group);
  operations_.at(operation).meshes.insert(mesh_id);
  const MeshState& mesh = meshes_.at(mesh_id);
  for (int rank = 0; rank < mesh.mesh.rank_count(); ++rank) {
    AddStage(group, mesh_id, rank, StageTensors{mesh_id, mesh.mesh, rank, seed, tensors(rank)});
  }
  return group;
}

void Core::Impl::CommitBlocks(uint64_t operation, uint64_t mesh_id, uint64_t group,
                              const std::vector<uint64_t>& tensor_ids, Done done) {
  for (const uint64_t id : tensor_ids) blocks_.at(id).published = true;
  CommitGroups(mesh_id, {group}, [this, operation, group, done = std::move(done)](const absl::Status& status) {
    Operation* running = FindOperation(operation);
    if (running == nullptr) return;
    if (status.ok()) {  // what was staged is the tensors' now
      ForgetGroup(group);
      auto& groups = running->groups;
      groups.erase(std::remove(groups.begin(), groups.end(), group), groups.end());
    }
    done(status);
  });
}

absl::StatusOr<uint64_t> Core::Impl::BlocksForTransform(uint64_t operation, uint64_t mesh_id, const std::string& what,
                                                        const TransformPlan& plan) {
  TP_ASSIGN_OR_RETURN(const uint64_t scratch,
                      ReserveMemory(absl::StrCat(what, " (scratch)"), meshes_.at(mesh_id).workers, plan.scratch_bytes));
  operations_.at(operation).reservations.push_back(scratch);
  return NewBlocks(mesh_id, what, plan.output_bytes);
}

void Core::Impl::RunTransform(uint64_t operation, uint64_t mesh_id, const TransformPlan& plan, uint64_t input,
                              uint64_t output, Done done) {
  if (!Usable(mesh_id)) return done(absl::UnavailableError("the mesh has ended its epoch"));
  blocks_.at(output).published = true;
  operations_.at(operation).meshes.insert(mesh_id);
  AppendOptions options;
  options.command_class = CommandClass::kFirstWork;
  options.allowance = AllowanceFor(BytesOf(plan));
  Append(
      mesh_id, options,
      [&](int) {
        return Transform{plan.program, {input}, {output}};
      },
      [this, operation, done = std::move(done)](const CommandRecord& record, const absl::Status& status) {
        Operation* running = FindOperation(operation);
        if (running == nullptr) return;
        if (status.ok()) AddCounts(record.acks, &running->reply);
        done(status);
      });
}

}  // namespace tp::server
