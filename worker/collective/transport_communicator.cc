#include "worker/collective/transport_communicator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "worker/collective/algorithms.h"
#include "worker/collective/checks.h"
#include "worker/collective/reduce.h"

namespace tp::worker {
namespace {

static_assert(sizeof(StepHeader) == 32 && std::has_unique_object_representations_v<StepHeader>);
static_assert(std::endian::native == std::endian::little, "a StepHeader is sent as it lies in memory");

std::vector<int64_t> BytesOf(absl::Span<const int64_t> counts, DType dtype) {
  std::vector<int64_t> bytes(counts.begin(), counts.end());
  for (int64_t& b : bytes) b *= ItemSize(dtype);
  return bytes;
}

class TransportCommunicator : public Communicator {
 public:
  TransportCommunicator(std::unique_ptr<Transport> transport, const CollectiveMemory& memory)
      : transport_(std::move(transport)), memory_(memory) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }

  absl::Status AllReduce(Stream&, absl::Span<const int> group, void* data, int64_t count, DType dtype, ReduceOp op,
                         absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckReduction(dtype, op));
    TP_RETURN_IF_ERROR(CheckCounts("count", {count}, 1));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    return Note(AllReduceHost(members, data, count, dtype, op));
  }
  absl::Status ReduceScatter(Stream&, absl::Span<const int> group, const void* input, absl::Span<const int64_t> counts,
                             void* output, DType dtype, ReduceOp op, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckReduction(dtype, op));
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    return Note(ReduceScatterHost(members, input, counts, output, dtype, op));
  }
  absl::Status AllGather(Stream&, absl::Span<const int> group, const void* input, void* output,
                         absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    return Note(AllGatherHost(members, input, output, BytesOf(counts, dtype)));
  }
  absl::Status AllToAll(Stream&, absl::Span<const int> group, const void* input, absl::Span<const int64_t> send_counts,
                        void* output, absl::Span<const int64_t> receive_counts, DType dtype,
                        absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("send_counts", send_counts, group.size()));
    TP_RETURN_IF_ERROR(CheckCounts("receive_counts", receive_counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    TP_RETURN_IF_ERROR(CheckOwnBlock(rank(), send_counts[members.me], receive_counts[members.me]));
    return Note(AllToAllHost(members, input, BytesOf(send_counts, dtype), output, BytesOf(receive_counts, dtype)));
  }
  absl::Status Broadcast(Stream&, absl::Span<const int> group, int root, void* data, int64_t count, DType dtype,
                         absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("count", {count}, 1));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    TP_ASSIGN_OR_RETURN(const int from, IndexInGroup(group, root));
    return Note(BroadcastHost(members, from, data, count * ItemSize(dtype)));
  }
  absl::Status Scatter(Stream&, absl::Span<const int> group, int root, const void* input,
                       absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    TP_ASSIGN_OR_RETURN(const int from, IndexInGroup(group, root));
    return Note(ScatterHost(members, from, input, BytesOf(counts, dtype), output));
  }
  absl::Status Gather(Stream&, absl::Span<const int> group, int root, const void* input, void* output,
                      absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    TP_RETURN_IF_ERROR(CheckCounts("counts", counts, group.size()));
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    TP_ASSIGN_OR_RETURN(const int to, IndexInGroup(group, root));
    return Note(GatherHost(members, to, input, output, BytesOf(counts, dtype)));
  }
  absl::Status SendReceive(Stream&, int to, const void* input, int64_t send_count, int from, void* output,
                           int64_t receive_count, DType dtype, absl::Time deadline) override;
  absl::Status Barrier(absl::Span<const int> group, absl::Time deadline) override {
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    std::string marks(group.size(), 0);
    const char mine = 1;
    return Note(AllGatherHost(members, &mine, marks.data(), std::vector<int64_t>(group.size(), 1)));
  }
  absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                          absl::Time deadline) override {
    TP_ASSIGN_OR_RETURN(const Members members, Check(group, deadline));
    std::vector<StepHeader> headers(group.size());
    const std::vector<int64_t> bytes(group.size(), sizeof(StepHeader));
    TP_RETURN_IF_ERROR(Note(AllGatherHost(members, &mine, headers.data(), bytes)));
    return headers;
  }

  absl::Status CheckPeers(absl::Span<const int> group) override {
    if (!broken_.empty()) return absl::AbortedError(absl::StrCat("the communicator is dead after: ", broken_));
    return Note(transport_->CheckPeers(group));
  }
  void Abort(absl::string_view reason) override { transport_->Abort(reason); }
  WireCounters wire() const override { return transport_->wire(); }

 private:
  absl::StatusOr<Members> Check(absl::Span<const int> group, absl::Time deadline) const {
    if (!broken_.empty()) return absl::AbortedError(absl::StrCat("the communicator is dead after: ", broken_));
    TP_ASSIGN_OR_RETURN(const int me, CheckGroup(group, rank(), size()));
    return Members{*transport_, group, me, deadline, memory_};
  }
  absl::Status Note(absl::Status status) {
    if (!status.ok()) broken_ = std::string(status.message());
    return status;
  }

  const std::unique_ptr<Transport> transport_;
  const CollectiveMemory memory_;
  std::string broken_;  // the first error's text
};

absl::Status TransportCommunicator::SendReceive(Stream&, int to, const void* input, int64_t send_count, int from,
                                                void* output, int64_t receive_count, DType dtype, absl::Time deadline) {
  const int self = rank();
  TP_RETURN_IF_ERROR(Check({self}, deadline).status());
  TP_RETURN_IF_ERROR(CheckSendReceive(self, size(), to, send_count, from, receive_count));
  const int64_t item = ItemSize(dtype);
  if (to == self) {
    if (send_count > 0) std::memmove(output, input, static_cast<size_t>(send_count * item));
    return absl::OkStatus();
  }
  Exchange exchange(*transport_, deadline);
  if (from >= 0) exchange.Receive(from, output, receive_count * item);
  if (to >= 0) exchange.Send(to, input, send_count * item);
  return Note(exchange.Finish());
}

}  // namespace

std::unique_ptr<Communicator> CreateTransportCommunicator(std::unique_ptr<Transport> transport,
                                                          const CollectiveMemory& memory) {
  return std::make_unique<TransportCommunicator>(std::move(transport), memory);
}

}  // namespace tp::worker
