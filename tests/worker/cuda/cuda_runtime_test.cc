// Worker runtimes on CUDA devices with NCCL, both over fakes of the libraries: the same answers as on the CPU, with
// recorded decode steps and without, and an epoch that ends where a rank hangs.
#include <fake_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"
#include "worker/collective/nccl/nccl_backend.h"
#include "worker/device/cuda/cuda_device.h"

namespace tp::testing {
namespace {

using ::testing::SizeIs;
using worker::CollectiveBackend;
using worker::CudaDevice;
using worker::Device;

constexpr int64_t kVocabulary = 41;

std::unique_ptr<Device> Gpu(int rank, std::unique_ptr<Device>) {
  auto device = worker::CreateCudaDevice({.ordinal = rank});
  TP_CHECK(device.ok());
  return *std::move(device);
}
std::unique_ptr<CollectiveBackend> Nccl(int rank, Device& device, std::unique_ptr<CollectiveBackend> host) {
  auto backend = worker::CreateNcclBackend(
      {.device = rank, .stream_of = worker::StreamHandle, .watches = &static_cast<CudaDevice&>(device).watches()},
      std::move(host));
  TP_CHECK(backend.ok());
  return *std::move(backend);
}

Submission Decoder(int degree) {
  Submission submission = DecoderSubmission({.layers = 2, .vocabulary = kVocabulary}, degree);
  submission.seed = 5;
  return submission;
}

struct Answers {
  std::vector<float> logits;
  std::vector<std::vector<int64_t>> greedy;
  std::vector<int64_t> sampled;
};

std::vector<int64_t> TokensOf(const ClusterAnswer& answer, uint64_t id) {
  EXPECT_EQ(answer.status, absl::OkStatus());
  std::vector<int64_t> tokens;
  for (const Ack& ack : answer.acks) EXPECT_EQ(ack.decode.sequences, answer.acks[0].decode.sequences);
  for (const SequenceTokens& sequence : answer.acks[0].decode.sequences) {
    if (sequence.sequence_id == id) tokens = sequence.token_ids;
  }
  return tokens;
}

// A forward; two sequences that grow over pages' edges; a sampled one.
Answers AnswersOf(RuntimeCluster& cluster, int degree) {
  Answers answers;
  EXPECT_EQ(cluster.Connect(), absl::OkStatus());
  EXPECT_EQ(cluster.Load(Decoder(degree), 40), absl::OkStatus());
  const ClusterAnswer forward =
      cluster.Forward("decoder", {{"ids", MakeHostTensor<int64_t>({2, 3}, {1, 40, 7, 3, 3, 0})}});
  EXPECT_EQ(forward.status, absl::OkStatus());
  if (!forward.status.ok()) return answers;
  const HostTensor& logits = forward.outputs.at("logits");
  answers.logits.assign(logits.data<float>(), logits.data<float>() + ElementCount(logits.shape));
  answers.greedy.resize(2);
  std::vector<int64_t> longer;
  for (int64_t i = 0; i < 20; ++i) longer.push_back(i * 7 % kVocabulary);
  Decode decode{"decoder", 8, {}, {{1, {}, 48, {}}, {2, {}, 48, {}}}, {{1, {3, 17, 40}, true}, {2, longer, true}}, {}};
  for (int round = 0; round < 6; ++round) {
    const ClusterAnswer answer = cluster.Decode(decode);
    for (uint64_t id : {1, 2}) {
      const std::vector<int64_t> tokens = TokensOf(answer, id);
      answers.greedy[id - 1].insert(answers.greedy[id - 1].end(), tokens.begin(), tokens.end());
    }
    decode = {"decoder", 8, {}, {}, {}, {}};
  }
  decode.joins = {{3, {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 4}, 8, {}}};
  decode.pieces = {{3, {5, 6}, true}};
  answers.sampled = TokensOf(cluster.Decode(decode), 3);
  return answers;
}

class CudaRuntime : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Degrees, CudaRuntime, ::testing::Values(1, 2, 4));

TEST_P(CudaRuntime, AnswersAsTheCpuWithGraphsAndWithout) {
  const int degree = GetParam();
  Answers cpu;
  {
    RuntimeCluster cluster(degree);
    cpu = AnswersOf(cluster, degree);
  }
  ASSERT_THAT(cpu.greedy[0], SizeIs(48));
  ASSERT_THAT(cpu.sampled, SizeIs(8));
  worker::CollectiveTally calls[2];
  for (const bool graphs : {true, false}) {
    tp_fake::Reset(degree);
    worker::CollectiveCounters counters;
    worker::WorkerRuntimeOptions options;
    options.graphs = graphs;
    options.counters = &counters;
    RuntimeCluster cluster(degree, Gpu, options, Nccl);
    const Answers gpu = AnswersOf(cluster, degree);
    EXPECT_EQ(gpu.greedy, cpu.greedy) << graphs;
    EXPECT_EQ(gpu.sampled, cpu.sampled) << graphs;
    ASSERT_EQ(gpu.logits.size(), cpu.logits.size());
    for (size_t i = 0; i < cpu.logits.size(); ++i) EXPECT_NEAR(gpu.logits[i], cpu.logits[i], 1e-4) << i;
    if (graphs) {
      // The first step of each kind runs call by call, the second is recorded.
      EXPECT_GT(tp_fake::CallsOf("cudaGraphLaunch"), 30 * degree);
    } else {
      EXPECT_EQ(tp_fake::CallsOf("cudaGraphLaunch"), 0);
    }
    calls[graphs ? 1 : 0] = counters.Read();
  }
  // Recorded collectives are counted each time they run.
  EXPECT_EQ(calls[1].calls, calls[0].calls);
  EXPECT_EQ(calls[1].bytes, calls[0].bytes);
}

}  // namespace
}  // namespace tp::testing
