// PacedCommunicator: each call of a step that takes many (rounds of a redistribute or a transfer) has its whole time
// and counts as progress, however long the step. Example:
//   PacedCommunicator paced(communicator, pace);  ExecuteRedistributeStep({device, stream, paced, ...}, ...);
#pragma once

#include <string>
#include <vector>

#include "worker/collective/communicator.h"
#include "worker/runtime/pace.h"

namespace tp::worker {

// Owned by the executor thread. The deadlines that it is given are not used; what it is made of must outlive it.
class PacedCommunicator : public Communicator {
 public:
  PacedCommunicator(Communicator& inner, Pace& pace) : inner_(inner), pace_(pace) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::Status AllReduce(Stream& stream, absl::Span<const int> group, void* data, int64_t count, DType dtype,
                         ReduceOp op, absl::Time) override {
    return inner_.AllReduce(stream, group, data, count, dtype, op, Next());
  }
  absl::Status ReduceScatter(Stream& stream, absl::Span<const int> group, const void* input,
                             absl::Span<const int64_t> counts, void* output, DType dtype, ReduceOp op,
                             absl::Time) override {
    return inner_.ReduceScatter(stream, group, input, counts, output, dtype, op, Next());
  }
  absl::Status AllGather(Stream& stream, absl::Span<const int> group, const void* input, void* output,
                         absl::Span<const int64_t> counts, DType dtype, absl::Time) override {
    return inner_.AllGather(stream, group, input, output, counts, dtype, Next());
  }
  absl::Status AllToAll(Stream& stream, absl::Span<const int> group, const void* input,
                        absl::Span<const int64_t> send_counts, void* output, absl::Span<const int64_t> receive_counts,
                        DType dtype, absl::Time) override {
    return inner_.AllToAll(stream, group, input, send_counts, output, receive_counts, dtype, Next());
  }
  absl::Status Broadcast(Stream& stream, absl::Span<const int> group, int root, void* data, int64_t count, DType dtype,
                         absl::Time) override {
    return inner_.Broadcast(stream, group, root, data, count, dtype, Next());
  }
  absl::Status Scatter(Stream& stream, absl::Span<const int> group, int root, const void* input,
                       absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time) override {
    return inner_.Scatter(stream, group, root, input, counts, output, dtype, Next());
  }
  absl::Status Gather(Stream& stream, absl::Span<const int> group, int root, const void* input, void* output,
                      absl::Span<const int64_t> counts, DType dtype, absl::Time) override {
    return inner_.Gather(stream, group, root, input, output, counts, dtype, Next());
  }
  absl::Status SendReceive(Stream& stream, int to, const void* input, int64_t send_count, int from, void* output,
                           int64_t receive_count, DType dtype, absl::Time) override {
    return inner_.SendReceive(stream, to, input, send_count, from, output, receive_count, dtype, Next());
  }
  absl::Status Barrier(absl::Span<const int> group, absl::Time) override { return inner_.Barrier(group, Next()); }
  absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                          absl::Time) override {
    return inner_.ExchangeHeaders(group, mine, Next());
  }
  absl::Status PrepareGroups(absl::Span<const std::vector<std::vector<int>>> partitions, absl::Time) override {
    return inner_.PrepareGroups(partitions, Next());
  }
  absl::Status CheckPeers(absl::Span<const int> group) override { return inner_.CheckPeers(group); }
  void Abort(absl::string_view reason) override { inner_.Abort(reason); }
  WireCounters wire() const override { return inner_.wire(); }

 private:
  absl::Time Next() {
    pace_.Advance();
    return pace_.Deadline();
  }
  Communicator& inner_;
  Pace& pace_;
};

}  // namespace tp::worker
