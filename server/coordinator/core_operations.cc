// Operations: requests about named meshes and tensors, from their arrival to their answer. However one ends, what it
// holds is freed here, and where it failed what it made is undone.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "server/coordinator/core_impl.h"

namespace tp::server {

uint64_t Core::Impl::BeginOperation(const RequestHead& head, std::string what) {
  const auto answer = [&](const absl::Status& status) {
    OperationReply reply;
    reply.call = head.call;
    reply.status = status;
    Emit(std::move(reply));
    return uint64_t{0};
  };
  if (draining_) return answer(Draining());
  const uint64_t id = ++last_operation_;
  RequestIds::Entry entry;
  switch (request_ids_.Begin(head.request_id, head.digest, absl::StrCat(id), &entry)) {
    case RequestIds::State::kNew:
      break;
    case RequestIds::State::kOther:
      return answer(
          absl::AlreadyExistsError(absl::StrCat("request id '", head.request_id, "' was used for another request")));
    case RequestIds::State::kFinished: {
      if (entry.reply == nullptr) return answer(entry.status);
      OperationReply reply = *entry.reply;
      reply.call = head.call;
      Emit(std::move(reply));
      return 0;
    }
    case RequestIds::State::kRunning: {
      for (auto& [running, operation] : operations_) {
        if (operation.request_id == head.request_id) operation.calls.push_back(head.call);
      }
      return 0;
    }
  }
  Operation operation;
  operation.what = std::move(what);
  operation.calls.push_back(head.call);
  operation.request_id = head.request_id;
  operations_[id] = std::move(operation);
  return id;
}

Operation* Core::Impl::FindOperation(uint64_t id) {
  const auto it = operations_.find(id);
  return it == operations_.end() ? nullptr : &it->second;
}

uint64_t Core::Impl::OperationOf(CallId call) const {
  for (const auto& [id, operation] : operations_) {
    if (std::count(operation.calls.begin(), operation.calls.end(), call) != 0) return id;
  }
  return 0;
}

Done Core::Impl::Then(uint64_t id, std::function<absl::Status()> next) {
  return [this, id, next = std::move(next)](const absl::Status& status) {
    if (FindOperation(id) == nullptr) return;
    const absl::Status after = status.ok() ? next() : status;
    if (!after.ok()) EndOperation(id, after);
  };
}

void Core::Impl::EndOperation(uint64_t id, const absl::Status& status_view) {
  const auto it = operations_.find(id);
  if (it == operations_.end()) return;
  const absl::Status status = status_view;  // may live in what is erased here
  Operation operation = std::move(it->second);
  operations_.erase(it);
  for (const uint64_t group : operation.groups) DropGroup(group);
  for (const uint64_t transfer : operation.transfers) Emit(CancelTransfer{transfer});
  if (!status.ok()) {
    for (const std::string& name : operation.names) tensors_.erase(name);
    const auto moved = tensors_.find(operation.moves);
    if (moved != tensors_.end()) moved->second.moving = false;
    for (const uint64_t blocks : operation.made) DropBlocks(blocks, nullptr);
  }
  for (const uint64_t blocks : operation.uses) ReleaseBlocks(blocks);
  for (const uint64_t blocks : operation.temporaries) DropBlocks(blocks, nullptr);
  for (const uint64_t key : operation.reservations) ledger_.Release(key);
  if (!status.ok() && operation.undo) operation.undo();
  if (operation.ended) operation.ended(status);

  if (operation.answered) return;
  operation.reply.status = status;
  if (status.code() == absl::StatusCode::kCancelled) {
    request_ids_.Forget(operation.request_id);
  } else {
    request_ids_.Finish(operation.request_id, status, std::make_shared<const OperationReply>(operation.reply));
  }
  for (const CallId call : operation.calls) {
    operation.reply.call = call;
    Emit(operation.reply);
  }
}

void Core::Impl::CancelOperation(uint64_t id, CallId call) {
  const absl::Status cancelled = absl::CancelledError("cancelled by the client");
  Operation& operation = operations_.at(id);
  // The bytes of a put are its first client's.
  const bool driver = operation.commit && !operation.sent && operation.calls.front() == call;
  if (!operation.goes_on && (operation.calls.size() == 1 || driver)) return EndOperation(id, cancelled);
  operation.calls.erase(std::find(operation.calls.begin(), operation.calls.end(), call));
  OperationReply reply;
  reply.call = call;
  reply.status = cancelled;
  Emit(std::move(reply));
}

void Core::Impl::EndOperationsOn(uint64_t mesh_id, const absl::Status& status) {
  std::vector<uint64_t> ids;
  for (const auto& [id, operation] : operations_) {
    if (operation.meshes.count(mesh_id) != 0) ids.push_back(id);
  }
  for (const uint64_t id : ids) EndOperation(id, status);
}

absl::Status Core::Impl::MeshInUse(uint64_t mesh_id, uint64_t but_operation) const {
  for (const auto& [id, operation] : operations_) {
    if (id == but_operation) continue;
    const auto here = [&](uint64_t blocks) {
      const auto it = blocks_.find(blocks);
      return it != blocks_.end() && it->second.mesh_id == mesh_id;
    };
    const bool uses = operation.meshes.count(mesh_id) != 0 ||
                      std::any_of(operation.uses.begin(), operation.uses.end(), here) ||
                      std::any_of(operation.made.begin(), operation.made.end(), here) ||
                      std::any_of(operation.temporaries.begin(), operation.temporaries.end(), here);
    if (uses) return absl::FailedPreconditionError(absl::StrCat("is in use by the ", operation.what));
  }
  return absl::OkStatus();
}

}  // namespace tp::server
