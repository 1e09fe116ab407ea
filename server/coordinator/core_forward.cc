// Forwards: checks, blocks for each rank, at most a few in flight, one answer from all ranks.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"
#include "server/coordinator/forward_inputs.h"
#include "server/coordinator/forward_reply.h"

namespace tp::server {

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
  absl::StatusOr<Bindings> bindings =
      CheckForwardInputs((*model)->submission->model, (*model)->compiled->program, event.inputs);
  if (!bindings.ok()) return refuse(bindings.status());
  const auto outputs = AnswerOutputs((*model)->compiled->program, *bindings);
  if (!outputs.ok()) return refuse(outputs.status());
  ForwardCall call;
  call.model = event.model;
  call.inputs = std::move(event.inputs);
  call.bindings = *std::move(bindings);
  call.deadline = event.deadline;
  forwards_[event.call] = std::move(call);
  work_.at(event.model).queue.push_back(event.call);
  PumpForwards(event.model);
}

void Core::Impl::PumpForwards(const std::string& name) {
  while (true) {
    const auto it = work_.find(name);
    if (it == work_.end() || !Usable(models_.at(name).mesh_id)) return;
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
  const ModelState& model = models_.at(call.model);
  const ForwardProgram& program = model.compiled->program;
  const MeshState& mesh = meshes_.at(model.mesh_id);
  call.rank_inputs.resize(mesh.workers.size());
  for (int rank = 0; rank < static_cast<int>(mesh.workers.size()); ++rank) {
    const Coordinate coordinate = program.mesh.CoordinateOf(rank);
    int64_t bytes = 0;
    for (const Operand& operand : program.operands) {
      if (operand.kind != OperandKind::kInput) continue;
      const HostTensor& tensor = call.inputs.at(operand.name);
      RunInput input;
      input.name = operand.name;
      input.global_shape = tensor.shape;
      TP_ASSIGN_OR_RETURN(input.data,
                          CutBlock(tensor, program.values[operand.value].spec.placements, program.mesh, coordinate));
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
            OpenGroup("receiving an input", [this, id](const absl::Status& status) { OnInputsStaged(id, status); });
      }
      input.stage_id = AddStage(call.group, mesh.id, rank, StageReceive{transfer, size});
      call.input_transfers.push_back(transfer);
    }
  }
  call.inputs.clear();
  if (call.group == 0) AppendRun(id);
  return absl::OkStatus();
}

void Core::Impl::AppendRun(CallId id) {
  ForwardCall& call = forwards_.at(id);
  const uint64_t mesh_id = models_.at(call.model).mesh_id;
  if (!Usable(mesh_id)) return;  // it is answered when the mesh is broken
  call.step = ForwardCall::Step::kRunning;
  for (size_t rank = 0; rank < call.rank_inputs.size(); ++rank) call.result_transfers.push_back(++last_transfer_);
  const CommandClass command_class = work_.at(call.model).executed ? CommandClass::kWork : CommandClass::kFirstWork;
  AppendOptions options;
  options.command_class = command_class;
  Append(
      mesh_id, options,
      [&](int rank) {
        return Run{call.model, std::move(call.rank_inputs[rank]), call.result_transfers[rank]};
      },
      [this, id, model = call.model](const CommandRecord& record, const absl::Status& status) {
        OnRunDone(id, model, record, status);
      });
  call.rank_inputs.clear();
}

void Core::Impl::OnInputsStaged(CallId id, const absl::Status& status) {
  if (status.ok()) return AppendRun(id);
  const std::string model = forwards_.at(id).model;
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
    const ForwardCall call = std::move(it->second);
    forwards_.erase(it);
    ForgetGroup(call.group);
    ForwardReply reply;
    if (status.ok()) {
      std::vector<const Ack*> acks;
      for (const std::optional<Ack>& ack : record.acks) acks.push_back(&*ack);
      reply = MakeForwardReply(models_.at(model).compiled->program, call.bindings, acks, call.result_transfers);
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
  const bool usable = Usable(models_.at(call.model).mesh_id);
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
  if (work != work_.end() && work->second.composer.has_value()) work->second.composer->Clear();
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
