// DataTransfers: the data streams of one session, each on a thread of its own: uploads of results and tensors,
// downloads of inputs and tensors. Example: transfers.Upload(transfer_id, std::move(blocks));
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tp/v1/worker.grpc.pb.h"
#include "worker/runtime/worker_runtime.h"

namespace tp::worker {

// Thread-safe.
class DataTransfers {
 public:
  // Bytes of a download in order; the last call has `last`, or a failed status. False: nobody wants more.
  using OnBytes = std::function<bool(std::string bytes, bool last, absl::Status status)>;

  // `hello`: worker and incarnation of the session.
  DataTransfers(std::shared_ptr<grpc::Channel> channel, v1::DataHello hello);
  ~DataTransfers() { Stop(); }
  // Sends blocks one after the other, as slowly as the coordinator reads; a piece of 1 MiB is in memory at a time.
  void Upload(uint64_t transfer_id, std::vector<DataBlock> blocks);
  void Download(uint64_t transfer_id, int64_t size_bytes, OnBytes on_bytes);
  // Ends a transfer's stream, without waiting for it. An id that is not under way is no error.
  void Cancel(uint64_t transfer_id);
  // None is under way.
  bool idle();
  // Cancels all and waits for their threads. Later transfers are dropped.
  void Stop();

 private:
  struct Transfer {
    uint64_t id = 0;
    grpc::ClientContext context;
    std::atomic<bool> done{false};
    std::thread thread;
  };
  void Start(uint64_t transfer_id, std::function<void(grpc::ClientContext*)> work);
  absl::Status Send(grpc::ClientContext* context, uint64_t transfer_id, const std::vector<DataBlock>& blocks);
  absl::Status Receive(grpc::ClientContext* context, uint64_t transfer_id, int64_t size_bytes, const OnBytes& on_bytes);

  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const v1::DataHello hello_;
  absl::Mutex mutex_;
  std::list<std::unique_ptr<Transfer>> transfers_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tp::worker
