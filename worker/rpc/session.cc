#include "worker/rpc/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto_convert/command.h"
#include "common/rpc/status.h"

namespace tp::worker {
namespace {

constexpr absl::Duration kJoinTimeout = absl::Seconds(10);
constexpr absl::Duration kLeaveTimeout = absl::Milliseconds(500);

v1::DataHello HelloOf(const v1::Join& join) {
  v1::DataHello hello;
  hello.set_worker_id(join.worker_id());
  hello.set_incarnation(join.incarnation());
  return hello;
}

// The streams' writers: each message in turn until the queue is closed or the stream breaks.
template <typename Stream, typename Queue>
void WriteAll(Stream* stream, Queue* queue) {
  while (auto message = queue->Pop()) {
    if (!stream->Write(*message)) return;
  }
  stream->WritesDone();
}

}  // namespace

WorkerSession::WorkerSession(WorkerChannels channels, v1::Join join, WorkerRuntime* runtime, const Clock* clock)
    : channels_(std::move(channels)),
      join_(std::move(join)),
      runtime_(runtime),
      clock_(clock),
      transfers_(channels_.data, HelloOf(join_)) {}

absl::Status WorkerSession::Run(const std::function<void()>& welcomed, const std::function<void()>& turned) {
  auto session_stub = v1::MembershipService::NewStub(channels_.session);
  session_ = session_stub->Session(&session_context_);
  v1::SessionRequest request;
  *request.mutable_join() = join_;
  session_queue_.Push(std::move(request));
  std::thread session_writer([this] { WriteAll(session_.get(), &session_queue_); });
  std::thread session_reader([this] { ReadSession(); });

  bool is_welcome = false;
  {
    absl::MutexLock lock(&mutex_);
    auto answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return welcomed_ || ended_ || stopping_; };
    mutex_.AwaitWithTimeout(absl::Condition(&answered), kJoinTimeout);
    is_welcome = welcomed_ && !ended_ && !stopping_;
    if (!answered()) why_ = absl::DeadlineExceededError("the coordinator does not answer");
  }
  if (is_welcome) {
    welcomed();
    Serve(turned);
  }

  // Leaves: the coordinator ends the stream when it has read our end.
  session_queue_.Close();
  AwaitEnd(kLeaveTimeout);
  bool broken = false;
  {
    absl::MutexLock lock(&mutex_);
    broken = broken_;
  }
  if (!broken) session_context_.TryCancel();  // a stream that has ended would lose its status
  session_writer.join();
  session_reader.join();
  // The stream's own status says more than its end: why a join was refused, that the coordinator stops.
  const absl::Status status = FromGrpcStatus(session_->Finish());
  absl::MutexLock lock(&mutex_);
  if (broken_ && !status.ok() && !absl::IsCancelled(status)) return status;
  return why_;
}

void WorkerSession::Serve(const std::function<void()>& turned) {
  v1::Welcome welcome;
  {
    absl::MutexLock lock(&mutex_);
    welcome = welcome_;
  }
  runtime_->Reset(welcome.term(), welcome.check_collectives());
  auto commands_stub = v1::WorkerService::NewStub(channels_.commands);
  commands_ = commands_stub->Commands(&commands_context_);
  v1::CommandsRequest hello;
  hello.mutable_hello()->set_worker_id(join_.worker_id());
  hello.mutable_hello()->set_incarnation(join_.incarnation());
  hello.mutable_hello()->set_term(welcome.term());
  commands_->Write(hello);
  std::thread writer([this] { WriteAll(commands_.get(), &commands_queue_); });
  std::thread reader([this] { ReadCommands(); });

  const absl::Duration silence = absl::Milliseconds(welcome.lease_ms()) * 2 / 3;
  const absl::Duration interval = absl::Milliseconds(std::max<uint32_t>(welcome.heartbeat_ms(), 10));
  while (true) {
    turned();
    RuntimeUsage usage = runtime_->Usage();
    v1::SessionRequest heartbeat;
    heartbeat.mutable_heartbeat()->set_completed_sequence(usage.completed_sequence);
    heartbeat.mutable_heartbeat()->set_progress(usage.progress);
    heartbeat.mutable_heartbeat()->set_used_bytes(static_cast<uint64_t>(usage.used_bytes));
    session_queue_.Push(std::move(heartbeat));
    AwaitEnd(interval);
    absl::Duration quiet;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_ || stopping_) break;
      quiet = clock_->Now() - last_heard_;
    }
    if (quiet > silence) {
      End(absl::UnavailableError(absl::StrCat("the coordinator was silent for ", absl::FormatDuration(quiet))));
      break;
    }
  }
  transfers_.Stop();
  commands_queue_.Close();
  commands_context_.TryCancel();
  writer.join();
  reader.join();
  commands_->Finish();
}

void WorkerSession::AskToLeave() {
  v1::SessionRequest request;
  request.mutable_leave();
  session_queue_.Push(std::move(request));
}

bool WorkerSession::released() {
  absl::MutexLock lock(&mutex_);
  return released_ && transfers_.idle();
}

void WorkerSession::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

void WorkerSession::End(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (!ended_ && why_.ok() && !stopping_) why_ = why;
  ended_ = true;
}

void WorkerSession::AwaitEnd(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const bool stopping = stopping_;
  auto over = [this, stopping]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_ || stopping_ != stopping; };
  mutex_.AwaitWithTimeout(absl::Condition(&over), timeout);
}

void WorkerSession::ReadSession() {
  v1::SessionResponse response;
  while (session_->Read(&response)) {
    {
      absl::MutexLock lock(&mutex_);
      last_heard_ = clock_->Now();
      if (response.has_welcome() && !welcomed_) {
        welcomed_ = true;
        welcome_ = response.welcome();
      }
    }
    if (response.has_abort()) {
      runtime_->AbortEpoch(response.abort().mesh_id(), response.abort().epoch(), response.abort().reason());
    } else if (response.has_released()) {
      absl::MutexLock lock(&mutex_);
      released_ = true;
    } else if (response.has_fence()) {
      End(absl::AbortedError(absl::StrCat("fenced: ", response.fence().reason())));
      return;
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    broken_ = !ended_ && !stopping_;
  }
  End(absl::UnavailableError("the session ended"));
}

void WorkerSession::ReadCommands() {
  v1::CommandsResponse response;
  while (commands_->Read(&response)) {
    absl::Status status = HandleCommand(std::move(response));
    if (!status.ok()) {
      End(status);
      return;
    }
    response.Clear();
  }
  End(absl::UnavailableError("the command stream ended"));
}

absl::Status WorkerSession::HandleCommand(v1::CommandsResponse response) {
  switch (response.kind_case()) {
    case v1::CommandsResponse::kCommand: {
      TP_ASSIGN_OR_RETURN(Command command, CommandFromProto(response.command()));
      runtime_->Enqueue(std::move(command));
      return absl::OkStatus();
    }
    case v1::CommandsResponse::kStage: {
      absl::StatusOr<Stage> stage = StageFromProto(response.stage());
      if (stage.ok()) {
        runtime_->StartStage(*std::move(stage));
        return absl::OkStatus();
      }
      StageResult result;
      result.stage_id = response.stage().stage_id();
      result.status = stage.status();
      v1::CommandsRequest answer;
      StageResultToProto(result, answer.mutable_stage_result());
      Send(std::move(answer));
      return absl::OkStatus();
    }
    case v1::CommandsResponse::kDrop:
      runtime_->DropStage(response.drop().stage_id());
      return absl::OkStatus();
    case v1::CommandsResponse::KIND_NOT_SET:
      break;
  }
  return absl::InternalError("the coordinator sent an empty command");
}

}  // namespace tp::worker
