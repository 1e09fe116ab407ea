#include "server/rpc/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/proto_convert/command.h"

namespace tp::server {

void Dispatcher::Execute(Action action, const Core& core) {
  std::visit([&](auto& specific) { On(specific, core); }, action);
}

void Dispatcher::RemoveWatcher(const std::string& model, const Watcher* watcher) {
  auto it = watchers_.find(model);
  if (it == watchers_.end()) return;
  auto& list = it->second;
  list.erase(std::remove_if(list.begin(), list.end(), [&](const auto& entry) { return entry.get() == watcher; }),
             list.end());
  if (list.empty()) watchers_.erase(it);
}

void Dispatcher::CutCalls(const absl::Status& status, const Core& core) {
  for (auto& [id, sink] : std::exchange(calls_, {})) {
    // A call takes the answer that is of its kind.
    sink->OnSubmit({id, status, ""}, core);
    sink->OnDelete({id, status});
    ForwardReply forward;
    forward.call = id;
    forward.status = status;
    sink->OnForward(std::move(forward));
    GenerateProgress generate;
    generate.call = id;
    generate.status = status;
    generate.done = true;
    sink->OnGenerate(generate);
    OperationReply operation;
    operation.call = id;
    operation.status = status;
    sink->OnOperation(operation, core);
  }
  transfers_.Cut(status);
}

void Dispatcher::CloseStreams(const absl::Status& status) {
  workers_.CloseAll(status);
  for (auto& [model, watchers] : std::exchange(watchers_, {})) {
    for (const auto& watcher : watchers) watcher->End(status);
  }
}

bool Dispatcher::LoseWorker(const std::string& worker, const std::string& incarnation, const absl::Status& status) {
  bool member = false;
  if (!workers_.Remove(worker, incarnation, status, &member) || !member) return false;
  transfers_.LoseWorker(worker);
  return true;
}

void Dispatcher::On(const SendWelcome& action, const Core& core) {
  auto it = core.workers().find(action.worker);
  if (it == core.workers().end()) return;
  workers_.Admit(action.worker, it->second.description.incarnation);
  v1::SessionResponse response;
  response.mutable_welcome()->set_term(action.term);
  response.mutable_welcome()->set_heartbeat_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.heartbeat)));
  response.mutable_welcome()->set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.lease)));
  response.mutable_welcome()->set_check_collectives(options_.check_collectives);
  workers_.SendToSession(action.worker, std::move(response));
  Log(LogLevel::kInfo, absl::StrCat("worker ", action.worker, " joined: ", it->second.description.device));
}

void Dispatcher::On(const RefuseJoin& action, const Core&) {
  bool member = false;
  workers_.Remove(action.worker, action.incarnation, action.status, &member);
  Log(LogLevel::kWarning, absl::StrCat("worker ", action.worker, " refused: ", std::string(action.status.message())));
}

void Dispatcher::On(const SendCommand& action, const Core&) {
  if (const auto* run = std::get_if<Run>(&action.command.kind); run != nullptr && run->transfer_id != 0) {
    transfers_.uploads().Expect(run->transfer_id, action.worker);
  }
  v1::CommandsResponse response;
  CommandToProto(action.command, response.mutable_command());
  workers_.SendToCommands(action.worker, std::move(response));
}

void Dispatcher::On(const SendStage& action, const Core&) {
  if (const auto* send = std::get_if<StageSend>(&action.stage.kind)) {
    transfers_.uploads().Expect(send->transfer_id, action.worker);
  }
  if (const auto* tensors = std::get_if<StageTensors>(&action.stage.kind)) {
    for (const NewTensor& tensor : tensors->tensors) {
      if (tensor.origin != NewTensor::Origin::kTransfer) continue;
      // Bytes that are here already are offered whole, others are written by the client's call.
      if (transfers_.Find(tensor.transfer_id, action.worker).ok()) continue;
      transfers_.downloads().Expect(tensor.transfer_id, action.worker);
    }
  }
  v1::CommandsResponse response;
  StageToProto(action.stage, response.mutable_stage());
  workers_.SendToCommands(action.worker, std::move(response));
}

void Dispatcher::On(const SendDrop& action, const Core&) {
  v1::CommandsResponse response;
  response.mutable_drop()->set_stage_id(action.stage_id);
  workers_.SendToCommands(action.worker, std::move(response));
}

void Dispatcher::On(const SendAbort& action, const Core&) {
  v1::SessionResponse response;
  response.mutable_abort()->set_mesh_id(action.mesh_id);
  response.mutable_abort()->set_epoch(action.epoch);
  response.mutable_abort()->set_reason(CutStatusText(action.reason));
  workers_.SendToSession(action.worker, std::move(response));
}

void Dispatcher::On(const SendFence& action, const Core&) {
  v1::SessionResponse response;
  response.mutable_fence()->set_reason(CutStatusText(action.reason));
  workers_.SendToSession(action.worker, std::move(response));
  LoseWorker(action.worker, action.incarnation, absl::AbortedError(absl::StrCat("fenced: ", action.reason)));
  Log(LogLevel::kWarning, absl::StrCat("worker ", action.worker, " fenced: ", action.reason));
}

void Dispatcher::On(const LetWorkerGo& action, const Core&) {
  v1::SessionResponse response;
  response.mutable_released();
  workers_.SendToSession(action.worker, std::move(response));
  Log(LogLevel::kInfo, absl::StrCat("worker ", action.worker, " has no more work and leaves"));
}

void Dispatcher::On(const OfferTransfer& action, const Core&) {
  transfers_.Offer(action.transfer_id, action.worker, action.bytes);
}

void Dispatcher::On(const CancelTransfer& action, const Core&) { transfers_.Cancel(action.transfer_id); }

void Dispatcher::On(StoreSubmission& action, const Core&) {
  store_->Put(action.token, std::move(action.name), std::move(action.blob));
}

void Dispatcher::On(EraseSubmission& action, const Core&) { store_->Erase(action.token, std::move(action.name)); }

std::shared_ptr<CallSink> Dispatcher::Call(CallId id, bool last) {
  auto it = calls_.find(id);
  if (it == calls_.end()) return nullptr;
  std::shared_ptr<CallSink> sink = it->second;
  if (last) calls_.erase(it);
  return sink;
}

void Dispatcher::On(const SubmitReply& action, const Core& core) {
  if (auto sink = Call(action.call, true)) sink->OnSubmit(action, core);
}

void Dispatcher::On(const DeleteReply& action, const Core&) {
  if (auto sink = Call(action.call, true)) sink->OnDelete(action);
}

void Dispatcher::On(ForwardReply& action, const Core&) {
  if (auto sink = Call(action.call, true)) {
    sink->OnForward(std::move(action));
    return;
  }
  for (const AnswerBlock& block : action.blocks) {  // nobody will read them
    if (block.transfer_id != 0) transfers_.Cancel(block.transfer_id);
  }
}

void Dispatcher::On(const GenerateProgress& action, const Core&) {
  if (auto sink = Call(action.call, action.done || !action.status.ok())) sink->OnGenerate(action);
}

void Dispatcher::On(PutStarted& action, const Core&) {
  if (auto sink = Call(action.call, false)) sink->OnPutStarted(std::move(action));
}

void Dispatcher::On(const OperationReply& action, const Core& core) {
  if (auto sink = Call(action.call, true)) sink->OnOperation(action, core);
}

void Dispatcher::On(const ModelChanged& action, const Core& core) {
  auto it = watchers_.find(action.name);
  if (it == watchers_.end()) return;
  std::vector<std::shared_ptr<Watcher>> watchers = it->second;
  for (const auto& watcher : watchers) watcher->OnChanged(core);
}

}  // namespace tp::server
