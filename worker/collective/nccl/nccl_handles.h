// The NCCL communicators of one mesh: the one of all ranks and those split from it; calls that are in progress, work
// that is on streams, and the end of all when something fails. Example:
//   ncclGroupStart();  ncclSend(..);  ncclRecv(..);
//   TP_RETURN_IF_ERROR(handles.Settle(handles.all(), ncclGroupEnd(), {deadline, "all_to_all", group}));
//   TP_RETURN_IF_ERROR(handles.Watch(stream, {deadline, "all_to_all", group}));
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/collective/nccl/abort_flag.h"
#include "worker/collective/nccl/abort_job.h"
#include "worker/collective/nccl/nccl_backend.h"

namespace tp::worker {

// Work on a stream that must end.
struct WatchedWork {
  absl::Time deadline;
  const char* what = "";
  std::vector<int> group = {};  // who takes part
};

// Owned by one thread.
class NcclHandles {
 public:
  // `host` tells which peer is gone, and is aborted on a failure, so that peers learn of it.
  NcclHandles(const NcclOptions& options, std::shared_ptr<AbortFlag> abort, std::unique_ptr<Communicator> host);
  // Waits for the work on streams, as long as it may take, then frees the communicators.
  ~NcclHandles();

  absl::Status Connect(const ncclUniqueId& id, absl::Time deadline);
  // Collective over all ranks. `group`: this rank's, empty for none; its communicator is found by Find() from then on.
  absl::Status Split(const std::vector<int>& group, absl::Time deadline);

  Communicator& host() const { return *host_; }
  ncclComm_t all() const { return all_; }
  // nullptr where the group has none of its own.
  ncclComm_t Find(absl::Span<const int> group) const;

  // OK while calls may be made: ABORTED after Abort() and after a failure, naming it.
  absl::Status Alive();
  // Waits for a call that is in progress. Fails with what NCCL says, the deadline or the abort.
  absl::Status Settle(ncclComm_t comm, ncclResult_t code, const WatchedWork& work);
  // All that is on `stream` until now must be done by the deadline. Not while the stream captures.
  absl::Status Watch(cudaStream_t stream, WatchedWork work);
  // As StreamWatch::Poll.
  absl::Status Poll();
  // Aborts all communicators. Returns why: the reason of an abort or the peer that is gone where that explains it,
  // else `status`.
  absl::Status Fail(absl::Status status);

 private:
  struct Pending {
    cudaEvent_t event;
    WatchedWork work;
  };
  absl::Status Retire();  // forgets what is done
  absl::Status CheckAsync();
  absl::Status CheckOverdue(absl::Time now);
  // Fails with DEADLINE_EXCEEDED naming who does not wait as well.
  absl::Status FailOverdue(const WatchedWork& work);
  std::vector<int> Everybody() const;
  void StartAbort();

  const NcclOptions options_;
  const std::shared_ptr<AbortFlag> abort_;
  std::unique_ptr<Communicator> host_;
  ncclComm_t all_ = nullptr;
  std::map<std::vector<int>, ncclComm_t> groups_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> free_events_;
  absl::Time checked_ = absl::InfinitePast();
  std::string dead_;     // the first failure's text
  bool drains_ = false;  // work of it was on the streams when it died
  std::unique_ptr<AbortJob> abort_job_;
};

}  // namespace tp::worker
