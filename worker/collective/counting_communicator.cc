#include "worker/collective/counting_communicator.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace tp::worker {
namespace {

int64_t Sum(absl::Span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(std::unique_ptr<Communicator> owned, Communicator& inner, CollectiveCounters* counters)
      : owned_(std::move(owned)), inner_(inner), counters_(counters) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }

  absl::Status AllReduce(Stream& stream, absl::Span<const int> group, void* data, int64_t count, DType dtype,
                         ReduceOp op, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kAllReduce, count * ItemSize(dtype));
    return inner_.AllReduce(stream, group, data, count, dtype, op, deadline);
  }
  absl::Status ReduceScatter(Stream& stream, absl::Span<const int> group, const void* input,
                             absl::Span<const int64_t> counts, void* output, DType dtype, ReduceOp op,
                             absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kReduceScatter, Sum(counts) * ItemSize(dtype));
    return inner_.ReduceScatter(stream, group, input, counts, output, dtype, op, deadline);
  }
  absl::Status AllGather(Stream& stream, absl::Span<const int> group, const void* input, void* output,
                         absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kAllGather, Sum(counts) * ItemSize(dtype));
    return inner_.AllGather(stream, group, input, output, counts, dtype, deadline);
  }
  absl::Status AllToAll(Stream& stream, absl::Span<const int> group, const void* input,
                        absl::Span<const int64_t> send_counts, void* output, absl::Span<const int64_t> receive_counts,
                        DType dtype, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kAllToAll,
                      std::max(Sum(send_counts), Sum(receive_counts)) * ItemSize(dtype));
    return inner_.AllToAll(stream, group, input, send_counts, output, receive_counts, dtype, deadline);
  }
  absl::Status Broadcast(Stream& stream, absl::Span<const int> group, int root, void* data, int64_t count, DType dtype,
                         absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kBroadcast, count * ItemSize(dtype));
    return inner_.Broadcast(stream, group, root, data, count, dtype, deadline);
  }
  absl::Status Scatter(Stream& stream, absl::Span<const int> group, int root, const void* input,
                       absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kScatter, Sum(counts) * ItemSize(dtype));
    return inner_.Scatter(stream, group, root, input, counts, output, dtype, deadline);
  }
  absl::Status Gather(Stream& stream, absl::Span<const int> group, int root, const void* input, void* output,
                      absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kGather, Sum(counts) * ItemSize(dtype));
    return inner_.Gather(stream, group, root, input, output, counts, dtype, deadline);
  }
  absl::Status SendReceive(Stream& stream, int to, const void* input, int64_t send_count, int from, void* output,
                           int64_t receive_count, DType dtype, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kSendReceive,
                      std::max(to < 0 ? 0 : send_count, from < 0 ? 0 : receive_count) * ItemSize(dtype));
    return inner_.SendReceive(stream, to, input, send_count, from, output, receive_count, dtype, deadline);
  }
  absl::Status Barrier(absl::Span<const int> group, absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kBarrier, 0);
    return inner_.Barrier(group, deadline);
  }
  absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                          absl::Time deadline) override {
    const Timed timed(*this, CollectiveKind::kHeaders, static_cast<int64_t>(group.size() * sizeof(StepHeader)));
    return inner_.ExchangeHeaders(group, mine, deadline);
  }
  absl::Status PrepareGroups(absl::Span<const std::vector<std::vector<int>>> partitions, absl::Time deadline) override {
    return inner_.PrepareGroups(partitions, deadline);
  }
  absl::Status CheckPeers(absl::Span<const int> group) override { return inner_.CheckPeers(group); }
  bool Records() const override { return inner_.Records(); }
  absl::Status Launched(Stream& stream, absl::Time deadline) override { return inner_.Launched(stream, deadline); }
  void Abort(absl::string_view reason) override { inner_.Abort(reason); }
  WireCounters wire() const override { return inner_.wire(); }

 private:
  // Adds a call at its end, however it ends.
  class Timed {
   public:
    Timed(const CountingCommunicator& owner, CollectiveKind kind, int64_t bytes)
        : owner_(owner), kind_(kind), bytes_(bytes), began_(std::chrono::steady_clock::now()) {}
    ~Timed() { owner_.counters_->Add(kind_, bytes_, absl::FromChrono(std::chrono::steady_clock::now() - began_)); }

   private:
    const CountingCommunicator& owner_;
    const CollectiveKind kind_;
    const int64_t bytes_;
    const std::chrono::steady_clock::time_point began_;
  };

  const std::unique_ptr<Communicator> owned_;  // `inner_`, or nullptr
  Communicator& inner_;
  CollectiveCounters* const counters_;
};

}  // namespace

std::vector<std::string> CollectiveKindNames() {
  return {"all_reduce", "reduce_scatter", "all_gather",   "all_to_all", "broadcast",
          "scatter",    "gather",         "send_receive", "barrier",    "headers"};
}

CollectiveTally CollectiveTally::Since(const CollectiveTally& before) const {
  CollectiveTally tally;
  for (size_t i = 0; i < kCollectiveKinds; ++i) {
    tally.calls[i] = calls[i] - before.calls[i];
    tally.bytes[i] = bytes[i] - before.bytes[i];
    tally.times[i] = times[i] - before.times[i];
  }
  return tally;
}

void CollectiveCounters::Add(CollectiveKind kind, int64_t bytes, absl::Duration time) {
  Cell& cell = cells_[static_cast<size_t>(kind)];
  cell.calls.fetch_add(1, std::memory_order_relaxed);
  cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
  cell.nanoseconds.fetch_add(absl::ToInt64Nanoseconds(time), std::memory_order_relaxed);
}

void CollectiveCounters::AddAgain(const CollectiveTally& tally) {
  for (size_t i = 0; i < kCollectiveKinds; ++i) {
    if (tally.calls[i] == 0) continue;
    cells_[i].calls.fetch_add(tally.calls[i], std::memory_order_relaxed);
    cells_[i].bytes.fetch_add(tally.bytes[i], std::memory_order_relaxed);
  }
}

CollectiveTally CollectiveCounters::Read() const {
  CollectiveTally tally;
  for (size_t i = 0; i < kCollectiveKinds; ++i) {
    tally.calls[i] = cells_[i].calls.load(std::memory_order_relaxed);
    tally.bytes[i] = cells_[i].bytes.load(std::memory_order_relaxed);
    tally.times[i] = absl::Nanoseconds(cells_[i].nanoseconds.load(std::memory_order_relaxed));
  }
  return tally;
}

std::unique_ptr<Communicator> CreateCountingCommunicator(std::unique_ptr<Communicator> inner,
                                                         CollectiveCounters* counters) {
  Communicator& owned = *inner;
  return std::make_unique<CountingCommunicator>(std::move(inner), owned, counters);
}
std::unique_ptr<Communicator> CreateCountingCommunicator(Communicator& inner, CollectiveCounters* counters) {
  return std::make_unique<CountingCommunicator>(nullptr, inner, counters);
}

}  // namespace tp::worker
