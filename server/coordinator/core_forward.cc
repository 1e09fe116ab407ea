// Forwards: checks, blocks for each rank, at most a few in flight, one answer from all ranks.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/forward_inputs.h"
#include "server/coordinator/forward_reply.h"

namespace tp::server {
namespace {

absl::Status ChangedMeanwhile(const std::string& model) {
  return absl::FailedPreconditionError(
      absl::StrCat("model '", model, "' got another plan while its program was compiled: repeat the request"));
}

}  // namespace

void Core::Impl::On(ForwardRequested event) {
  const auto refuse = [&](const absl::Status& status) {
    ForwardReply reply;
    reply.call = event.call;
    reply.status = status;
    Emit(std::move(reply));
  };
  absl::StatusOr<ModelState*> model = ReadyModel(event.model);
  if (!model.ok()) return refuse(model.status());
  const absl::Status room = CheckQueue();
  if (!room.ok()) return refuse(room);
  if (event.deadline <= now_) return refuse(absl::DeadlineExceededError("the deadline passed before the run began"));
  if (event.program != nullptr && event.base != (*model)->submission) return refuse(ChangedMeanwhile(event.model));
  const ForwardProgram& program = event.program != nullptr ? *event.program : (*model)->compiled->program;
  ForwardCall call;
  call.model = (*model)->resident;
  call.local_blocks = event.local_blocks;
  call.deadline = event.deadline;
  absl::Status status = TakeInputs(&event, **model, program, &call);
  if (status.ok()) status = AnswerOutputs(program, call.bindings).status();
  if (!status.ok()) {
    EndOperation(call.operation, absl::OkStatus());
    return refuse(status);
  }
  call.program = std::move(event.program);
  call.base = std::move(event.base);
  forwards_[event.call] = std::move(call);
  work_.at((*model)->resident).queue.push_back(event.call);
  PumpForwards((*model)->resident);
}

void Core::Impl::PumpForwards(const std::string& name) {
  while (true) {
    const auto it = work_.find(name);
    if (it == work_.end() || !Usable(Resident(name).mesh_id)) return;
    ModelWork& work = it->second;
    if (work.queue.empty() || work.runs_in_flight >= options_.max_runs_in_flight) return;
    const CallId id = work.queue.front();
    work.queue.pop_front();
    ++work.runs_in_flight;
    forwards_.at(id).step = ForwardCall::Step::kStaging;
    const absl::Status started = StartForward(id);
    if (!started.ok()) FailForward(id, started);
  }
}

absl::Status Core::Impl::StartForward(CallId id) {
  ForwardCall& call = forwards_.at(id);
  const ModelState& model = Resident(call.model);
  if (call.program != nullptr && call.base != model.submission) return ChangedMeanwhile(model.name);
  const ForwardProgram& program = call.program != nullptr ? *call.program : model.compiled->program;
  const MeshState& mesh = meshes_.at(model.mesh_id);
  call.rank_inputs.resize(mesh.workers.size());
  for (int rank = 0; rank < static_cast<int>(mesh.workers.size()); ++rank) {
    const Coordinate coordinate = program.mesh.CoordinateOf(rank);
    int64_t bytes = 0;
    for (const Operand& operand : program.operands) {
      if (operand.kind != OperandKind::kInput) continue;
      RunInput input;
      input.name = operand.name;
      const auto full = call.inputs.find(operand.name);
      const auto shards = call.shards.find(operand.name);
      if (full != call.inputs.end()) {
        input.global_shape = full->second.shape;
        TP_ASSIGN_OR_RETURN(input.data, CutBlock(full->second, program.values[operand.value].spec.placements,
                                                 program.mesh, coordinate));
      } else if (shards != call.shards.end()) {
        input.global_shape = shards->second.shape;
        input.data = std::move(shards->second.data[rank]);
      } else {  // it gets the id of its tensor later
        TP_ASSIGN_OR_RETURN(input.global_shape, EvaluateShape(program.values[operand.value].spec.shape, call.bindings));
      }
      bytes += static_cast<int64_t>(input.data.size());
      call.rank_inputs[rank].push_back(std::move(input));
    }
    if (bytes <= kInlineResultBytes) continue;
    for (RunInput& input : call.rank_inputs[rank]) {
      if (input.data.empty()) continue;
      const uint64_t transfer = ++last_transfer_;
      const int64_t size = static_cast<int64_t>(input.data.size());
      Emit(OfferTransfer{mesh.workers[rank], transfer, std::make_shared<const std::string>(std::move(input.data))});
      input.data.clear();
      if (call.group == 0) {
        call.group =
            OpenGroup("receiving an input", [this, id](const absl::Status& status) { OnInputReady(id, status); });
      }
      input.stage_id = AddStage(call.group, mesh.id, rank, StageReceive{transfer, size});
      call.input_transfers.push_back(transfer);
    }
  }
  call.inputs.clear();
  call.shards.clear();
  std::vector<MovedInput> moved = std::move(call.moved);
  call.waiting = static_cast<int>(moved.size()) + (call.group == 0 ? 0 : 1);
  if (call.waiting == 0) AppendRun(id);
  for (MovedInput& input : moved) TP_RETURN_IF_ERROR(StartMove(id, std::move(input)));
  return absl::OkStatus();
}

void Core::Impl::AppendRun(CallId id) {
  ForwardCall& call = forwards_.at(id);
  const uint64_t mesh_id = Resident(call.model).mesh_id;
  if (!Usable(mesh_id)) return;  // it is answered when the mesh is broken
  call.step = ForwardCall::Step::kRunning;
  Operation* operation = FindOperation(call.operation);
  if (operation != nullptr) operation->meshes.clear();  // the rest does without their communicators
  for (size_t rank = 0; rank < call.rank_inputs.size(); ++rank) call.result_transfers.push_back(++last_transfer_);
  const bool first = !work_.at(call.model).executed || call.program != nullptr;
  const CommandClass command_class = first ? CommandClass::kFirstWork : CommandClass::kWork;
  AppendOptions options;
  options.command_class = command_class;
  Append(
      mesh_id, options,
      [&](int rank) {
        return Run{call.model, std::move(call.rank_inputs[rank]), call.result_transfers[rank], call.local_blocks,
                   call.program};
      },
      [this, id, model = call.model](const CommandRecord& record, const absl::Status& status) {
        OnRunDone(id, model, record, status);
      });
  call.rank_inputs.clear();
}

void Core::Impl::OnInputReady(CallId id, const absl::Status& status) {
  ForwardCall& call = forwards_.at(id);
  if (status.ok()) {
    if (--call.waiting == 0) AppendRun(id);
    return;
  }
  const std::string model = call.model;
  FailForward(id, status);
  PumpForwards(model);
}

void Core::Impl::OnRunDone(CallId id, const std::string& model, const CommandRecord& record,
                           const absl::Status& status) {
  const auto work = work_.find(model);
  if (work == work_.end()) return;
  --work->second.runs_in_flight;
  work->second.executed = work->second.executed || status.ok();
  const auto it = forwards_.find(id);
  if (it != forwards_.end()) {
    ForwardCall call = std::move(it->second);
    forwards_.erase(it);
    ForgetGroup(call.group);
    ForwardReply reply;
    if (status.ok()) {
      std::vector<const Ack*> acks;
      for (const std::optional<Ack>& ack : record.acks) acks.push_back(&*ack);
      const ForwardProgram& program = call.program != nullptr ? *call.program : Resident(model).compiled->program;
      reply = MakeForwardReply(program, call.bindings, call.local_blocks, acks, call.result_transfers);
      if (const Operation* operation = FindOperation(call.operation); operation != nullptr) {
        reply.collectives.insert(reply.collectives.begin(), std::make_move_iterator(call.collectives.begin()),
                                 std::make_move_iterator(call.collectives.end()));
        reply.wire_bytes += operation->reply.wire_bytes;
        reply.duration_us += operation->reply.duration_us;
      }
    } else {
      reply.status = status;
    }
    reply.call = id;
    for (const uint64_t transfer : call.result_transfers) {
      const bool used = std::any_of(reply.blocks.begin(), reply.blocks.end(),
                                    [&](const AnswerBlock& block) { return block.transfer_id == transfer; });
      if (!used) Emit(CancelTransfer{transfer});
    }
    Emit(std::move(reply));
    EndOperation(call.operation, absl::OkStatus());
  }
  PumpForwards(model);
}

void Core::Impl::FailForward(CallId id, const absl::Status& status) {
  const auto it = forwards_.find(id);
  if (it == forwards_.end()) return;
  const ForwardCall call = std::move(it->second);
  forwards_.erase(it);
  ForwardReply reply;
  reply.call = id;
  reply.status = status;
  Emit(std::move(reply));
  for (const uint64_t transfer : call.input_transfers) Emit(CancelTransfer{transfer});
  for (const uint64_t transfer : call.result_transfers) Emit(CancelTransfer{transfer});
  EndOperation(call.operation, absl::OkStatus());
  const bool usable = Usable(Resident(call.model).mesh_id);
  if (call.step == ForwardCall::Step::kRunning && usable) {  // its run takes what was staged
    ForgetGroup(call.group);
  } else {
    DropGroup(call.group);
  }
  ModelWork& work = work_.at(call.model);
  work.queue.erase(std::remove(work.queue.begin(), work.queue.end(), id), work.queue.end());
  if (call.step == ForwardCall::Step::kStaging) --work.runs_in_flight;
}

void Core::Impl::FailCalls(const std::string& model, const absl::Status& status) {
  std::vector<CallId> forwards, generates;
  for (const auto& [id, call] : forwards_) {
    if (call.model == model) forwards.push_back(id);
  }
  for (const auto& [id, call] : generates_) {
    if (call.model == model) generates.push_back(id);
  }
  const auto work = work_.find(model);
  if (work != work_.end()) {
    for (Replica& replica : work->second.replicas) replica.composer.Clear();
  }
  for (const CallId id : forwards) FailForward(id, status);
  for (const CallId id : generates) FailGenerate(id, status);
  work_.erase(model);
}

void Core::Impl::CheckDeadlines() {
  std::vector<CallId> forwards, generates;
  for (const auto& [id, call] : forwards_) {
    if (call.deadline <= now_) forwards.push_back(id);
  }
  for (const auto& [id, call] : generates_) {
    if (call.deadline <= now_) generates.push_back(id);
  }
  std::vector<std::string> models;
  for (const CallId id : forwards) {
    models.push_back(forwards_.at(id).model);
    FailForward(id, absl::DeadlineExceededError("the client's deadline passed"));
  }
  for (const CallId id : generates) FailGenerate(id, absl::DeadlineExceededError("the client's deadline passed"));
  for (const std::string& model : models) PumpForwards(model);
}

}  // namespace tp::server
