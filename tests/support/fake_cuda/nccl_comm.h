// A fake communicator: its connections, what runs of it on streams, and what it says of itself when asked. Example:
//   auto comm = std::make_shared<ncclComm>(name, rank, size, device, blocking);
//   comm->Start([comm] { return comm->mesh.Connect(..); });
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "nccl_wire.h"

namespace tp_fake {

// One call of a collective, a send or a receive.
struct Operation {
  enum Kind : int32_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kSend, kReceive };
  Kind kind = kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;  // or the peer
};

}  // namespace tp_fake

struct ncclComm {
  ncclComm(std::string its_name, std::string its_family, int its_rank, int its_size, int its_device, bool is_blocking)
      : name(std::move(its_name)),
        family(std::move(its_family)),
        rank(its_rank),
        size(its_size),
        device(its_device),
        blocking(is_blocking) {}
  ~ncclComm();

  // `work` in a thread, which the communicator is in progress with.
  void Start(std::function<tp_fake::Fault()> work);
  void WaitForStarted();
  // Runs `launch` when the communicator was asked often enough. ncclSuccess where that is at once, else ncclInProgress.
  ncclResult_t Defer(std::function<tp_fake::Fault()> launch);
  // Runs `launch` when what was started is done and asked for.
  void AfterStarted(std::function<tp_fake::Fault()> launch);
  // What ncclCommGetAsyncError says.
  ncclResult_t Ask();
  bool busy();
  ncclResult_t Note(const tp_fake::Fault& fault);  // its code, which stays
  ncclResult_t error();
  std::string error_text();
  // On a stream's thread: all of it, or nothing once aborted. After a fault it stands still until then. What has a
  // ticket waits for all that was issued before it, on whatever stream.
  void Run(const std::vector<tp_fake::Operation>& operations, const uint64_t* ticket);
  // Marks it; what runs ends soon. Free() waits for that and closes the connections.
  void Abort();
  void Free();
  // Work that was put on streams and has not ended.
  std::shared_ptr<uint64_t> Ticket();
  int outstanding();
  bool running();

  const std::string name, family;  // family: the name of the communicator that it was split from in the end
  const int rank, size, device;
  const bool blocking;
  std::atomic<bool> aborted = false;
  std::atomic<int> inside = 0;  // threads in calls of it
  tp_fake::Mesh mesh;           // under run_mutex
  std::mutex run_mutex;
  int splits = 0;  // so far; the owner's
  bool finalized = false;

 private:
  tp_fake::Fault Collective(const tp_fake::Operation& operation);
  tp_fake::Fault Points(const std::vector<tp_fake::Operation>& operations);
  tp_fake::MessageHeader HeaderOf(const tp_fake::Operation& operation) const;

  uint64_t sequence_ = 0;  // collectives that ran; under run_mutex
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
  bool started_ = false;
  int polls_left_ = 0;
  std::vector<std::function<tp_fake::Fault()>> deferred_;
  int running_ = 0;
  uint64_t issued_ = 0;
  std::set<uint64_t> outstanding_;  // tickets
  std::thread worker_;
};

namespace tp_fake {
int NcclPolls();
}  // namespace tp_fake
