// Replacing a READY model: the replacement is loaded beside it under a resident name of its own, takes over the values
// that are the same from the resident shards, and gets the name once all its ranks hold it and the store has it. What
// the old one has under way ends on it; then it is freed.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/load_plan.h"

namespace tp::server {

ModelState& Core::Impl::Resident(const std::string& resident) {
  const auto behind = behind_.find(resident);
  if (behind != behind_.end()) return behind->second;
  const auto served = std::find_if(models_.begin(), models_.end(),
                                   [&](const auto& entry) { return entry.second.resident == resident; });
  return served->second;  // callers hold the name of one that is there
}

std::string Core::Impl::NewResident(const std::string& name) {
  const bool first = models_.count(name) == 0 && behind_.count(name) == 0;
  return first ? name : absl::StrCat(name, "#", ++last_resident_);  // no user's name has a '#'
}

std::string Core::Impl::ReplacementOf(const std::string& name) const {
  for (const auto& [resident, model] : behind_) {
    if (model.name == name && loads_.count(resident) != 0) return resident;
  }
  return "";
}

absl::Status Core::Impl::CheckReplace(const std::string& name) const {
  const auto it = models_.find(name);
  if (it == models_.end()) return NoSuchModel(name);
  if (it->second.phase != ModelPhase::kReady) {
    return absl::FailedPreconditionError(absl::StrCat(
        "model '", name, "' is ", std::string(ModelPhaseName(it->second.phase)), "; only a READY one can be replaced"));
  }
  if (!ReplacementOf(name).empty()) {
    return absl::FailedPreconditionError(absl::StrCat("model '", name, "' is being replaced"));
  }
  return Annotate(CheckNotDraining(it->second.mesh_id), absl::StrCat("model '", name, "'"));
}

void Core::Impl::StartMoves(const std::string& resident) {
  ModelState& model = behind_.at(resident);
  const ModelState& served = models_.at(model.name);
  auto moves = std::make_shared<MoveRecord>();
  moves->states = StatesToLoad(*model.compiled);
  const auto place = [&](const ModelState& state) {
    return PlacedModel{*state.submission, *state.compiled, meshes_.at(state.mesh_id).workers};
  };
  absl::StatusOr<std::vector<TakenState>> taken = PlanTakeover(place(served), place(model), moves->states);
  if (!taken.ok()) return FailLoad(resident, taken.status());
  moves->taken = *std::move(taken);
  if (moves->taken.empty()) return StartStaging(resident);

  Operation operation;
  operation.what = absl::StrCat("replacement of model '", model.name, "'");
  operation.goes_on = true;
  operation.meshes.insert(served.mesh_id);
  operation.ended = [this, resident](const absl::Status& status) {
    if (!status.ok() && loads_.count(resident) != 0) FailLoad(resident, status);
  };
  const uint64_t id = moves->operation = ++last_operation_;
  operations_[id] = std::move(operation);
  loads_.at(resident).step = LoadRecord::Step::kMoving;
  loads_.at(resident).moves = moves;
  model.taken_over.states = static_cast<int>(moves->taken.size());
  for (const TakenState& state : moves->taken) {
    for (const int64_t bytes : state.to_bytes) model.taken_over.bytes += bytes;
  }
  const absl::Status reserved = ReserveMoves(resident);
  if (!reserved.ok()) return EndOperation(id, reserved);
  const bool travels = std::any_of(moves->taken.begin(), moves->taken.end(),
                                   [](const TakenState& state) { return state.hop.has_value(); });
  if (!travels) return MoveSome(resident);
  WithLink(served.mesh_id, model.mesh_id, Then(id, [this, resident] {
             MoveSome(resident);
             return absl::OkStatus();
           }));
}

absl::Status Core::Impl::ReserveMoves(const std::string& resident) {
  const ModelState& model = behind_.at(resident);
  const MeshState& there = meshes_.at(model.mesh_id);
  const MeshState& here = meshes_.at(models_.at(model.name).mesh_id);
  const MoveRecord& moves = *loads_.at(resident).moves;
  const MoveBytes bytes = BytesToMove(moves.taken, here.mesh.rank_count(), there.mesh.rank_count());
  std::vector<uint64_t>& reservations = operations_.at(moves.operation).reservations;
  TP_ASSIGN_OR_RETURN(const uint64_t served, ReserveMemory("moving the states", here.workers, bytes.served));
  reservations.push_back(served);
  TP_ASSIGN_OR_RETURN(const uint64_t added, ReserveMemory("moving the states", there.workers, bytes.replacement));
  reservations.push_back(added);
  return absl::OkStatus();
}

void Core::Impl::MoveSome(const std::string& resident) {
  const std::shared_ptr<MoveRecord> moves = loads_.at(resident).moves;
  if (moves->next < moves->taken.size()) {
    const absl::Status moving = MoveStates(resident, BatchEnd(moves->taken, moves->next));
    if (!moving.ok()) EndOperation(moves->operation, moving);
    return;
  }
  // All is on the new mesh: the served model is not needed any more.
  Operation& operation = operations_.at(moves->operation);
  operation.meshes.clear();
  ModelState& model = behind_.at(resident);
  model.taken_over.wire_bytes = operation.reply.wire_bytes;
  CloseLinks(model.mesh_id, absl::OkStatus());
  StartStaging(resident);
}

absl::Status Core::Impl::MoveStates(const std::string& resident, size_t end) {
  const std::shared_ptr<MoveRecord> moves = loads_.at(resident).moves;
  const uint64_t operation = moves->operation;
  const uint64_t there = behind_.at(resident).mesh_id;
  const ModelState& served = models_.at(behind_.at(resident).name);
  const uint64_t here = served.mesh_id;
  if (!Usable(here)) return absl::UnavailableError("the model that serves has ended its epoch");
  struct Move {
    const HopPlan* hop = nullptr;
    uint64_t from = 0, to = 0;
  };
  std::vector<Move> hops;
  ShareStates share{served.resident, served.compiled->mesh, {}};
  const auto new_blocks = [&](uint64_t mesh_id) {  // their memory is the model's and that of ReserveMoves
    const std::vector<int64_t> none(meshes_.at(mesh_id).workers.size(), 0);
    return NewBlocks(mesh_id, "moving the states", none);
  };
  int64_t bytes = 0;
  for (size_t i = moves->next; i < end; ++i) {
    const TakenState& state = moves->taken[i];
    LoadState from = state.from;
    TP_ASSIGN_OR_RETURN(from.tensor_id, new_blocks(here));
    uint64_t result = from.tensor_id;
    if (state.hop.has_value()) {
      TP_ASSIGN_OR_RETURN(result, new_blocks(there));
      hops.push_back({&*state.hop, from.tensor_id, result});
    }
    operations_.at(operation).temporaries.push_back(result);
    moves->states[state.index].tensor_id = result;
    bytes += *std::max_element(state.from_bytes.begin(), state.from_bytes.end());
    share.states.push_back(std::move(from));
  }
  moves->next = end;
  moves->awaited = 1 + static_cast<int>(hops.size());
  const Done one = Then(operation, [this, resident, moves] {
    if (--moves->awaited == 0) MoveSome(resident);
    return absl::OkStatus();
  });
  // All in one go: each worker does them in this order. A failure leaves the served model as it is.
  for (const LoadState& state : share.states) blocks_.at(state.tensor_id).published = true;
  AppendOptions options;
  options.commits = true;
  options.allowance = AllowanceFor(bytes);
  Append(
      here, options, [&](int) { return share; },
      [one](const CommandRecord&, const absl::Status& status) { one(status); });
  for (const Move& move : hops) {
    if (FindOperation(operation) == nullptr) break;
    RunTransfer(operation, *move.hop, move.from, move.to, here, there, one);
  }
  for (const Move& move : hops) DropBlocks(move.from, nullptr);
  return absl::OkStatus();
}

void Core::Impl::StoreReplacement(const std::string& resident) {
  LoadRecord& load = loads_.at(resident);
  if (load.moves != nullptr) {
    // The load took the values out of the tensors.
    for (const uint64_t id : operations_.at(load.moves->operation).temporaries) blocks_.at(id).published = false;
    EndOperation(load.moves->operation, absl::OkStatus());
  }
  const ModelState& model = behind_.at(resident);
  load.step = LoadRecord::Step::kSwitching;
  load.store_token = ++last_token_;
  Emit(StoreSubmission{load.store_token, model.name, *model.blob});
}

void Core::Impl::SwitchTo(const std::string& resident) {
  ModelState next = std::move(behind_.at(resident));
  behind_.erase(resident);
  ModelState& served = models_.at(next.name);
  behind_[served.resident] = std::move(served);
  served = std::move(next);
  PublishLoad(resident);
}

void Core::Impl::FreeReplaced() {
  std::vector<std::string> idle;
  for (const auto& [resident, model] : behind_) {
    const auto works = [&resident = resident](const auto& entry) { return entry.second.model == resident; };
    if (loads_.count(resident) == 0 && deletions_.count(resident) == 0 &&
        std::none_of(forwards_.begin(), forwards_.end(), works) &&
        std::none_of(generates_.begin(), generates_.end(), works)) {
      idle.push_back(resident);
    }
  }
  for (const std::string& resident : idle) {
    work_.erase(resident);
    StartFreeing(resident, true, {});
  }
}

}  // namespace tp::server
