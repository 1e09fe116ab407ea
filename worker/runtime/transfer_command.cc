// Transfer: a tensor from one mesh to another, on the union of their ranks.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/redistribute/transfer.h"
#include "worker/runtime/paced_communicator.h"
#include "worker/runtime/tensor_commands.h"
#include "worker/tensor/transfer.h"

namespace tp::worker {
namespace {

// This rank's part in a transfer.
struct Part {
  TransferPlan plan;
  std::optional<Transfer> moves;  // the plan, by ranks of the union
  std::unique_ptr<DeviceBuffer> scratch;
  HeldTensorPtr source;                // nullptr where it is not in the source's mesh
  std::shared_ptr<HeldTensor> target;  // nullptr where it is not in the target's
};

// The union's ranks, as names that tell which ranks of two meshes are one worker.
std::vector<std::string> WorkersOf(const std::vector<int>& ranks) {
  std::vector<std::string> workers;
  for (const int rank : ranks) workers.push_back(absl::StrCat(rank));
  return workers;
}

absl::Status CheckRanks(absl::string_view side, const Mesh& mesh, const std::vector<int>& ranks, int size) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int>(ranks.size()) == mesh.rank_count() && sorted.front() >= 0 && sorted.back() < size &&
      std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(side, " ranks [", absl::StrJoin(ranks, ", "), "] of a mesh of ",
                                                 mesh.rank_count(), " on a union of ", size));
}

// -1 where it is not there.
int IndexOf(const std::vector<int>& ranks, int rank) {
  const auto it = std::find(ranks.begin(), ranks.end(), rank);
  return it == ranks.end() ? -1 : static_cast<int>(it - ranks.begin());
}

absl::Status Prepare(const TensorWork& work, const tp::Transfer& transfer, Part* part) {
  const Communicator& communicator = work.context.communicator;
  TP_RETURN_IF_ERROR(CheckRanks("source", transfer.source_mesh, transfer.source_ranks, communicator.size()));
  TP_RETURN_IF_ERROR(CheckRanks("target", transfer.target_mesh, transfer.target_ranks, communicator.size()));
  TP_ASSIGN_OR_RETURN(part->plan,
                      PlanTransfer(transfer.dtype, transfer.shape,
                                   {transfer.source_mesh, transfer.source, WorkersOf(transfer.source_ranks)},
                                   {transfer.target_mesh, transfer.target, WorkersOf(transfer.target_ranks)}));
  if (const int rank = IndexOf(transfer.source_ranks, communicator.rank()); rank >= 0) {
    TP_ASSIGN_OR_RETURN(part->source, work.tensors.Get(transfer.input));
    const HeldTensor& held = *part->source;
    if (held.rank != rank || held.dtype != transfer.dtype || held.shape != transfer.shape ||
        held.placements != transfer.source || !(held.mesh == transfer.source_mesh)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", held.id, " is ", std::string(DTypeName(held.dtype)), ShapeText(held.shape), " ",
                       PlacementsText(held.mesh, held.placements), " on rank ", held.rank, ", the transfer takes ",
                       std::string(DTypeName(transfer.dtype)), ShapeText(transfer.shape), " ",
                       PlacementsText(transfer.source_mesh, transfer.source), " on rank ", rank));
    }
  }
  if (const int rank = IndexOf(transfer.target_ranks, communicator.rank()); rank >= 0) {
    if (work.tensors.Contains(transfer.output)) {
      return absl::AlreadyExistsError(absl::StrCat("tensor ", transfer.output, " is there already"));
    }
    part->target = std::make_shared<HeldTensor>();
    part->target->id = transfer.output;
    part->target->mesh_id = transfer.target_mesh_id;
    part->target->mesh = transfer.target_mesh;
    part->target->rank = rank;
    part->target->dtype = transfer.dtype;
    part->target->shape = transfer.shape;
    part->target->placements = transfer.target;
    TP_ASSIGN_OR_RETURN(part->target->buffer, work.memory.Allocate(part->target->size_bytes()));
  }
  part->moves.emplace(Transfer{transfer.shape,
                               transfer.dtype,
                               {transfer.source_mesh, transfer.source, transfer.source_ranks},
                               {transfer.target_mesh, transfer.target, transfer.target_ranks},
                               {}});
  for (const TransferPart& move : part->plan.transfers) part->moves->suppliers.emplace_back(move.source, move.target);
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> scratch =
      work.context.device.Allocate(TransferScratchBytes(*part->moves, communicator.rank()));
  if (!scratch.ok()) return Annotate(scratch.status(), "memory of a transfer");
  part->scratch = *std::move(scratch);
  return absl::OkStatus();
}

TensorView ViewOf(const HeldTensor& tensor) { return {tensor.dtype, tensor.buffer->data(), tensor.LocalShape()}; }

std::string FingerprintText(const tp::Transfer& transfer) {
  return absl::StrCat("transfer ", transfer.input, " -> ", transfer.output, " on ", transfer.target_mesh_id, ": ",
                      std::string(DTypeName(transfer.dtype)), ShapeText(transfer.shape), " ",
                      PlacementsText(transfer.source_mesh, transfer.source), " of ", transfer.source_mesh.ToString(),
                      " at ", absl::StrJoin(transfer.source_ranks, ","), " -> ",
                      PlacementsText(transfer.target_mesh, transfer.target), " of ", transfer.target_mesh.ToString(),
                      " at ", absl::StrJoin(transfer.target_ranks, ","));
}

std::string AxesText(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.axes()) names.push_back(axis.name);
  return absl::StrJoin(names, ",");
}

}  // namespace

WorkOutcome ExecuteTransfer(const TensorWork& work, const tp::Transfer& transfer) {
  const WorkContext& context = work.context;
  WorkOutcome outcome;
  const int64_t wire_before = context.communicator.wire().bytes_received;
  CommandHeaders headers(context, CommandFingerprint(FingerprintText(transfer)), &outcome);
  Part part;
  if (!headers.Agree(0, false, Prepare(work, transfer, &part))) return outcome;
  PacedCommunicator paced(context.communicator, context.pace);
  ConstTensorView source;
  TensorView target;
  if (part.source != nullptr) source = ViewOf(*part.source);
  if (part.target != nullptr) target = ViewOf(*part.target);
  const absl::StatusOr<int64_t> received =
      ExecuteTransfer({context.device, context.stream, paced, context.pace.Deadline()}, *part.moves,
                      part.source == nullptr ? nullptr : &source, part.target == nullptr ? nullptr : &target,
                      {part.scratch->data(), part.scratch->size()});
  if (!received.ok()) {
    outcome.transport = true;
    outcome.status = received.status();
    return outcome;
  }
  if (!headers.Agree(1, true, context.device.Synchronize(context.stream))) return outcome;
  if (part.target != nullptr) outcome.status = work.tensors.Publish({part.target});
  outcome.run.collectives = {{"", "permute", AxesText(transfer.target_mesh), part.plan.busiest_bytes, ""}};
  outcome.run.wire_bytes = context.communicator.wire().bytes_received - wire_before;
  return outcome;
}

}  // namespace tp::worker
