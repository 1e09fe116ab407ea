#include "worker/rpc/worker_agent.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/proto_convert/command.h"
#include "common/rpc/channel.h"

namespace tp::worker {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLastBackoff = absl::Seconds(2);
constexpr absl::Duration kStandstill = absl::Seconds(30);  // longer than any wait of Run()

std::string NewIncarnation() {
  std::random_device random;
  uint64_t high = (uint64_t{random()} << 32) | random(), low = (uint64_t{random()} << 32) | random();
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
}

WorkerChannels OpenChannels(const WorkerAgentOptions& options) {
  ChannelOptions channel;
  channel.keepalive = channel.keepalive * options.runtime.time_scale;
  channel.tls = options.tls;
  return {CreateChannel(options.server, channel), CreateChannel(options.server, channel),
          CreateChannel(options.server, channel)};
}

WorkerRuntimeOptions Counted(WorkerRuntimeOptions options, CollectiveCounters* counters) {
  options.counters = counters;
  return options;
}

}  // namespace

WorkerAgent::WorkerAgent(WorkerAgentOptions options, std::unique_ptr<Device> device,
                         std::unique_ptr<CollectiveBackend> backend, const Clock* clock)
    : options_(std::move(options)),
      device_text_(device->Describe()),
      widens_bf16_(!device->HasProduct(DType::kBF16)),
      collectives_text_(backend->Describe()),
      device_identity_(device->Identity()),
      clock_(clock),
      channels_(OpenChannels(options_)),
      metrics_(options_.version, options_.memory_limit_bytes),
      runtime_(std::make_unique<WorkerRuntime>(std::move(device), std::move(backend),
                                               Counted(options_.runtime, &counters_), clock, this)),
      turned_(clock->Now()) {}

WorkerAgent::~WorkerAgent() { runtime_.reset(); }

absl::Status WorkerAgent::Run() {
  absl::Duration backoff = kFirstBackoff;
  std::string last_text;
  while (true) {
    const absl::Time started = clock_->Now();
    bool refused = false;
    Turn();
    const absl::Status why = WithTlsHint(RunSession(&refused), options_.tls);
    // Nothing of the old session may answer for the new one.
    SetMember(nullptr);
    runtime_->Reset(0);
    if (refused) return why;
    const std::string text = why.ToString();
    if (text != last_text && !why.ok()) Log(LogLevel::kWarning, absl::StrCat("not a member: ", text));
    last_text = text;
    backoff = clock_->Now() - started > absl::Seconds(5) ? kFirstBackoff : std::min(backoff * 2, kLastBackoff);
    absl::MutexLock lock(&mutex_);
    why_ = why;
    const auto leaves = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || draining_; };
    mutex_.AwaitWithTimeout(absl::Condition(&leaves), backoff);
    if (leaves()) return absl::OkStatus();
  }
}

absl::Status WorkerAgent::RunSession(bool* refused) {
  v1::Join join;
  join.set_worker_id(options_.id);
  join.set_incarnation(NewIncarnation());
  join.set_version(options_.version);
  join.set_device(device_text_);
  join.set_memory_limit_bytes(static_cast<uint64_t>(options_.memory_limit_bytes));
  join.set_collective_host(options_.collective_host);
  join.set_pid(getpid());
  join.set_widens_bf16(widens_bf16_);
  join.set_collectives(collectives_text_);
  join.set_device_identity(device_identity_);
  auto session = std::make_shared<WorkerSession>(channels_, std::move(join), runtime_.get(), clock_);
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_ || draining_) return absl::OkStatus();
    session_ = session;
  }
  bool welcome = false;
  absl::Status why = session->Run(
      [&] {
        welcome = true;
        SetMember(session);
        metrics_.Joined();
        Log(LogLevel::kInfo, absl::StrCat("worker ", options_.id, " is a member at ", options_.server));
      },
      [this] { Turn(); });
  *refused = !welcome && (absl::IsFailedPrecondition(why) || absl::IsInvalidArgument(why));
  absl::MutexLock lock(&mutex_);
  session_ = nullptr;
  return why;
}

void WorkerAgent::Drain(absl::Duration limit, const std::atomic<bool>* hurry) {
  const absl::Time end = clock_->Now() + limit;
  std::shared_ptr<WorkerSession> member;
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    member = member_;
  }
  if (member != nullptr) {
    member->AskToLeave();
    Log(LogLevel::kInfo, "drains: leaves once its work is done");
    bool hurried = false;
    while (Member() == member && !member->released() && !hurried) {
      if (clock_->Now() >= end || (hurry != nullptr && hurry->load())) {
        Log(LogLevel::kWarning, "leaves before its work is done");
        hurried = true;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  Stop();
}

void WorkerAgent::Turn() {
  const absl::MutexLock lock(&mutex_);
  turned_ = clock_->Now();
}

std::string WorkerAgent::MetricsText() {
  metrics_.Show(runtime_->Usage(), counters_.Read());
  {
    const absl::MutexLock lock(&mutex_);
    metrics_.ShowMembership(member_ != nullptr, draining_ || stopping_);
  }
  return metrics_.Text();
}

absl::Status WorkerAgent::Live() {
  const absl::MutexLock lock(&mutex_);
  const absl::Duration quiet = clock_->Now() - turned_;
  if (quiet <= kStandstill * options_.runtime.time_scale) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("its thread stands still for ", absl::FormatDuration(quiet)));
}

absl::Status WorkerAgent::Ready() {
  const absl::MutexLock lock(&mutex_);
  if (draining_ || stopping_) return absl::UnavailableError("draining");
  if (member_ != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("not a member: ", std::string(why_.message())));
}

void WorkerAgent::OnCommandDone(size_t kind, absl::StatusCode code, absl::Duration took) {
  metrics_.CommandDone(kind, code, took);
}

void WorkerAgent::Stop() {
  std::shared_ptr<WorkerSession> session;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    session = session_;
  }
  if (session != nullptr) session->Stop();
}

std::shared_ptr<WorkerSession> WorkerAgent::Member() {
  absl::MutexLock lock(&mutex_);
  return member_;
}

void WorkerAgent::SetMember(std::shared_ptr<WorkerSession> session) {
  absl::MutexLock lock(&mutex_);
  member_.swap(session);
}

void WorkerAgent::OnAck(Ack ack) {
  std::shared_ptr<WorkerSession> member = Member();
  if (member == nullptr) return;
  v1::CommandsRequest request;
  AckToProto(ack, request.mutable_ack());
  member->Send(std::move(request));
}

void WorkerAgent::OnStageResult(StageResult result) {
  metrics_.StageDone(result);
  std::shared_ptr<WorkerSession> member = Member();
  if (member == nullptr) return;
  v1::CommandsRequest request;
  StageResultToProto(result, request.mutable_stage_result());
  member->Send(std::move(request));
}

void WorkerAgent::OnProgress(uint64_t stage_id, int64_t done_bytes, int64_t total_bytes) {
  std::shared_ptr<WorkerSession> member = Member();
  if (member == nullptr) return;
  v1::SessionRequest request;
  request.mutable_progress()->set_stage_id(stage_id);
  request.mutable_progress()->set_done_bytes(static_cast<uint64_t>(done_bytes));
  request.mutable_progress()->set_total_bytes(static_cast<uint64_t>(total_bytes));
  member->Send(std::move(request));
}

void WorkerAgent::OnResultData(uint64_t transfer_id, std::vector<DataBlock> blocks) {
  if (std::shared_ptr<WorkerSession> member = Member()) member->transfers().Upload(transfer_id, std::move(blocks));
}

void WorkerAgent::OnReceiveWanted(uint64_t stage_id, uint64_t transfer_id, int64_t size_bytes) {
  std::shared_ptr<WorkerSession> member = Member();
  if (member == nullptr) return;
  member->transfers().Download(
      transfer_id, size_bytes, [this, stage_id, transfer_id](std::string bytes, bool last, absl::Status status) {
        return runtime_->ReceiveData(stage_id, transfer_id, std::move(bytes), last, std::move(status));
      });
}

void WorkerAgent::OnTransferDropped(uint64_t transfer_id) {
  if (std::shared_ptr<WorkerSession> member = Member()) member->transfers().Cancel(transfer_id);
}

}  // namespace tp::worker
