#include "server/rpc/worker_streams.h"

#include <gmock/gmock.h>

#include <optional>
#include <vector>

namespace tp::server {
namespace {

// A queue whose writes are done at once.
template <typename Message>
struct Stream {
  std::vector<Message> sent;
  std::optional<absl::Status> finished;
  std::shared_ptr<WriteQueue<Message>> queue = std::make_shared<WriteQueue<Message>>(
      [this](const Message* message) {
        sent.push_back(*message);
        queue->OnWriteDone(true);
      },
      [this](const absl::Status& status) { finished = status; });
};

v1::CommandsResponse Numbered(uint64_t stage_id) {
  v1::CommandsResponse response;
  response.mutable_drop()->set_stage_id(stage_id);
  return response;
}

TEST(WorkerStreams, WhatIsSentEarlyWaitsForTheCommandStream) {
  WorkerStreams streams;
  Stream<v1::SessionResponse> session;
  Stream<v1::CommandsResponse> commands;
  streams.AddSession("w1", "i1", session.queue);
  EXPECT_EQ(streams.AttachCommands("w1", "i1", commands.queue).code(), absl::StatusCode::kFailedPrecondition);
  streams.Admit("w1", "i1");
  streams.SendToCommands("w1", Numbered(1));
  streams.SendToCommands("w1", Numbered(2));
  ASSERT_TRUE(streams.AttachCommands("w1", "i1", commands.queue).ok());
  streams.SendToCommands("w1", Numbered(3));
  ASSERT_EQ(commands.sent.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(commands.sent[i].drop().stage_id(), i + 1);
  EXPECT_EQ(streams.AttachCommands("w1", "i1", commands.queue).code(), absl::StatusCode::kAlreadyExists);
}

TEST(WorkerStreams, ARefusedSecondWorkerOfOneNameLeavesTheFirst) {
  WorkerStreams streams;
  Stream<v1::SessionResponse> first, second;
  streams.AddSession("w1", "i1", first.queue);
  streams.Admit("w1", "i1");
  streams.AddSession("w1", "i2", second.queue);
  bool member = true;
  ASSERT_TRUE(streams.Remove("w1", "i2", absl::AlreadyExistsError("taken"), &member));
  EXPECT_FALSE(member);
  EXPECT_EQ(second.finished->code(), absl::StatusCode::kAlreadyExists);
  streams.SendToSession("w1", {});
  EXPECT_EQ(first.sent.size(), 1u);
  EXPECT_FALSE(first.finished.has_value());
}

TEST(WorkerStreams, RemoveEndsBothStreamsOnce) {
  WorkerStreams streams;
  Stream<v1::SessionResponse> session;
  Stream<v1::CommandsResponse> commands;
  streams.AddSession("w1", "i1", session.queue);
  streams.Admit("w1", "i1");
  ASSERT_TRUE(streams.AttachCommands("w1", "i1", commands.queue).ok());
  bool member = false;
  EXPECT_TRUE(streams.Remove("w1", "i1", absl::UnavailableError("gone"), &member));
  EXPECT_TRUE(member);
  EXPECT_TRUE(session.finished.has_value());
  EXPECT_TRUE(commands.finished.has_value());
  EXPECT_FALSE(streams.Remove("w1", "i1", absl::UnavailableError("gone"), &member));
  streams.SendToCommands("w1", Numbered(1));  // to nobody
  EXPECT_TRUE(commands.sent.empty());
}

}  // namespace
}  // namespace tp::server
