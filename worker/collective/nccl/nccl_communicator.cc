#include "worker/collective/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "worker/collective/checks.h"
#include "worker/collective/nccl/divide.h"
#include "worker/collective/nccl/scratch.h"
#include "worker/collective/reduce.h"
#include "worker/device/cuda/cuda_status.h"
#include "worker/device/cuda/kernels.h"

namespace tp::worker {
namespace {

using cuda::CudaStatus;
using cuda::NcclStatus;

// Up to here an all_reduce by exchange is one step: every member gets all terms.
constexpr int64_t kOneStepBytes = 64 << 10;

ncclDataType_t NcclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI64:
      return ncclInt64;
    case DType::kI32:
      return ncclInt32;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t NcclOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
    default:
      return ncclSum;  // an average is divided afterwards
  }
}

cuda::TermReduction TermsOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return cuda::TermReduction::kMin;
    case ReduceOp::kMax:
      return cuda::TermReduction::kMax;
    case ReduceOp::kProduct:
      return cuda::TermReduction::kProduct;
    default:
      return cuda::TermReduction::kSum;
  }
}

// Whether NCCL's own reduction does what Communicator promises: it adds 16-bit floats in their own type, and its min
// and max lose a NaN.
bool NcclReduces(DType dtype, ReduceOp op) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return op != ReduceOp::kMin && op != ReduceOp::kMax;
  return !IsFloating(dtype);
}

char* At(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }
const char* At(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }

// What moves between this rank and one member of a group.
struct Part {
  const void* send = nullptr;
  int64_t send_bytes = 0;
  void* receive = nullptr;
  int64_t receive_bytes = 0;
};

// One call: its group, the stream, and the communicator that serves it.
struct Call {
  const char* what;
  absl::Span<const int> group;
  int me;  // index in the group
  cudaStream_t stream;
  absl::Time deadline;
  ncclComm_t comm;
  bool own;  // the communicator's ranks are the group's indices; else they are the mesh's ranks
  int size() const { return static_cast<int>(group.size()); }
  int RankOf(int member) const { return own ? member : group[member]; }
};

class NcclCommunicator : public Communicator, public cuda::StreamWatch {
 public:
  NcclCommunicator(const NcclOptions& options, std::shared_ptr<AbortFlag> abort, std::unique_ptr<NcclHandles> handles)
      : options_(options),
        abort_(std::move(abort)),
        handles_(std::move(handles)),
        rank_(handles_->host().rank()),
        size_(handles_->host().size()) {
    if (options_.watches != nullptr) options_.watches->Add(this);
  }
  ~NcclCommunicator() override {
    if (options_.watches != nullptr) options_.watches->Remove(this);
    handles_.reset();  // before the scratch memory that its work uses
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status AllReduce(Stream& stream, absl::Span<const int> group, void* data, int64_t count, DType dtype,
                         ReduceOp op, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckReduction(dtype, op));
    TP_RETURN_IF_ERROR(CheckCounts("count", {count}, 1));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("all_reduce", stream, group, deadline));
    if (count == 0 || call.size() == 1) return absl::OkStatus();
    if (!call.own || !NcclReduces(dtype, op)) return End(call, ReduceByTerms(call, data, count, dtype, op));
    TP_RETURN_IF_ERROR(Settle(call, ncclAllReduce(data, data, static_cast<size_t>(count), NcclTypeOf(dtype),
                                                  NcclOpOf(op), call.comm, call.stream)));
    const int64_t moved = 2 * (call.size() - 1) * count * ItemSize(dtype) / call.size();
    Count(moved, moved);
    return End(call, Average(call, data, count, dtype, op));
  }

  absl::Status ReduceScatter(Stream& stream, absl::Span<const int> group, const void* input,
                             absl::Span<const int64_t> counts, void* output, DType dtype, ReduceOp op,
                             absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckReduction(dtype, op));
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("reduce_scatter", stream, group, deadline));
    const int64_t mine = counts[call.me];
    if (call.size() == 1) return End(call, Copy(call, input, output, mine * ItemSize(dtype)));
    if (!call.own || !NcclReduces(dtype, op) || !AllEqual(counts)) {
      return End(call, ReduceBlocks(call, input, counts, output, dtype, op));
    }
    if (mine == 0) return absl::OkStatus();
    TP_RETURN_IF_ERROR(Settle(call, ncclReduceScatter(input, output, static_cast<size_t>(mine), NcclTypeOf(dtype),
                                                      NcclOpOf(op), call.comm, call.stream)));
    const int64_t moved = (call.size() - 1) * mine * ItemSize(dtype);
    Count(moved, moved);
    return End(call, Average(call, output, mine, dtype, op));
  }

  absl::Status AllGather(Stream& stream, absl::Span<const int> group, const void* input, void* output,
                         absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("all_gather", stream, group, deadline));
    return End(call, GatherBlocks(call, input, output, BytesOf(counts, dtype)));
  }

  absl::Status AllToAll(Stream& stream, absl::Span<const int> group, const void* input,
                        absl::Span<const int64_t> send_counts, void* output, absl::Span<const int64_t> receive_counts,
                        DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("send_counts", send_counts, group.size()));
    TP_RETURN_IF_ERROR(CheckCounts("receive_counts", receive_counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("all_to_all", stream, group, deadline));
    TP_RETURN_IF_ERROR(CheckOwnBlock(rank_, send_counts[call.me], receive_counts[call.me]));
    std::vector<Part> parts(group.size());
    int64_t sent = 0, received = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t out = send_counts[i] * ItemSize(dtype), in = receive_counts[i] * ItemSize(dtype);
      parts[i] = {At(input, sent), out, At(output, received), in};
      sent += out;
      received += in;
    }
    return End(call, Exchange(call, parts));
  }

  absl::Status Broadcast(Stream& stream, absl::Span<const int> group, int root, void* data, int64_t count, DType dtype,
                         absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("count", {count}, 1));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("broadcast", stream, group, deadline));
    TP_ASSIGN_OR_RETURN(const int from, IndexInGroup(group, root));
    const int64_t bytes = count * ItemSize(dtype);
    if (bytes == 0 || call.size() == 1) return absl::OkStatus();
    if (call.own) {
      TP_RETURN_IF_ERROR(
          Settle(call, ncclBroadcast(data, data, static_cast<size_t>(bytes), ncclUint8, from, call.comm, call.stream)));
      Count(from == call.me ? bytes : 0, from == call.me ? 0 : bytes);
      return End(call, absl::OkStatus());
    }
    std::vector<Part> parts(group.size());
    for (int i = 0; i < call.size(); ++i) {
      if (i == call.me) continue;
      if (call.me == from) parts[i] = {data, bytes, nullptr, 0};
      if (i == from) parts[i] = {nullptr, 0, data, bytes};
    }
    return End(call, Exchange(call, parts));
  }

  absl::Status Scatter(Stream& stream, absl::Span<const int> group, int root, const void* input,
                       absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("scatter", stream, group, deadline));
    TP_ASSIGN_OR_RETURN(const int from, IndexInGroup(group, root));
    std::vector<Part> parts(group.size());
    int64_t offset = 0;
    for (int i = 0; i < call.size(); ++i) {
      const int64_t bytes = counts[i] * ItemSize(dtype);
      if (call.me == from) {
        parts[i].send = At(input, offset);
        parts[i].send_bytes = bytes;
        offset += bytes;
      }
      if (i == from) {
        parts[i].receive = output;
        parts[i].receive_bytes = counts[call.me] * ItemSize(dtype);
      }
    }
    return End(call, Exchange(call, parts));
  }

  absl::Status Gather(Stream& stream, absl::Span<const int> group, int root, const void* input, void* output,
                      absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Call call, Begin("gather", stream, group, deadline));
    TP_ASSIGN_OR_RETURN(const int to, IndexInGroup(group, root));
    std::vector<Part> parts(group.size());
    int64_t offset = 0;
    for (int i = 0; i < call.size(); ++i) {
      const int64_t bytes = counts[i] * ItemSize(dtype);
      if (call.me == to) {
        parts[i].receive = At(output, offset);
        parts[i].receive_bytes = bytes;
        offset += bytes;
      }
      if (i == to) {
        parts[i].send = input;
        parts[i].send_bytes = counts[call.me] * ItemSize(dtype);
      }
    }
    return End(call, Exchange(call, parts));
  }

  absl::Status SendReceive(Stream& stream, int to, const void* input, int64_t send_count, int from, void* output,
                           int64_t receive_count, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(handles_->Alive());
    TP_RETURN_IF_ERROR(CheckSendReceive(rank_, size_, to, send_count, from, receive_count));
    std::vector<int> group = {rank_};
    for (const int peer : {to, from}) {
      if (peer >= 0 && std::find(group.begin(), group.end(), peer) == group.end()) group.push_back(peer);
    }
    const Call call{"send_receive", group, 0, options_.stream_of(stream), deadline, handles_->all(), false};
    TP_RETURN_IF_ERROR(SetDevice());
    std::vector<Part> parts(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i] == to) {
        parts[i].send = input;
        parts[i].send_bytes = send_count * ItemSize(dtype);
      }
      if (group[i] == from) {
        parts[i].receive = output;
        parts[i].receive_bytes = receive_count * ItemSize(dtype);
      }
    }
    return End(call, Exchange(call, parts));
  }

  absl::Status Barrier(absl::Span<const int> group, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(handles_->Alive());
    return OfHost(handles_->host().Barrier(group, deadline));
  }
  absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                          absl::Time deadline) override {
    TP_RETURN_IF_ERROR(handles_->Alive());
    absl::StatusOr<std::vector<StepHeader>> headers = handles_->host().ExchangeHeaders(group, mine, deadline);
    TP_RETURN_IF_ERROR(OfHost(headers.status()));
    return headers;
  }
  absl::Status PrepareGroups(absl::Span<const std::vector<std::vector<int>>> partitions, absl::Time deadline) override;
  absl::Status CheckPeers(absl::Span<const int> group) override {
    TP_RETURN_IF_ERROR(handles_->Alive());
    return OfHost(handles_->host().CheckPeers(group));
  }

  bool Records() const override { return true; }

  void Abort(absl::string_view reason) override {
    abort_->Set(reason);
    handles_->host().Abort(reason);
  }
  WireCounters wire() const override {
    const WireCounters host = handles_->host().wire();
    return {host.bytes_sent + bytes_sent_, host.bytes_received + bytes_received_};
  }

  absl::Status Poll() override { return handles_->Poll(); }
  absl::Status Launched(Stream& stream, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(handles_->Alive());
    std::vector<int> everybody(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) everybody[r] = r;
    return handles_->Watch(options_.stream_of(stream), {deadline, "a graph", std::move(everybody)});
  }

 private:
  absl::Status SetDevice() { return CudaStatus(cudaSetDevice(options_.device), "the GPU of a communicator"); }

  absl::StatusOr<Call> Begin(const char* what, Stream& stream, absl::Span<const int> group, absl::Time deadline) {
    TP_RETURN_IF_ERROR(handles_->Alive());
    TP_ASSIGN_OR_RETURN(const int me, CheckGroup(group, rank_, size_));
    TP_RETURN_IF_ERROR(SetDevice());
    const ncclComm_t own = handles_->Find(group);
    return Call{what,          group, me, options_.stream_of(stream), deadline, own == nullptr ? handles_->all() : own,
                own != nullptr};
  }
  // What a call put on the stream is watched from here on. A kernel that could not be put there leaves the ranks at
  // different points.
  absl::Status End(const Call& call, absl::Status status) {
    if (!status.ok()) return handles_->Fail(std::move(status));
    return handles_->Watch(call.stream, {call.deadline, call.what, {call.group.begin(), call.group.end()}});
  }
  absl::Status Settle(const Call& call, ncclResult_t code) {
    if (code == ncclSuccess) return absl::OkStatus();
    return handles_->Settle(call.comm, code, {call.deadline, call.what, {call.group.begin(), call.group.end()}});
  }
  // The host group leaves arguments that it refuses without harm.
  absl::Status OfHost(absl::Status status) {
    if (status.ok() || status.code() == absl::StatusCode::kInvalidArgument) return status;
    return handles_->Fail(std::move(status));
  }
  void Count(int64_t sent, int64_t received) {
    bytes_sent_ += sent;
    bytes_received_ += received;
  }
  static std::vector<int64_t> BytesOf(absl::Span<const int64_t> counts, DType dtype) {
    std::vector<int64_t> bytes(counts.begin(), counts.end());
    for (int64_t& b : bytes) b *= ItemSize(dtype);
    return bytes;
  }
  static bool AllEqual(absl::Span<const int64_t> values) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values[0]; });
  }

  absl::Status Copy(const Call& call, const void* from, void* to, int64_t bytes) {
    if (bytes == 0 || from == to) return absl::OkStatus();
    return CudaStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, call.stream), call.what);
  }

  // All parts at once; the one to itself is a copy.
  absl::Status Exchange(const Call& call, absl::Span<const Part> parts) {
    TP_RETURN_IF_ERROR(Copy(call, parts[call.me].send, parts[call.me].receive, parts[call.me].send_bytes));
    int64_t sent = 0, received = 0;
    for (int i = 0; i < call.size(); ++i) {
      if (i == call.me) continue;
      sent += parts[i].send_bytes;
      received += parts[i].receive_bytes;
    }
    if (sent == 0 && received == 0) return absl::OkStatus();
    const auto fine = [](ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; };
    ncclResult_t code = ncclGroupStart();
    for (int i = 0; i < call.size() && fine(code); ++i) {
      if (i == call.me) continue;
      const Part& part = parts[i];
      if (part.send_bytes > 0) {
        code = ncclSend(part.send, static_cast<size_t>(part.send_bytes), ncclUint8, call.RankOf(i), call.comm,
                        call.stream);
      }
      if (fine(code) && part.receive_bytes > 0) {
        code = ncclRecv(part.receive, static_cast<size_t>(part.receive_bytes), ncclUint8, call.RankOf(i), call.comm,
                        call.stream);
      }
    }
    const ncclResult_t ended = ncclGroupEnd();
    TP_RETURN_IF_ERROR(Settle(call, fine(code) ? ended : code));
    Count(sent, received);
    return absl::OkStatus();
  }

  // Block i of `output` is member i's input.
  absl::Status GatherBlocks(const Call& call, const void* input, void* output, absl::Span<const int64_t> bytes) {
    if (call.own && call.size() > 1 && bytes[0] > 0 && AllEqual(bytes)) {
      TP_RETURN_IF_ERROR(
          Settle(call, ncclAllGather(input, output, static_cast<size_t>(bytes[0]), ncclUint8, call.comm, call.stream)));
      Count((call.size() - 1) * bytes[0], (call.size() - 1) * bytes[0]);
      return absl::OkStatus();
    }
    std::vector<Part> parts(call.group.size());
    int64_t offset = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = {input, bytes[call.me], At(output, offset), bytes[i]};
      offset += bytes[i];
    }
    return Exchange(call, parts);
  }

  // This rank's block of the inputs, reduced in the group's order.
  absl::Status ReduceBlocks(const Call& call, const void* input, absl::Span<const int64_t> counts, void* output,
                            DType dtype, ReduceOp op) {
    const int64_t item = ItemSize(dtype), mine = counts[call.me] * item;
    TP_ASSIGN_OR_RETURN(void* const terms, scratch_.Get(call.stream, mine * call.size()));
    std::vector<Part> parts(call.group.size());
    int64_t offset = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = {At(input, offset), counts[i] * item, At(terms, static_cast<int64_t>(i) * mine), mine};
      offset += counts[i] * item;
    }
    TP_RETURN_IF_ERROR(Exchange(call, parts));
    if (mine == 0) return absl::OkStatus();
    return ReduceTerms(call, terms, counts[call.me], output, dtype, op);
  }

  absl::Status ReduceTerms(const Call& call, const void* terms, int64_t count, void* output, DType dtype, ReduceOp op) {
    return cuda::ReduceTerms(call.stream, TermsOpOf(op), op == ReduceOp::kAvg, dtype, terms, call.size(), count,
                             output);
  }

  absl::Status ReduceByTerms(const Call& call, void* data, int64_t count, DType dtype, ReduceOp op) {
    const int64_t bytes = count * ItemSize(dtype), n = call.size();
    if (bytes * n <= kOneStepBytes) {
      TP_ASSIGN_OR_RETURN(void* const terms, scratch_.Get(call.stream, bytes * n));
      TP_RETURN_IF_ERROR(GatherBlocks(call, data, terms, std::vector<int64_t>(call.group.size(), bytes)));
      return ReduceTerms(call, terms, count, data, dtype, op);
    }
    const int64_t block = (count + n - 1) / n;
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < n; ++i) counts.push_back(std::clamp(count - i * block, int64_t{0}, block));
    void* const mine = At(data, std::min(call.me * block, count) * ItemSize(dtype));
    TP_RETURN_IF_ERROR(ReduceBlocks(call, data, counts, mine, dtype, op));
    return GatherBlocks(call, mine, data, BytesOf(counts, dtype));
  }

  absl::Status Average(const Call& call, void* data, int64_t count, DType dtype, ReduceOp op) {
    return op == ReduceOp::kAvg ? Divide(call.stream, dtype, data, count, call.size()) : absl::OkStatus();
  }

  const NcclOptions options_;
  const std::shared_ptr<AbortFlag> abort_;
  Scratch scratch_;
  std::unique_ptr<NcclHandles> handles_;
  const int rank_, size_;
  std::set<std::vector<std::vector<int>>> prepared_;
  std::atomic<int64_t> bytes_sent_ = 0, bytes_received_ = 0;
};

absl::Status NcclCommunicator::PrepareGroups(absl::Span<const std::vector<std::vector<int>>> partitions,
                                             absl::Time deadline) {
  TP_RETURN_IF_ERROR(handles_->Alive());
  for (const std::vector<std::vector<int>>& partition : partitions) {
    std::vector<int> all;
    for (const std::vector<int>& group : partition) all.insert(all.end(), group.begin(), group.end());
    std::sort(all.begin(), all.end());
    bool each_once = static_cast<int>(all.size()) == size_;
    for (int r = 0; r < size_ && each_once; ++r) each_once = all[r] == r;
    if (each_once) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("groups that do not hold each of ", size_, " ranks once: [", absl::StrJoin(all, ", "), "]"));
  }
  TP_RETURN_IF_ERROR(SetDevice());
  for (const std::vector<std::vector<int>>& partition : partitions) {
    // The same on all ranks: a partition of single ranks or of all needs none, and none is made twice.
    const bool needed = std::any_of(partition.begin(), partition.end(), [&](const std::vector<int>& group) {
      return group.size() > 1 &&
             !(static_cast<int>(group.size()) == size_ && std::is_sorted(group.begin(), group.end()));
    });
    if (!needed || !prepared_.insert(partition).second) continue;
    std::vector<int> mine;
    for (const std::vector<int>& group : partition) {
      if (group.size() > 1 && std::find(group.begin(), group.end(), rank_) != group.end()) mine = group;
    }
    TP_RETURN_IF_ERROR(handles_->Split(mine, deadline));
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Communicator> CreateNcclCommunicator(const NcclOptions& options, std::shared_ptr<AbortFlag> abort,
                                                     std::unique_ptr<NcclHandles> handles) {
  return std::make_unique<NcclCommunicator>(options, std::move(abort), std::move(handles));
}

}  // namespace tp::worker
