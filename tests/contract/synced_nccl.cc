#include "tests/contract/synced_nccl.h"

#include <fake_runtime.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace tp::worker {
namespace {

void MakeFakeGpus() {
  static std::once_flag once;
  std::call_once(once, [] { tp_fake::Reset(kFakeGpus); });
}

class SyncedCommunicator : public Communicator {
 public:
  SyncedCommunicator(int gpu, std::shared_ptr<cuda::StreamWatches> watches, std::unique_ptr<Communicator> inner)
      : watches_(std::move(watches)), stream_(gpu), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::Status AllReduce(Stream&, absl::Span<const int> group, void* data, int64_t count, DType dtype, ReduceOp op,
                         absl::Time deadline) override {
    return Synced(inner_->AllReduce(stream_, group, data, count, dtype, op, deadline));
  }
  absl::Status ReduceScatter(Stream&, absl::Span<const int> group, const void* input, absl::Span<const int64_t> counts,
                             void* output, DType dtype, ReduceOp op, absl::Time deadline) override {
    return Synced(inner_->ReduceScatter(stream_, group, input, counts, output, dtype, op, deadline));
  }
  absl::Status AllGather(Stream&, absl::Span<const int> group, const void* input, void* output,
                         absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    return Synced(inner_->AllGather(stream_, group, input, output, counts, dtype, deadline));
  }
  absl::Status AllToAll(Stream&, absl::Span<const int> group, const void* input, absl::Span<const int64_t> send_counts,
                        void* output, absl::Span<const int64_t> receive_counts, DType dtype,
                        absl::Time deadline) override {
    return Synced(inner_->AllToAll(stream_, group, input, send_counts, output, receive_counts, dtype, deadline));
  }
  absl::Status Broadcast(Stream&, absl::Span<const int> group, int root, void* data, int64_t count, DType dtype,
                         absl::Time deadline) override {
    return Synced(inner_->Broadcast(stream_, group, root, data, count, dtype, deadline));
  }
  absl::Status Scatter(Stream&, absl::Span<const int> group, int root, const void* input,
                       absl::Span<const int64_t> counts, void* output, DType dtype, absl::Time deadline) override {
    return Synced(inner_->Scatter(stream_, group, root, input, counts, output, dtype, deadline));
  }
  absl::Status Gather(Stream&, absl::Span<const int> group, int root, const void* input, void* output,
                      absl::Span<const int64_t> counts, DType dtype, absl::Time deadline) override {
    return Synced(inner_->Gather(stream_, group, root, input, output, counts, dtype, deadline));
  }
  absl::Status SendReceive(Stream&, int to, const void* input, int64_t send_count, int from, void* output,
                           int64_t receive_count, DType dtype, absl::Time deadline) override {
    return Synced(inner_->SendReceive(stream_, to, input, send_count, from, output, receive_count, dtype, deadline));
  }
  absl::Status Barrier(absl::Span<const int> group, absl::Time deadline) override {
    return inner_->Barrier(group, deadline);
  }
  absl::StatusOr<std::vector<StepHeader>> ExchangeHeaders(absl::Span<const int> group, const StepHeader& mine,
                                                          absl::Time deadline) override {
    return inner_->ExchangeHeaders(group, mine, deadline);
  }
  absl::Status PrepareGroups(absl::Span<const std::vector<std::vector<int>>> partitions, absl::Time deadline) override {
    return inner_->PrepareGroups(partitions, deadline);
  }
  absl::Status CheckPeers(absl::Span<const int> group) override { return inner_->CheckPeers(group); }
  void Abort(absl::string_view reason) override { inner_->Abort(reason); }
  WireCounters wire() const override { return inner_->wire(); }

 private:
  // The buffers of a failed call are the caller's again only once the stream is idle.
  absl::Status Synced(absl::Status status) {
    status.Update(SyncFakeStream(stream_.get(), *watches_));
    return status;
  }

  const std::shared_ptr<cuda::StreamWatches> watches_;
  FakeStream stream_;
  const std::unique_ptr<Communicator> inner_;
};

class SyncedConnector : public Connector {
 public:
  SyncedConnector(int gpu, std::shared_ptr<cuda::StreamWatches> watches, std::unique_ptr<Connector> inner)
      : gpu_(gpu), watches_(std::move(watches)), inner_(std::move(inner)) {}
  std::string Address() const override { return inner_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::vector<std::string>& addresses,
                                                        absl::Time deadline) override {
    TP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> inner, inner_->Connect(addresses, deadline));
    return std::make_unique<SyncedCommunicator>(gpu_, watches_, std::move(inner));
  }
  void Abort() override { inner_->Abort(); }

 private:
  const int gpu_;
  const std::shared_ptr<cuda::StreamWatches> watches_;
  const std::unique_ptr<Connector> inner_;
};

class SyncedBackend : public CollectiveBackend {
 public:
  SyncedBackend(int gpu, std::shared_ptr<cuda::StreamWatches> watches, std::unique_ptr<CollectiveBackend> inner)
      : gpu_(gpu), watches_(std::move(watches)), inner_(std::move(inner)) {}
  absl::StatusOr<std::unique_ptr<Connector>> Listen(int rank, int size) override {
    TP_ASSIGN_OR_RETURN(std::unique_ptr<Connector> inner, inner_->Listen(rank, size));
    return std::make_unique<SyncedConnector>(gpu_, watches_, std::move(inner));
  }
  std::string Describe() const override { return inner_->Describe(); }

 private:
  const int gpu_;
  const std::shared_ptr<cuda::StreamWatches> watches_;
  const std::unique_ptr<CollectiveBackend> inner_;
};

}  // namespace

FakeStream::FakeStream(int gpu) {
  MakeFakeGpus();
  TP_CHECK(cudaSetDevice(gpu) == cudaSuccess);
  TP_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
}
FakeStream::~FakeStream() { cudaStreamDestroy(stream_); }

NcclOptions FakeNcclOptions(int gpu, cuda::StreamWatches* watches) {
  MakeFakeGpus();
  NcclOptions options;
  options.device = gpu;
  options.stream_of = [](Stream& stream) { return static_cast<FakeStream&>(stream).get(); };
  options.watches = watches;
  return options;
}

absl::Status SyncFakeStream(cudaStream_t stream, cuda::StreamWatches& watches) {
  absl::Status status;
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    status.Update(watches.Poll());
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return status;
}

std::unique_ptr<CollectiveBackend> CreateSyncedNcclBackend(int gpu, std::unique_ptr<CollectiveBackend> host,
                                                           NcclOptions options) {
  auto watches = std::make_shared<cuda::StreamWatches>();
  const NcclOptions fake = FakeNcclOptions(gpu, watches.get());
  options.device = gpu;
  options.stream_of = fake.stream_of;
  options.watches = fake.watches;
  auto backend = CreateNcclBackend(std::move(options), std::move(host));
  TP_CHECK(backend.ok());
  return std::make_unique<SyncedBackend>(gpu, std::move(watches), *std::move(backend));
}

}  // namespace tp::worker
