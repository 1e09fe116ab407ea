// The CUDA device, its host code and kernels compiled as C++ over the fakes of CUDA's libraries, against the suite of
// every Device; and what only it promises.
#include "worker/device/cuda/cuda_device.h"

#include <fake_runtime.h>

#include <cstdlib>

#include "tests/contract/device_contract.h"
#include "tests/contract/device_contract_attention.h"
#include "tests/contract/device_contract_binary.h"
#include "tests/contract/device_contract_elementwise.h"
#include "tests/contract/device_contract_index.h"
#include "tests/contract/device_contract_linear.h"
#include "tests/contract/device_contract_memory.h"
#include "tests/contract/device_contract_products.h"
#include "tests/contract/device_contract_reduce.h"
#include "tests/contract/device_contract_rows.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using worker::CreateCudaDevice;
using worker::CudaDevice;
using worker::SequenceSpan;

absl::StatusOr<std::unique_ptr<Device>> Create() {
  tp_fake::Reset(1);
  return CreateCudaDevice({.ordinal = 0});
}

const auto kDevices = ::testing::Values(DeviceFactory{"CudaOverFakes", Create});
const auto kName = [](const ::testing::TestParamInfo<DeviceFactory>& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Cuda, LinearContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Cuda, AttentionContract, kDevices, kName);
INSTANTIATE_TEST_SUITE_P(Cuda, ProductContract, kDevices, kName);

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tp_fake::Reset(1);
    device_ = *CreateCudaDevice({.ordinal = 0});
    stream_ = device_->CreateStream();
  }
  // Two floats on the device.
  std::unique_ptr<DeviceBuffer> Put(float a, float b) {
    auto buffer = *device_->Allocate(8);
    const float values[2] = {a, b};
    EXPECT_TRUE(device_->CopyToDevice(*stream_, values, buffer->data(), 8).ok());
    return buffer;
  }
  std::vector<float> Get(DeviceBuffer& buffer) {
    std::vector<float> values(2);
    EXPECT_TRUE(device_->CopyToHost(*stream_, buffer.data(), values.data(), 8).ok());
    EXPECT_TRUE(device_->Synchronize(*stream_).ok());
    return values;
  }
  absl::Status Double(DeviceBuffer& in, DeviceBuffer& out) {
    return device_->Scale(*stream_, {DType::kF32, in.data(), {2}}, 2, {DType::kF32, out.data(), {2}});
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_THAT(device_->Describe(), ::testing::MatchesRegex("cuda:0 \\(.+, sm_[0-9]+, CUDA [0-9]+\\.[0-9]+, .+\\)"));
  EXPECT_EQ(device_->ordinal(), 0);
  EXPECT_GT(device_->memory_limit_bytes(), 0);
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsRefused) {
  absl::Status status = CreateCudaDevice({.ordinal = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "cuda:1 is not there: this host has 1 GPU");
  tp_fake::Reset(0);
  status = CreateCudaDevice({.ordinal = 0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "cuda:0 is not there: this host has 0 GPUs");
}

TEST_F(CudaDeviceTest, ItsMemoryLimitNamesTheBytes) {
  EXPECT_EQ(CreateCudaDevice({.ordinal = 0, .memory_limit_bytes = 1000}).status().code(),
            absl::StatusCode::kResourceExhausted);  // cuBLASLt's workspace alone is 32 MiB
  auto small = *CreateCudaDevice({.ordinal = 0, .memory_limit_bytes = (int64_t{32} << 20) + 1000});
  auto held = *small->Allocate(600);
  const absl::Status status = small->Allocate(401).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "memory_limit_bytes: 401 bytes asked for, 33555032 in use, limit 33555432");
  held.reset();
  EXPECT_TRUE(small->Allocate(1000).ok());
}

TEST_F(CudaDeviceTest, ShortMemoryIsToldAndPasses) {
  tp_fake::FailNext("cudaMallocAsync", cudaErrorMemoryAllocation, 0);
  const absl::Status status = device_->Allocate(100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no memory for 100 bytes: cudaErrorMemoryAllocation"));
  EXPECT_TRUE(device_->Allocate(100).ok());
}

TEST_F(CudaDeviceTest, AStreamThatCouldNotBeMadeIsTriedAgain) {
  for (const char* call : {"cudaStreamCreateWithFlags", "cudaHostAlloc", "cudaEventCreateWithFlags"}) {
    auto stream = device_->CreateStream();
    tp_fake::FailNext(call, cudaErrorMemoryAllocation, 0);
    EXPECT_EQ(device_->Synchronize(*stream).code(), absl::StatusCode::kResourceExhausted) << call;
    EXPECT_TRUE(device_->Synchronize(*stream).ok()) << call;
  }
}

// Host memory may change as soon as a copy to the device returned; memory given back is not reused before its work.
TEST_F(CudaDeviceTest, BuffersAndHostMemoryMayGoWhileWorkIsUnderWay) {
  tp_fake::Hang();
  auto out = *device_->Allocate(8);
  {
    auto in = Put(1, 2);
    ASSERT_TRUE(Double(*in, *out).ok());
  }
  tp_fake::Resume();
  EXPECT_THAT(Get(*out), ElementsAre(2, 4));
}

TEST_F(CudaDeviceTest, LongCopiesGoThroughPinnedPieces) {
  std::vector<int64_t> numbers(3 << 20);  // 24 MiB
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 7919);
  const auto bytes = static_cast<int64_t>(numbers.size() * sizeof(int64_t));
  auto buffer = *device_->Allocate(bytes);
  ASSERT_TRUE(device_->CopyToDevice(*stream_, numbers.data(), buffer->data(), bytes).ok());
  std::vector<int64_t> back(numbers.size());
  ASSERT_TRUE(device_->CopyToHost(*stream_, buffer->data(), back.data(), bytes).ok());
  ASSERT_TRUE(device_->Synchronize(*stream_).ok());
  EXPECT_EQ(back, numbers);
}

TEST_F(CudaDeviceTest, AFaultOfAKernelIsToldAndStays) {
  auto in = Put(1, 2);
  tp_fake::SetSticky(cudaErrorIllegalAddress);
  absl::Status status = Double(*in, *in);
  if (status.ok()) status = device_->Synchronize(*stream_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_FALSE(device_->Synchronize(*stream_).ok());
  tp_fake::Reset(1);
}

TEST_F(CudaDeviceTest, WrongIdsAreToldOnce) {
  auto ids = *device_->Allocate(16);
  const int64_t values[2] = {1, 9};
  ASSERT_TRUE(device_->CopyToDevice(*stream_, values, ids->data(), 16).ok());
  auto table = Put(3, 4);
  auto out = Put(0, 0);
  ASSERT_TRUE(device_
                  ->Embedding(*stream_, {DType::kI64, ids->data(), {2}}, {DType::kF32, table->data(), {2, 1}}, 0, 2,
                              {DType::kF32, out->data(), {2, 1}})
                  .ok());
  const absl::Status status = device_->Synchronize(*stream_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "id 9 at position 1 outside [0, 2)");
  EXPECT_TRUE(device_->Synchronize(*stream_).ok());
}

class Watch : public worker::cuda::StreamWatch {
 public:
  absl::Status Poll() override {
    if (++polls < 3) return absl::OkStatus();
    tp_fake::Resume();  // the work is taken off
    return absl::AbortedError("a peer is gone");
  }
  int polls = 0;
};

TEST_F(CudaDeviceTest, AWatchEndsAWaitThatWouldNot) {
  Watch watch;
  device_->watches().Add(&watch);
  auto in = Put(1, 2);
  tp_fake::Hang();
  ASSERT_TRUE(Double(*in, *in).ok());
  const absl::Status status = device_->Synchronize(*stream_);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "a peer is gone");
  EXPECT_EQ(watch.polls, 3);
  device_->watches().Remove(&watch);
  EXPECT_THAT(Get(*in), ElementsAre(2, 4));
}

TEST_F(CudaDeviceTest, ARecordedStepRunsAgain) {
  auto in = Put(1, 3);
  auto out = Put(0, 0);
  ASSERT_TRUE(Double(*in, *out).ok());
  EXPECT_THAT(Get(*out), ElementsAre(2, 6));
  ASSERT_TRUE(device_->BeginGraph(*stream_, {}, 64).ok());
  ASSERT_TRUE(Double(*in, *out).ok());
  ASSERT_TRUE(Double(*out, *out).ok());
  EXPECT_FALSE(device_->Synchronize(*stream_).ok());
  EXPECT_FALSE(device_->CopyToDevice(*stream_, "12345678", in->data(), 8).ok());
  auto graph = device_->EndGraph(*stream_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(Get(*out), ElementsAre(2, 6));  // nothing ran
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(device_->RunGraph(*stream_, **graph, {}).ok());
  EXPECT_THAT(Get(*out), ElementsAre(4, 12));
  in = Put(5, 7);  // another buffer: the recorded one is that of the recording
  EXPECT_EQ(tp_fake::CallsOf("cudaGraphLaunch"), 3);
}

TEST_F(CudaDeviceTest, ARecordingThatFailsLeavesTheStreamUsable) {
  auto in = Put(1, 3);
  ASSERT_TRUE(device_->BeginGraph(*stream_, {}, 64).ok());
  tp_fake::FailNext("cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, 0);
  ASSERT_TRUE(Double(*in, *in).ok());
  EXPECT_FALSE(device_->EndGraph(*stream_).ok());
  tp_fake::Reset(1);
  auto again = *CreateCudaDevice({.ordinal = 0});
  EXPECT_TRUE(again->Allocate(8).ok());
}

// Memory that is given back while a stream records is freed after it.
TEST_F(CudaDeviceTest, MemoryGivenBackDuringARecordingWaits) {
  auto in = Put(1, 3);
  auto spare = *device_->Allocate(8);
  ASSERT_TRUE(device_->BeginGraph(*stream_, {}, 64).ok());
  const int frees = tp_fake::CallsOf("cudaFreeAsync");
  spare.reset();
  EXPECT_EQ(tp_fake::CallsOf("cudaFreeAsync"), frees);
  ASSERT_TRUE(Double(*in, *in).ok());
  const auto graph = device_->EndGraph(*stream_);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(tp_fake::CallsOf("cudaFreeAsync"), frees + 1);
}

// One recorded attention serves other lengths and pages.
TEST_F(CudaDeviceTest, ARecordedAttentionReadsTheSequencesOfEachRun) {
  const int64_t head = 4, pages = 8;
  auto cache_memory = *device_->Allocate(pages * 2 * 16 * head * 4);
  ASSERT_TRUE(device_->FillZero(*stream_, cache_memory->data(), cache_memory->size()).ok());
  const worker::PagedCache cache{DType::kF32, cache_memory->data(), pages, 1, head};
  auto rows = *device_->Allocate(3 * head * 4);  // query, key, value of one token
  auto out = *device_->Allocate(head * 4);
  worker::AttentionArguments arguments;
  auto at = [&](int i) {
    return ConstTensorView(DType::kF32, static_cast<char*>(rows->data()) + i * head * 4, {1, 1, head});
  };
  arguments.query = at(0);
  arguments.key = at(1);
  arguments.value = at(2);
  arguments.output = {DType::kF32, out->data(), {1, 1, head}};
  arguments.cache = &cache;
  arguments.scale = 0;  // every position counts alike: the mean of the values so far
  std::unique_ptr<worker::DeviceGraph> graph;
  double sum = 0;
  for (int64_t past = 0; past < 40; ++past) {
    const auto value = static_cast<float>(past * past);
    std::vector<float> token(12, 1);
    std::fill(token.begin() + 8, token.end(), value);
    ASSERT_TRUE(device_->CopyToDevice(*stream_, token.data(), rows->data(), 48).ok());
    SequenceSpan span{0, 1, past, {5}};
    if (past >= 16) span.pages.push_back(2);
    if (past >= 32) span.pages.push_back(7);
    if (past == 1) {
      arguments.sequences = {&span, 1};
      ASSERT_TRUE(device_->BeginGraph(*stream_, {&span, 1}, 64).ok());
      ASSERT_TRUE(device_->Attention(*stream_, arguments).ok());
      auto recorded = device_->EndGraph(*stream_);
      ASSERT_TRUE(recorded.ok()) << recorded.status();
      graph = *std::move(recorded);
    }
    if (graph == nullptr) {
      arguments.sequences = {&span, 1};
      ASSERT_TRUE(device_->Attention(*stream_, arguments).ok());
    } else {
      ASSERT_TRUE(device_->RunGraph(*stream_, *graph, {&span, 1}).ok());
    }
    std::vector<float> mean(4);
    ASSERT_TRUE(device_->CopyToHost(*stream_, out->data(), mean.data(), 16).ok());
    ASSERT_TRUE(device_->Synchronize(*stream_).ok());
    sum += value;
    EXPECT_NEAR(mean[0], sum / static_cast<double>(past + 1), 1e-3 * (1 + sum)) << past;
  }
  SequenceSpan longer{0, 1, 64, {5, 2, 7, 1, 0}};
  EXPECT_FALSE(device_->RunGraph(*stream_, *graph, {&longer, 1}).ok());
}

}  // namespace
}  // namespace tp::testing
