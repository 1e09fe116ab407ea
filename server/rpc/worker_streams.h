// WorkerStreams: the sessions and command streams of workers, by (worker id, incarnation). What is sent before the
// command stream has come waits for it. Example: streams.SendToCommands("w1", message); Owned by the core's thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/write_queue.h"
#include "tp/v1/membership.pb.h"
#include "tp/v1/worker.pb.h"

namespace tp::server {

using SessionQueue = WriteQueue<v1::SessionResponse>;
using CommandsQueue = WriteQueue<v1::CommandsResponse>;

class WorkerStreams {
 public:
  // A session that asks to join.
  void AddSession(const std::string& worker, const std::string& incarnation, std::shared_ptr<SessionQueue> queue);
  // It is a member now: messages to `worker` go to it.
  void Admit(const std::string& worker, const std::string& incarnation);
  // Ends its streams. False where there is none (any more), true with `*member` otherwise.
  bool Remove(const std::string& worker, const std::string& incarnation, const absl::Status& status, bool* member);
  // The command stream of a member. FAILED_PRECONDITION where it is none, ALREADY_EXISTS where it has one.
  absl::Status AttachCommands(const std::string& worker, const std::string& incarnation,
                              std::shared_ptr<CommandsQueue> queue);

  void SendToSession(const std::string& worker, v1::SessionResponse message);
  void SendToCommands(const std::string& worker, v1::CommandsResponse message);
  // Ends all of them.
  void CloseAll(const absl::Status& status);

 private:
  struct Streams {
    std::shared_ptr<SessionQueue> session;
    std::shared_ptr<CommandsQueue> commands;
    std::vector<v1::CommandsResponse> backlog;
    bool member = false;
  };
  Streams* Member(const std::string& worker);
  std::map<std::pair<std::string, std::string>, Streams> streams_;
  std::map<std::string, std::string> members_;  // worker -> incarnation
};

}  // namespace tp::server
