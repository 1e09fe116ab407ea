#include "worker/collective/nccl/nccl_handles.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "worker/device/cuda/cuda_status.h"

namespace tp::worker {
namespace {

using cuda::CudaStatus;
using cuda::NcclStatus;

constexpr absl::Duration kLook = absl::Milliseconds(10);    // between two looks for errors
constexpr absl::Duration kGrace = absl::Milliseconds(300);  // by which the deadlines of ranks may differ
constexpr size_t kManyPending = 256;

std::string TextOf(const WatchedWork& work) {
  return absl::StrCat(work.what, " of group [", absl::StrJoin(work.group, ", "), "]");
}

}  // namespace

NcclHandles::NcclHandles(const NcclOptions& options, std::shared_ptr<AbortFlag> abort,
                         std::unique_ptr<Communicator> host)
    : options_(options), abort_(std::move(abort)), host_(std::move(host)) {}

NcclHandles::~NcclHandles() {
  cudaSetDevice(options_.device);
  while (!pending_.empty() && dead_.empty()) {
    if (Poll().ok() && !Retire().ok()) break;
    if (!pending_.empty()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  host_.reset();  // first, so that peers who wait for this rank see who left
  if (dead_.empty()) StartAbort();
  abort_job_.reset();
  for (const cudaEvent_t event : free_events_) cudaEventDestroy(event);
}

absl::Status NcclHandles::Connect(const ncclUniqueId& id, absl::Time deadline) {
  TP_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(options_.device), "the GPU of a communicator"));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t code = ncclCommInitRankConfig(&all_, host_->size(), id, host_->rank(), &config);
  if (all_ == nullptr) return Fail(NcclStatus(code, "connecting NCCL", ncclGetLastError(nullptr)));
  return Settle(all_, code, {deadline, "connecting NCCL", Everybody()});
}

absl::Status NcclHandles::Split(const std::vector<int>& group, absl::Time deadline) {
  // The communicator that is split may have no work under way.
  while (!pending_.empty()) {
    TP_RETURN_IF_ERROR(Poll());
    TP_RETURN_IF_ERROR(Retire());
    if (!pending_.empty()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  TP_RETURN_IF_ERROR(Alive());
  int color = NCCL_SPLIT_NOCOLOR, key = 0;
  if (!group.empty()) {
    color = group[0];
    key = static_cast<int>(std::find(group.begin(), group.end(), host_->rank()) - group.begin());
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t code = ncclCommSplit(all_, color, key, &comm, &config);
  const absl::Status split = Settle(all_, code, {deadline, "splitting NCCL", Everybody()});
  if (!split.ok() || comm == nullptr) return split;
  groups_.emplace(group, comm);
  return Settle(comm, ncclInProgress, {deadline, "connecting a group of NCCL", group});
}

ncclComm_t NcclHandles::Find(absl::Span<const int> group) const {
  if (static_cast<int>(group.size()) == host_->size() && std::is_sorted(group.begin(), group.end())) return all_;
  const auto it = groups_.find(std::vector<int>(group.begin(), group.end()));
  return it == groups_.end() ? nullptr : it->second;
}

absl::Status NcclHandles::Alive() {
  if (!dead_.empty()) return absl::AbortedError(absl::StrCat("the communicator is dead after: ", dead_));
  if (abort_->set()) return Fail(abort_->status());
  return absl::OkStatus();
}

absl::Status NcclHandles::Settle(ncclComm_t comm, ncclResult_t code, const WatchedWork& work) {
  if (code == ncclSuccess) return absl::OkStatus();
  if (code != ncclInProgress) return Fail(NcclStatus(code, work.what, ncclGetLastError(comm)));
  absl::Time looked = absl::Now();
  for (int64_t round = 0;; ++round) {
    ncclResult_t state = ncclSuccess;
    code = ncclCommGetAsyncError(comm, &state);
    if (code == ncclSuccess && state == ncclSuccess) return absl::OkStatus();
    if (code != ncclSuccess || state != ncclInProgress) {
      return Fail(NcclStatus(code != ncclSuccess ? code : state, work.what, ncclGetLastError(comm)));
    }
    if (abort_->set()) return Fail(abort_->status());
    const absl::Time now = absl::Now();
    if (now >= work.deadline) return FailOverdue(work);
    if (now - looked >= kLook) {
      looked = now;
      const absl::Status peers = host_->CheckPeers({});
      if (!peers.ok()) return Fail(Annotate(peers, work.what));
    }
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

absl::Status NcclHandles::Watch(cudaStream_t stream, WatchedWork work) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  absl::Status status = CudaStatus(cudaStreamIsCapturing(stream, &capturing), work.what);
  if (!status.ok()) return Fail(std::move(status));
  if (capturing != cudaStreamCaptureStatusNone) return absl::OkStatus();
  if (pending_.size() >= kManyPending) TP_RETURN_IF_ERROR(Retire());
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    status = CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), work.what);
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  if (status.ok()) status = CudaStatus(cudaEventRecord(event, stream), work.what);
  if (event != nullptr && !status.ok()) free_events_.push_back(event);
  if (!status.ok()) return Fail(std::move(status));
  pending_.push_back({event, std::move(work)});
  return absl::OkStatus();
}

absl::Status NcclHandles::Retire() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const cudaError_t code = cudaEventQuery(it->event);
    if (code == cudaErrorNotReady) {
      ++it;
      continue;
    }
    if (code != cudaSuccess) return Fail(CudaStatus(code, TextOf(it->work)));
    free_events_.push_back(it->event);
    it = pending_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status NcclHandles::Poll() {
  if (!dead_.empty()) {
    // With nothing on the streams when it died it holds up nobody: the device's other meshes go on.
    if (!drains_ || abort_job_->drained()) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("the communicator is dead after: ", dead_));
  }
  if (pending_.empty()) return absl::OkStatus();
  const absl::Time now = absl::Now();
  if (!abort_->set() && now - checked_ < kLook) return absl::OkStatus();
  checked_ = now;
  TP_RETURN_IF_ERROR(Retire());
  if (pending_.empty()) return absl::OkStatus();
  if (abort_->set()) return Fail(abort_->status());
  if (absl::Status peers = host_->CheckPeers(pending_.front().work.group); !peers.ok()) {
    return Fail(Annotate(peers, TextOf(pending_.front().work)));
  }
  TP_RETURN_IF_ERROR(CheckAsync());
  return CheckOverdue(now);
}

absl::Status NcclHandles::CheckAsync() {
  const auto check = [this](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(comm, &state);
    if (code == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) return absl::OkStatus();
    return Fail(NcclStatus(code != ncclSuccess ? code : state, TextOf(pending_.front().work), ncclGetLastError(comm)));
  };
  TP_RETURN_IF_ERROR(check(all_));
  for (const auto& group : groups_) TP_RETURN_IF_ERROR(check(group.second));
  return absl::OkStatus();
}

absl::Status NcclHandles::CheckOverdue(absl::Time now) {
  for (const Pending& pending : pending_) {
    if (now < pending.work.deadline) continue;
    const WatchedWork work = pending.work;  // what is pending goes with the failure
    return FailOverdue(work);
  }
  return absl::OkStatus();
}

absl::Status NcclHandles::FailOverdue(const WatchedWork& work) {
  const std::string text = absl::StrCat("rank ", host_->rank(), ": ", TextOf(work), " is overdue");
  // Who waits as well says so to the others; who does not is named.
  const absl::Status others = host_->Barrier(work.group, absl::Now() + kGrace);
  if (others.code() == absl::StatusCode::kUnavailable) return Fail(Annotate(others, text));
  return Fail(absl::DeadlineExceededError(
      absl::StrCat(text, ": ", others.ok() ? "all of its ranks wait" : std::string(others.message()))));
}

std::vector<int> NcclHandles::Everybody() const {
  std::vector<int> all(static_cast<size_t>(host_->size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::Status NcclHandles::Fail(absl::Status status) {
  if (!dead_.empty()) return status;
  if (abort_->set()) {
    status = abort_->status();
  } else if (status.code() == absl::StatusCode::kInternal && !pending_.empty()) {
    const absl::Status peers = host_->CheckPeers(pending_.front().work.group);
    if (!peers.ok()) status = absl::Status(peers.code(), absl::StrCat(peers.message(), "; ", status.message()));
  }
  dead_ = std::string(status.message());
  if (dead_.empty()) dead_ = "an abort";
  host_->Abort(dead_);
  StartAbort();
  return status;
}

void NcclHandles::StartAbort() {
  std::vector<ncclComm_t> comms;
  for (const auto& group : groups_) comms.push_back(group.second);
  if (all_ != nullptr) comms.push_back(all_);
  std::vector<cudaEvent_t> events;
  for (const Pending& pending : pending_) events.push_back(pending.event);
  drains_ = !events.empty();
  groups_.clear();
  all_ = nullptr;
  pending_.clear();
  abort_job_ = std::make_unique<AbortJob>(AbortJob::Options{options_.device, options_.kill_after, options_.end_process},
                                          std::move(comms), std::move(events));
}

}  // namespace tp::worker
