// NCCL with one rank: the Communicator, whose calls have nothing to move but are made all the same, and the library's
// own calls as the Communicator makes them with more ranks.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <vector>

#include "absl/time/clock.h"
#include "common/base/status.h"
#include "tests/device/check.h"
#include "worker/collective/in_process/in_process_backend.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;
using worker::Communicator;
using worker::CudaDevice;
using worker::DeviceBuffer;
using worker::Stream;

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenGpu();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    stream_ = device_->CreateStream();
    auto backend = OpenNccl(*device_, worker::CreateInProcessBackend(worker::CreateInProcessHub()));
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  std::unique_ptr<Communicator> Connect() {
    auto connector = backend_->Listen(0, 1);
    EXPECT_TRUE(connector.ok()) << connector.status();
    if (!connector.ok()) return nullptr;
    auto communicator = (*connector)->Connect({(*connector)->Address()}, Soon());
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    return communicator.ok() ? *std::move(communicator) : nullptr;
  }
  absl::Status Done(absl::Status call) {
    call.Update(device_->Synchronize(*stream_));
    return call;
  }
  std::unique_ptr<DeviceBuffer> Put(const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    auto buffer = *device_->Allocate(bytes);
    EXPECT_TRUE(Done(device_->CopyToDevice(*stream_, values.data(), buffer->data(), bytes)).ok());
    return buffer;
  }
  std::vector<float> Get(DeviceBuffer& buffer, size_t count) {
    std::vector<float> values(count);
    const auto bytes = static_cast<int64_t>(count * sizeof(float));
    EXPECT_TRUE(Done(device_->CopyToHost(*stream_, buffer.data(), values.data(), bytes)).ok());
    return values;
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<worker::CollectiveBackend> backend_;
};

TEST_F(Nccl, EveryCollectiveOfOneRankGivesItsInput) {
  const std::unique_ptr<Communicator> comm = Connect();
  ASSERT_NE(comm, nullptr);
  const std::vector<std::vector<std::vector<int>>> partitions = {{{0}}};
  ASSERT_EQ(comm->PrepareGroups(partitions, Soon()), absl::OkStatus());
  for (const int64_t n : {0, 1, 7, 1000}) {
    SCOPED_TRACE(n);
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i) / 3 - 100);
    const auto count = static_cast<size_t>(n);
    const DType f32 = DType::kF32;
    const auto in = Put(values), out = Put(std::vector<float>(count, -1));
    const auto expect_moved = [&](const absl::Status& call, const char* what) {
      EXPECT_EQ(Done(call), absl::OkStatus()) << what;
      EXPECT_EQ(Get(*out, count), values) << what;
      EXPECT_EQ(Done(device_->FillZero(*stream_, out->data(), n * 4)), absl::OkStatus());
    };
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      ASSERT_EQ(Done(comm->AllReduce(*stream_, {0}, in->data(), n, f32, op, Soon())), absl::OkStatus());
      EXPECT_EQ(Get(*in, count), values);
      expect_moved(comm->ReduceScatter(*stream_, {0}, in->data(), {n}, out->data(), f32, op, Soon()), "reduce_scatter");
    }
    ASSERT_EQ(Done(comm->Broadcast(*stream_, {0}, 0, in->data(), n, f32, Soon())), absl::OkStatus());
    EXPECT_EQ(Get(*in, count), values);
    expect_moved(comm->AllGather(*stream_, {0}, in->data(), out->data(), {n}, f32, Soon()), "all_gather");
    expect_moved(comm->AllToAll(*stream_, {0}, in->data(), {n}, out->data(), {n}, f32, Soon()), "all_to_all");
    expect_moved(comm->Scatter(*stream_, {0}, 0, in->data(), {n}, out->data(), f32, Soon()), "scatter");
    expect_moved(comm->Gather(*stream_, {0}, 0, in->data(), out->data(), {n}, f32, Soon()), "gather");
    expect_moved(comm->SendReceive(*stream_, 0, in->data(), n, 0, out->data(), n, f32, Soon()), "send_receive");
  }
  EXPECT_EQ(comm->Barrier({0}, Soon()), absl::OkStatus());
  const worker::StepHeader mine{3, 0, 5, 7, 0, 0};
  const auto headers = comm->ExchangeHeaders({0}, mine, Soon());
  ASSERT_TRUE(headers.ok());
  EXPECT_EQ(*headers, std::vector<worker::StepHeader>{mine});
}

TEST_F(Nccl, AnAbortEndsTheEpochAndAnotherOneWorks) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::unique_ptr<Communicator> comm = Connect();
    ASSERT_NE(comm, nullptr);
    const auto data = Put({1, 2});
    ASSERT_EQ(Done(comm->AllReduce(*stream_, {0}, data->data(), 2, DType::kF32, ReduceOp::kSum, Soon())),
              absl::OkStatus());
    comm->Abort("told to");
    const absl::Status status = comm->AllReduce(*stream_, {0}, data->data(), 2, DType::kF32, ReduceOp::kSum, Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("told to"));
    (void)device_->Synchronize(*stream_);  // tells of the abort once
    EXPECT_EQ(Get(*data, 2), (std::vector<float>{1, 2}));
  }
}

// The library's calls on one rank: non-blocking communicators, split ones, grouped calls, in a graph, an abort.
class NcclLibrary : public Nccl {
 protected:
  void SetUp() override {
    Nccl::SetUp();
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    Settle(ncclCommInitRankConfig(&comm_, 1, id, 0, &config), comm_);
  }
  void TearDown() override {
    if (comm_ != nullptr) {
      EXPECT_EQ(ncclCommAbort(comm_), ncclSuccess);
    }
  }
  static void Settle(ncclResult_t code, ncclComm_t comm) {
    const absl::Time deadline = Soon();
    while (code == ncclInProgress && absl::Now() < deadline) ASSERT_EQ(ncclCommGetAsyncError(comm, &code), ncclSuccess);
    ASSERT_EQ(code, ncclSuccess) << ncclGetErrorString(code);
  }
  cudaStream_t handle() { return worker::StreamHandle(*stream_); }
  ncclComm_t comm_ = nullptr;
};

TEST_F(NcclLibrary, CollectivesGroupsAndSplits) {
  ncclComm_t split = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  Settle(ncclCommSplit(comm_, 0, 0, &split, &config), comm_);
  Settle(ncclInProgress, split);
  const std::vector<float> values = {1.5f, -2, 3};
  for (const ncclComm_t comm : {comm_, split}) {
    const auto in = Put(values), out = Put({0, 0, 0});
    Settle(ncclAllReduce(in->data(), out->data(), 3, ncclFloat, ncclSum, comm, handle()), comm);
    EXPECT_EQ(Get(*out, 3), values);
    const auto next = Put({0, 0, 0});
    Settle(ncclReduceScatter(out->data(), next->data(), 3, ncclFloat, ncclSum, comm, handle()), comm);
    EXPECT_EQ(Get(*next, 3), values);
    const auto gathered = Put({0, 0, 0});
    Settle(ncclAllGather(next->data(), gathered->data(), 3, ncclFloat, comm, handle()), comm);
    Settle(ncclBroadcast(gathered->data(), gathered->data(), 12, ncclUint8, 0, comm, handle()), comm);
    EXPECT_EQ(Get(*gathered, 3), values);
    const auto sent = Put({0, 0, 0});
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(ncclSend(gathered->data(), 12, ncclUint8, 0, comm, handle()), ncclSuccess);
    ASSERT_EQ(ncclRecv(sent->data(), 12, ncclUint8, 0, comm, handle()), ncclSuccess);
    Settle(ncclGroupEnd(), comm);
    EXPECT_EQ(Get(*sent, 3), values);
  }
  EXPECT_EQ(ncclCommAbort(split), ncclSuccess);
}

TEST_F(NcclLibrary, ACollectiveIsRecordedInAGraph) {
  const auto in = Put({1, 2}), out = Put({0, 0});
  // Once before, as the runtime does.
  Settle(ncclAllReduce(in->data(), out->data(), 2, ncclFloat, ncclSum, comm_, handle()), comm_);
  ASSERT_EQ(Done(absl::OkStatus()), absl::OkStatus());
  const float other[2] = {5, 6};
  ASSERT_EQ(device_->BeginGraph(*stream_, {}, 64), absl::OkStatus());
  Settle(ncclAllReduce(in->data(), out->data(), 2, ncclFloat, ncclSum, comm_, handle()), comm_);
  const auto graph = device_->EndGraph(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(device_->CopyToDevice(*stream_, other, in->data(), 8), absl::OkStatus());
  ASSERT_EQ(device_->RunGraph(*stream_, **graph, {}), absl::OkStatus());
  EXPECT_EQ(Get(*out, 2), (std::vector<float>{5, 6}));
}

}  // namespace
}  // namespace tp::testing
