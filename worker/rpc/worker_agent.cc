#include "worker/rpc/worker_agent.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/proto_convert/command.h"
#include "common/rpc/channel.h"

namespace tp::worker {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLastBackoff = absl::Seconds(2);

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
      runtime_(std::make_unique<WorkerRuntime>(std::move(device), std::move(backend), options_.runtime, clock, this)) {}

WorkerAgent::~WorkerAgent() { runtime_.reset(); }

void WorkerAgent::Run() {
  absl::Duration backoff = kFirstBackoff;
  std::string last_text;
  while (true) {
    const absl::Time started = clock_->Now();
    absl::Status why = RunSession();
    // Nothing of the old session may answer for the new one.
    SetMember(nullptr);
    runtime_->Reset(0);
    const std::string text = why.ToString();
    if (text != last_text && !why.ok()) Log(LogLevel::kWarning, absl::StrCat("not a member: ", text));
    last_text = text;
    backoff = clock_->Now() - started > absl::Seconds(5) ? kFirstBackoff : std::min(backoff * 2, kLastBackoff);
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), backoff);
    if (stopping_) return;
  }
}

absl::Status WorkerAgent::RunSession() {
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
    if (stopping_) return absl::OkStatus();
    session_ = session;
  }
  absl::Status why = session->Run([&] {
    SetMember(session);
    Log(LogLevel::kInfo, absl::StrCat("worker ", options_.id, " is a member at ", options_.server));
  });
  absl::MutexLock lock(&mutex_);
  session_ = nullptr;
  return why;
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
