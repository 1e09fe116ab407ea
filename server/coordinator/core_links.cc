// Links: meshes over the workers of two named ones, on which tensors move from one to the other. Made when first needed
// and kept until one of both ends.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/forward_reply.h"

namespace tp::server {
namespace {

std::pair<uint64_t, uint64_t> KeyOf(uint64_t a, uint64_t b) { return {std::min(a, b), std::max(a, b)}; }

}  // namespace

const LinkRecord* Core::Impl::FindLink(uint64_t a, uint64_t b) const {
  const auto it = links_.find(KeyOf(a, b));
  return it == links_.end() ? nullptr : &it->second;
}

void Core::Impl::WithLink(uint64_t a, uint64_t b, Done done) {
  const auto key = KeyOf(a, b);
  const auto known = links_.find(key);
  if (known != links_.end() && known->second.ready) return done(absl::OkStatus());
  if (known != links_.end()) {
    known->second.waiting.push_back(std::move(done));
    return;
  }
  std::vector<std::string> workers = meshes_.at(key.first).workers;
  for (const std::string& worker : meshes_.at(key.second).workers) {
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) workers.push_back(worker);
  }
  const absl::StatusOr<Mesh> mesh = Mesh::Create({{"link", static_cast<int>(workers.size())}});
  if (!mesh.ok()) return done(mesh.status());
  const uint64_t mesh_id = MakeMesh(*mesh, workers);
  meshes_.at(mesh_id).link = true;
  LinkRecord link;
  link.mesh_id = mesh_id;
  link.waiting.push_back(std::move(done));
  links_[key] = std::move(link);
  // Gone with the link.
  Connect(mesh_id, [this, key, mesh_id](const absl::Status& connected) {
    if (!connected.ok()) return CloseLinks(mesh_id, Annotate(connected, "connecting both meshes"));
    CommitGroups(mesh_id, {}, [this, key, mesh_id](const absl::Status& status) {
      if (!status.ok()) return CloseLinks(mesh_id, Annotate(status, "connecting both meshes"));
      links_.at(key).ready = true;
      const std::vector<Done> waiting = std::move(links_.at(key).waiting);
      links_.at(key).waiting.clear();
      for (const Done& next : waiting) next(absl::OkStatus());
    });
  });
}

void Core::Impl::CloseLinks(uint64_t mesh_id, const absl::Status& status_view) {
  const absl::Status status = status_view;  // may live in what is erased here
  std::vector<LinkRecord> closed;
  for (auto it = links_.begin(); it != links_.end();) {
    if (it->first.first != mesh_id && it->first.second != mesh_id && it->second.mesh_id != mesh_id) {
      ++it;
      continue;
    }
    closed.push_back(std::move(it->second));
    it = links_.erase(it);
  }
  for (const LinkRecord& link : closed) {
    EndOperationsOn(link.mesh_id, status);
    const int ranks = static_cast<int>(meshes_.at(link.mesh_id).workers.size());
    for (int rank = 0; rank < ranks; ++rank) {
      if (AliveRank(link.mesh_id, rank)) continue;  // the others may wait for it
      SendAborts(link.mesh_id, std::string(status.message()));
      break;
    }
    FreeRanks(link.mesh_id, "", nullptr);
    ForgetMesh(link.mesh_id);
    for (const Done& waiting : link.waiting) waiting(status);
  }
}

void Core::Impl::RunTransfer(uint64_t operation, const HopPlan& plan, uint64_t input, uint64_t output,
                             uint64_t source_mesh, uint64_t target_mesh, Done done) {
  const uint64_t link_id = FindLink(source_mesh, target_mesh)->mesh_id;
  if (!Usable(link_id)) return done(absl::UnavailableError("the connection of both meshes has ended its epoch"));
  const std::vector<std::string>& workers = meshes_.at(link_id).workers;
  const auto ranks = [&](uint64_t mesh_id) {
    std::vector<int> result;
    for (const std::string& worker : meshes_.at(mesh_id).workers) {
      result.push_back(static_cast<int>(std::find(workers.begin(), workers.end(), worker) - workers.begin()));
    }
    return result;
  };
  Transfer transfer;
  transfer.input = input;
  transfer.output = output;
  transfer.dtype = plan.dtype;
  transfer.shape = plan.shape;
  transfer.source_mesh = plan.source_mesh;
  transfer.target_mesh = plan.target_mesh;
  transfer.source = plan.source;
  transfer.target = plan.target;
  transfer.source_ranks = ranks(source_mesh);
  transfer.target_ranks = ranks(target_mesh);
  transfer.target_mesh_id = target_mesh;
  blocks_.at(output).published = true;
  operations_.at(operation).meshes.insert(link_id);
  AppendOptions options;
  options.command_class = CommandClass::kFirstWork;
  options.allowance = AllowanceFor(plan.step.bytes);
  const std::string axis = plan.step.axis;
  Append(
      link_id, options, [&](int) { return transfer; },
      [this, operation, axis, done = std::move(done)](const CommandRecord& record, const absl::Status& status) {
        Operation* running = FindOperation(operation);
        if (running == nullptr) return;
        if (status.ok()) AddCounts(record.acks, &running->reply);
        done(status);
      });
}

}  // namespace tp::server
