// The API of the fake NCCL: arguments, rules, groups of calls.
#include "fake_nccl.h"

#include <string.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "nccl_comm.h"
#include "nccl_reduce.h"

#define TP_FAKE_API extern "C" __attribute__((visibility("default")))
#define TP_FAKE_NCCL_ENTER(function)                                                       \
  if (const int injected = tp_fake::InjectedError(#function); injected != 0) {             \
    return Fail({static_cast<ncclResult_t>(injected), "an injected error of " #function}); \
  }

namespace tp_fake {
namespace {

using CommPtr = std::shared_ptr<ncclComm>;

std::mutex& mutex = *new std::mutex;
// Guarded by mutex. What was freed stays, so that its handle is never another communicator's.
std::map<ncclComm_t, CommPtr>& live = *new std::map<ncclComm_t, CommPtr>;
std::vector<CommPtr>& freed = *new std::vector<CommPtr>;
std::set<std::pair<std::string, int>>& used_ids = *new std::set<std::pair<std::string, int>>;

std::atomic<int> polls = [] {
  const char* text = std::getenv("TP_FAKE_NCCL_POLLS");
  return text == nullptr ? 2 : std::atoi(text);
}();

thread_local std::string last_error;

// Work for one communicator's stream.
struct Work {
  CommPtr comm;
  cudaStream_t stream = nullptr;
  std::vector<Operation> operations;
};
struct Group {
  int depth = 0;
  std::vector<Work> works;
  std::vector<CommPtr> aborts;
  ncclResult_t error = ncclSuccess;
  bool in_progress = false;
};
thread_local Group group;

ncclResult_t Fail(const Fault& fault) {
  last_error = fault.text;
  if (group.depth > 0 && group.error == ncclSuccess) group.error = fault.code;
  return fault.code;
}

CommPtr Find(ncclComm_t handle) {
  const std::lock_guard lock(mutex);
  const auto it = live.find(handle);
  return it == live.end() ? nullptr : it->second;
}

ncclComm_t Publish(const CommPtr& comm) {
  const std::lock_guard lock(mutex);
  live[comm.get()] = comm;
  return comm.get();
}

void FreeNow(const CommPtr& comm) {
  comm->Free();
  const std::lock_guard lock(mutex);
  freed.push_back(comm);
}

// A call into a communicator.
class Use {
 public:
  Use(ncclComm_t handle, const char* what) : comm_(Find(handle)) {
    if (comm_ == nullptr) {
      fault_ = {ncclInvalidArgument, std::string(what) + ": the communicator was destroyed or aborted, or never was"};
      return;
    }
    if (comm_->inside.fetch_add(1) > 0) {
      fault_ = {ncclInvalidUsage, std::string(what) + ": two threads in one communicator at once"};
    } else if (const ncclResult_t error = comm_->error(); error != ncclSuccess) {
      fault_ = {error, std::string(what) + ": after an error: " + comm_->error_text()};
    } else if (comm_->busy()) {
      fault_ = {ncclInvalidArgument,
                std::string(what) + ": the communicator is used before the previous call has returned ncclSuccess"};
    } else if (comm_->finalized) {
      fault_ = {ncclInvalidUsage, std::string(what) + ": after ncclCommFinalize"};
    }
  }
  ~Use() {
    if (comm_ != nullptr) --comm_->inside;
  }
  const Fault& fault() const { return fault_; }
  const CommPtr& comm() const { return comm_; }

 private:
  const CommPtr comm_;
  Fault fault_;
};

ncclResult_t Launch(Work work) {
  const CommPtr comm = work.comm;
  return comm->Defer([work = std::move(work)]() -> Fault {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(work.stream, &capturing);
    std::shared_ptr<uint64_t> ticket = capturing == cudaStreamCaptureStatusNone ? work.comm->Ticket() : nullptr;
    const cudaError_t code =
        Enqueue(work.stream, [comm = work.comm, ticket = std::move(ticket), operations = work.operations]() mutable {
          comm->Run(operations, ticket.get());
        });
    if (code == cudaSuccess) return {};
    return {ncclUnhandledCudaError, std::string("CUDA: ") + cudaGetErrorString(code)};
  });
}

// Puts a call on its stream, or into the group that is open.
ncclResult_t Add(ncclComm_t handle, cudaStream_t stream, const Operation& operation, const char* what) {
  const Use use(handle, what);
  if (use.fault()) return Fail(use.fault());
  const ncclComm& comm = *use.comm();
  if (operation.type < 0 || operation.type > ncclBfloat16 || operation.reduction < 0 || operation.reduction > ncclAvg) {
    return Fail({ncclInvalidArgument, std::string(what) + ": a type or operation that does not exist"});
  }
  if (operation.root < 0 || operation.root >= comm.size) {
    return Fail({ncclInvalidArgument,
                 std::string(what) + ": rank " + std::to_string(operation.root) + " of " + std::to_string(comm.size)});
  }
  if (operation.count == 0) return ncclSuccess;
  const bool reads =
      operation.kind != Operation::kReceive && (operation.kind != Operation::kBroadcast || operation.root == comm.rank);
  const bool writes =
      operation.kind != Operation::kSend && (operation.kind != Operation::kReduce || operation.root == comm.rank);
  if ((reads && operation.send == nullptr) || (writes && operation.receive == nullptr)) {
    return Fail({ncclInvalidArgument, std::string(what) + ": no buffer"});
  }
  if (group.depth == 0) {
    const ncclResult_t code = Launch({use.comm(), stream, {operation}});
    if (code != ncclSuccess && code != ncclInProgress) last_error = use.comm()->error_text();
    return code;
  }
  for (Work& work : group.works) {
    if (work.comm != use.comm()) continue;
    if (work.stream != stream) {
      return Fail({ncclInvalidUsage, std::string(what) + ": one communicator on two streams in one group"});
    }
    work.operations.push_back(operation);
    return ncclSuccess;
  }
  group.works.push_back({use.comm(), stream, {operation}});
  return ncclSuccess;
}

// A kernel of a sister that waits for its peers and was not told to stop keeps the device busy: the real one hangs.
Fault CheckOthers(const std::vector<CommPtr>& aborting) {
  const std::lock_guard lock(mutex);
  for (const auto& [handle, comm] : live) {
    const bool mine = std::find(aborting.begin(), aborting.end(), comm) != aborting.end();
    const ncclComm& first = *aborting.front();
    if (!mine && comm->family == first.family && comm->device == first.device && !comm->aborted && comm->running()) {
      return {ncclInvalidUsage, "ncclCommAbort: work of a communicator split from it runs and was not aborted"};
    }
  }
  return {};
}

ncclResult_t FreeAborted(std::vector<CommPtr> comms) {
  if (comms.empty()) return ncclSuccess;
  const Fault others = CheckOthers(comms);
  for (const CommPtr& comm : comms) {
    FreeNow(comm);
    const std::lock_guard lock(mutex);
    live.erase(comm.get());
  }
  return others ? Fail(others) : ncclSuccess;
}

ncclResult_t FinishOrWait(const CommPtr& comm) {
  if (!comm->blocking) return ncclInProgress;
  comm->WaitForStarted();
  while (comm->Ask() == ncclInProgress) {
  }
  if (comm->error() != ncclSuccess) last_error = comm->error_text();
  return comm->error();
}

Fault CheckConfig(const ncclConfig_t* config) {
  if (config == nullptr || config->magic == 0xcafebeef) return {};
  return {ncclInvalidArgument, "a configuration that was not initialized"};
}
bool IsBlocking(const ncclConfig_t* config, bool otherwise) {
  return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT ? otherwise : config->blocking != 0;
}

std::string HexOf(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// Colours and keys of all ranks, then the connections of the new communicator.
Fault Split(ncclComm& parent, int number, int color, int key, CommPtr* child) {
  const std::lock_guard run(parent.run_mutex);
  struct Choice {
    int color, key;
  };
  std::vector<Choice> choices(static_cast<size_t>(parent.size));
  choices[static_cast<size_t>(parent.rank)] = {color, key};
  const Choice mine{color, key};
  MessageHeader header;
  header.kind = MessageHeader::kSplit;
  header.operation = 6;
  header.sequence = static_cast<uint64_t>(number);
  Batch batch(parent.mesh, parent.aborted);
  for (int r = 0; r < parent.size; ++r) {
    if (r == parent.rank) continue;
    batch.Send(r, header, &mine, sizeof(mine));
    batch.Receive(r, header, &choices[static_cast<size_t>(r)], sizeof(Choice));
  }
  if (const Fault fault = batch.Finish()) return fault;
  if (color == NCCL_SPLIT_NOCOLOR || parent.aborted) return {};
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int r = 0; r < parent.size; ++r) {
    const Choice& choice = choices[static_cast<size_t>(r)];
    if (choice.color == color) members.emplace_back(choice.key, r);
  }
  std::sort(members.begin(), members.end());
  int rank = 0;
  while (members[static_cast<size_t>(rank)].second != parent.rank) ++rank;
  const std::string text = parent.name + "/" + std::to_string(number) + "/" + std::to_string(color);
  const std::string name = HexOf(HashOf(text)) + HexOf(HashOf(text + "/"));
  *child = std::make_shared<ncclComm>(name, parent.family, rank, static_cast<int>(members.size()), parent.device,
                                      parent.blocking);
  return (*child)->mesh.Connect(name, rank, static_cast<int>(members.size()), parent.aborted);
}

}  // namespace

int NcclPolls() { return polls; }
void SetNcclPolls(int count) { polls = count; }
int LiveNcclComms() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(live.size());
}

}  // namespace tp_fake

using namespace tp_fake;

TP_FAKE_API ncclResult_t ncclGetVersion(int* version) {
  TP_FAKE_NCCL_ENTER(ncclGetVersion);
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

TP_FAKE_API ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  TP_FAKE_NCCL_ENTER(ncclGetUniqueId);
  std::random_device random;
  std::fill(std::begin(uniqueId->internal), std::end(uniqueId->internal), '\0');
  const std::string name = HexOf((uint64_t{random()} << 32) | random()) + HexOf((uint64_t{random()} << 32) | random());
  std::copy(name.begin(), name.end(), uniqueId->internal);
  return ncclSuccess;
}

TP_FAKE_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                                ncclConfig_t* config) {
  TP_FAKE_NCCL_ENTER(ncclCommInitRankConfig);
  if (const Fault fault = CheckConfig(config)) return Fail(fault);
  if (nranks < 1 || rank < 0 || rank >= nranks) {
    return Fail({ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(nranks)});
  }
  const std::string name(commId.internal, ::strnlen(commId.internal, sizeof(commId.internal)));
  if (name.size() != 32) return Fail({ncclInvalidArgument, "an id that ncclGetUniqueId did not make"});
  {
    const std::lock_guard lock(tp_fake::mutex);
    if (!used_ids.emplace(name, rank).second) {
      return Fail({ncclInvalidUsage, "the id was used for rank " + std::to_string(rank) + " before"});
    }
  }
  int device = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) {
    return Fail({ncclUnhandledCudaError, cudaGetErrorString(code)});
  }
  auto made = std::make_shared<ncclComm>(name, name, rank, nranks, device, IsBlocking(config, true));
  *comm = Publish(made);
  made->Start([raw = made.get()] {
    const std::lock_guard run(raw->run_mutex);
    return raw->mesh.Connect(raw->name, raw->rank, raw->size, raw->aborted);
  });
  return FinishOrWait(made);
}

TP_FAKE_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return ncclCommInitRankConfig(comm, nranks, commId, rank, nullptr);
}

TP_FAKE_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  TP_FAKE_NCCL_ENTER(ncclCommSplit);
  const Use use(comm, "ncclCommSplit");
  if (use.fault()) return Fail(use.fault());
  if (const Fault fault = CheckConfig(config)) return Fail(fault);
  if (color < NCCL_SPLIT_NOCOLOR) return Fail({ncclInvalidArgument, "ncclCommSplit: colour " + std::to_string(color)});
  if (use.comm()->outstanding() > 0) {
    return Fail({ncclInvalidUsage, "ncclCommSplit: the communicator has work that is not done"});
  }
  *newcomm = nullptr;
  const auto child = std::make_shared<CommPtr>();
  const CommPtr& parent = use.comm();
  const int number = ++parent->splits;
  parent->Start(
      [raw = parent.get(), number, color, key, child] { return Split(*raw, number, color, key, child.get()); });
  // The new handle is there once the parent says that it is done.
  const auto publish = [child, newcomm]() -> Fault {
    if (*child == nullptr) return {};
    *newcomm = Publish(*child);
    if (!(*child)->blocking) (*child)->Defer([] { return Fault(); });
    return {};
  };
  if (parent->blocking) {
    parent->WaitForStarted();
    if (parent->error() == ncclSuccess) publish();
    return parent->error();
  }
  parent->AfterStarted(publish);
  return ncclInProgress;
}

TP_FAKE_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  TP_FAKE_NCCL_ENTER(ncclCommFinalize);
  const Use use(comm, "ncclCommFinalize");
  if (use.fault()) return Fail(use.fault());
  use.comm()->finalized = true;
  return use.comm()->Defer([] { return Fault(); });
}

TP_FAKE_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  TP_FAKE_NCCL_ENTER(ncclCommDestroy);
  const CommPtr found = Find(comm);
  if (found == nullptr) return Fail({ncclInvalidArgument, "ncclCommDestroy: the communicator is gone already"});
  if (!found->blocking && !found->finalized) {
    return Fail({ncclInvalidUsage, "ncclCommDestroy: before ncclCommFinalize, non-blocking"});
  }
  if (found->busy()) return Fail({ncclInvalidUsage, "ncclCommDestroy: ncclCommFinalize is in progress"});
  {
    const std::lock_guard lock(tp_fake::mutex);
    live.erase(comm);
  }
  FreeNow(found);
  return ncclSuccess;
}

TP_FAKE_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  TP_FAKE_NCCL_ENTER(ncclCommAbort);
  const CommPtr found = Find(comm);
  if (found == nullptr) return Fail({ncclInvalidArgument, "ncclCommAbort: the communicator is gone already"});
  if (InjectedError("ncclAbortHang") != 0) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  found->Abort();
  if (group.depth > 0) {
    group.aborts.push_back(found);
    return ncclSuccess;
  }
  return FreeAborted({found});
}

TP_FAKE_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  TP_FAKE_NCCL_ENTER(ncclCommGetAsyncError);
  const CommPtr found = Find(comm);
  if (found == nullptr) return Fail({ncclInvalidArgument, "ncclCommGetAsyncError: the communicator is gone"});
  *asyncError = found->Ask();
  return ncclSuccess;
}

TP_FAKE_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const CommPtr found = Find(comm);
  if (found == nullptr) return Fail({ncclInvalidArgument, "ncclCommCount: the communicator is gone"});
  *count = found->size;
  return ncclSuccess;
}
TP_FAKE_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const CommPtr found = Find(comm);
  if (found == nullptr) return Fail({ncclInvalidArgument, "ncclCommCuDevice: the communicator is gone"});
  *device = found->device;
  return ncclSuccess;
}
TP_FAKE_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const CommPtr found = Find(comm);
  if (found == nullptr) return Fail({ncclInvalidArgument, "ncclCommUserRank: the communicator is gone"});
  *rank = found->rank;
  return ncclSuccess;
}

TP_FAKE_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

// The communicator's own error where it has one, else this thread's last.
TP_FAKE_API const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  const CommPtr found = comm == nullptr ? nullptr : Find(comm);
  text = found == nullptr ? "" : found->error_text();
  if (text.empty()) text = last_error;
  return text.c_str();
}

TP_FAKE_API ncclResult_t ncclGroupStart() {
  TP_FAKE_NCCL_ENTER(ncclGroupStart);
  ++group.depth;
  return ncclSuccess;
}

TP_FAKE_API ncclResult_t ncclGroupEnd() {
  TP_FAKE_NCCL_ENTER(ncclGroupEnd);
  if (group.depth == 0) return Fail({ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart"});
  if (--group.depth > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, group);
  ncclResult_t code = FreeAborted(std::move(ended.aborts));
  if (ended.error != ncclSuccess) return ended.error;  // nothing of it is launched
  for (Work& work : ended.works) {
    const CommPtr comm = work.comm;
    const ncclResult_t launched = Launch(std::move(work));
    if (launched == ncclInProgress && code == ncclSuccess) code = launched;
    if (launched != ncclSuccess && launched != ncclInProgress) {
      last_error = comm->error_text();
      code = launched;
    }
  }
  return code;
}

TP_FAKE_API ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclAllReduce);
  return Add(comm, stream, {Operation::kAllReduce, sendbuff, recvbuff, count, datatype, op, 0}, "ncclAllReduce");
}

TP_FAKE_API ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclReduceScatter);
  return Add(comm, stream, {Operation::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, 0},
             "ncclReduceScatter");
}

TP_FAKE_API ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                       ncclComm_t comm, cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclAllGather);
  return Add(comm, stream, {Operation::kAllGather, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0},
             "ncclAllGather");
}

TP_FAKE_API ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                       int root, ncclComm_t comm, cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclBroadcast);
  return Add(comm, stream, {Operation::kBroadcast, sendbuff, recvbuff, count, datatype, ncclSum, root},
             "ncclBroadcast");
}

TP_FAKE_API ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclReduce);
  return Add(comm, stream, {Operation::kReduce, sendbuff, recvbuff, count, datatype, op, root}, "ncclReduce");
}

TP_FAKE_API ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclSend);
  return Add(comm, stream, {Operation::kSend, sendbuff, nullptr, count, datatype, ncclSum, peer}, "ncclSend");
}

TP_FAKE_API ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                  cudaStream_t stream) {
  TP_FAKE_NCCL_ENTER(ncclRecv);
  return Add(comm, stream, {Operation::kReceive, nullptr, recvbuff, count, datatype, ncclSum, peer}, "ncclRecv");
}
