#include "server/rpc/worker_streams.h"

#include "absl/strings/str_cat.h"

namespace tp::server {

void WorkerStreams::AddSession(const std::string& worker, const std::string& incarnation,
                               std::shared_ptr<SessionQueue> queue) {
  streams_[{worker, incarnation}].session = std::move(queue);
}

void WorkerStreams::Admit(const std::string& worker, const std::string& incarnation) {
  auto it = streams_.find({worker, incarnation});
  if (it == streams_.end()) return;
  it->second.member = true;
  members_[worker] = incarnation;
}

bool WorkerStreams::Remove(const std::string& worker, const std::string& incarnation, const absl::Status& status,
                           bool* member) {
  auto it = streams_.find({worker, incarnation});
  if (it == streams_.end()) return false;
  Streams streams = std::move(it->second);
  streams_.erase(it);
  *member = streams.member;
  auto current = members_.find(worker);
  if (current != members_.end() && current->second == incarnation) members_.erase(current);
  if (streams.commands != nullptr) streams.commands->Abort(status);
  streams.session->Close(status);
  return true;
}

absl::Status WorkerStreams::AttachCommands(const std::string& worker, const std::string& incarnation,
                                           std::shared_ptr<CommandsQueue> queue) {
  auto it = streams_.find({worker, incarnation});
  if (it == streams_.end() || !it->second.member) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", worker, " has no session of this incarnation"));
  }
  if (it->second.commands != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("worker ", worker, " has a command stream"));
  }
  it->second.commands = std::move(queue);
  for (v1::CommandsResponse& message : it->second.backlog) it->second.commands->Push(std::move(message));
  it->second.backlog.clear();
  return absl::OkStatus();
}

WorkerStreams::Streams* WorkerStreams::Member(const std::string& worker) {
  auto member = members_.find(worker);
  if (member == members_.end()) return nullptr;
  auto it = streams_.find({worker, member->second});
  return it == streams_.end() ? nullptr : &it->second;
}

void WorkerStreams::SendToSession(const std::string& worker, v1::SessionResponse message) {
  if (Streams* streams = Member(worker)) streams->session->Push(std::move(message));
}

void WorkerStreams::SendToCommands(const std::string& worker, v1::CommandsResponse message) {
  Streams* streams = Member(worker);
  if (streams == nullptr) return;
  if (streams->commands == nullptr) {
    streams->backlog.push_back(std::move(message));
  } else {
    streams->commands->Push(std::move(message));
  }
}

void WorkerStreams::CloseAll(const absl::Status& status) {
  for (auto& [key, streams] : streams_) {
    if (streams.commands != nullptr) streams.commands->Abort(status);
    streams.session->Abort(status);
  }
  streams_.clear();
  members_.clear();
}

}  // namespace tp::server
