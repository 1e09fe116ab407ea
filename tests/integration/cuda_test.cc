// The demo model on GPU workers, whose CUDA libraries are fakes over host memory: the programs, the backend's host
// code, its kernels and NCCL's communicators are those of a GPU. Values are those of the float64 references.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cluster.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<std::string> Fakes(int devices) {
  return {absl::StrCat("TP_CUDA_MODULE=", TP_CUDA_OVER_FAKES), absl::StrCat("TP_FAKE_CUDA_DEVICES=", devices)};
}

// Of the logits of the first prompt from the float64 reference.
double LargestDifference(const Cluster& cluster, const std::string& model) {
  auto reference = ReadSafetensors(Source("deploy/demo/kjv/reference.safetensors"));
  TP_CHECK(reference.ok());
  const HostTensor &ids = reference->at("ids_0"), &want = reference->at("logits_0");
  const std::vector<int64_t> list(ids.data<int64_t>(), ids.data<int64_t>() + ElementCount(ids.shape));
  TemporaryFolder folder;
  const std::string out = folder.path() + "/logits.safetensors";
  const CommandResult forward =
      cluster.Tpctl({"forward", model, "--input", absl::StrCat("ids=", absl::StrJoin(list, ",")), "--output", out});
  EXPECT_EQ(forward.code, 0) << forward.err;
  auto outputs = ReadSafetensors(out);
  TP_CHECK(outputs.ok());
  const HostTensor got = ConvertTo(outputs->at("logits"), DType::kF64), expected = ConvertTo(want, DType::kF64);
  TP_CHECK(ElementCount(got.shape) == ElementCount(expected.shape));
  double largest = 0;
  for (int64_t i = 0; i < ElementCount(got.shape); ++i) {
    largest = std::max(largest, std::fabs(got.data<double>()[i] - expected.data<double>()[i]));
  }
  return largest;
}

void ExpectReference(const Cluster& cluster, int tp) {
  const std::string model = cluster.SubmitDemo(tp, "F32");
  const nlohmann::json one = nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")))["cases"][0];
  const CommandResult text = cluster.Tpctl({"generate", model, "--prompt", one["prompt"], "--max-new-tokens", "64",
                                            "--ignore-eos", "--output-format", "json"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.json()["token_ids"], one["greedy"]);

  EXPECT_LT(LargestDifference(cluster, model), 1e-3);
}

class CudaAtDegree : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(CudaAtDegree, TheDemoModelEqualsItsReference) {
  const auto [degree, graphs] = GetParam();
  std::vector<std::string> flags{"--device", "cuda"};
  if (!graphs) flags.push_back("--worker-flag=--no-graphs");
  Cluster cluster(degree, flags, Fakes(degree));
  const nlohmann::json workers = cluster.Tpctl({"workers", "--output-format", "json"}).json()["workers"];
  ASSERT_EQ(workers.size(), static_cast<size_t>(degree));
  for (const auto& worker : workers) {
    EXPECT_THAT(worker["device"].get<std::string>(), MatchesRegex("cuda:[0-9] \\(.*\\)"));
  }
  ExpectReference(cluster, degree);
}
INSTANTIATE_TEST_SUITE_P(Degrees, CudaAtDegree,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Values(true, false)),
                         [](const auto& info) {
                           return absl::StrCat("Tp", std::get<0>(info.param),
                                               std::get<1>(info.param) ? "Graphs" : "Calls");
                         });

TEST(Cuda, ComputesInBF16UnlessTheSubmissionSaysOtherwise) {
  Cluster cluster(2, {"--device", "cuda"}, Fakes(2));
  const std::string model = cluster.SubmitDemo(2);
  const nlohmann::json description = cluster.Tpctl({"describe", model, "--output-format", "json"}).json();
  for (const auto& parameter : description["parameters"]) EXPECT_EQ(parameter["dtype"], "BF16") << parameter["name"];
  EXPECT_LT(LargestDifference(cluster, model), 0.5);  // of logits up to about 20
  EXPECT_EQ(cluster.Tpctl({"verify", model}).code, 0);
}

// Other meshes of the same GPUs come and go while a model generates: its waits are not theirs.
TEST(Cuda, MeshesThatShareGpusDoNotDisturbEachOther) {
  Cluster cluster(3, {"--device", "cuda"}, Fakes(3));
  const std::string model = cluster.SubmitDemo(2, "F32");
  const nlohmann::json one = nlohmann::json::parse(std::ifstream(Source("deploy/demo/kjv/reference.json")))["cases"][0];
  std::vector<std::unique_ptr<Process>> generations;
  for (int i = 0; i < 2; ++i) {
    generations.push_back(std::make_unique<Process>(
        std::vector<std::string>{Program("tpctl"), "--server", cluster.server(), "generate", model, "--prompt",
                                 one["prompt"], "--max-new-tokens", "400", "--ignore-eos", "--output-format", "json"}));
  }
  for (int round = 0; round < 3; ++round) {  // a language model in BF16, over all three
    const CommandResult submitted =
        cluster.Tpctl({"submit", Source("deploy/demo/tiny_lm.textproto"), "--name", "other", "--mesh", "tp=1"});
    ASSERT_EQ(submitted.code, 0) << submitted.err;
    const CommandResult generated = cluster.Tpctl({"generate", "other", "--prompt", "a", "--max-new-tokens", "20"});
    EXPECT_EQ(generated.code, 0) << generated.err;
    const CommandResult wide =
        cluster.Tpctl({"submit", Source("deploy/demo/mlp.textproto"), "--name", "wide", "--mesh", "tp=3"});
    ASSERT_EQ(wide.code, 0) << wide.err;
    EXPECT_EQ(cluster.Tpctl({"delete", "wide"}).code, 0);
    EXPECT_EQ(cluster.Tpctl({"delete", "other"}).code, 0);
  }
  for (const auto& generation : generations) {
    const CommandResult result = generation->Wait();
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<int64_t> tokens = result.json()["token_ids"], greedy = one["greedy"];
    EXPECT_TRUE(std::equal(greedy.begin(), greedy.end(), tokens.begin()));
  }
}

TEST(Cuda, AWorkerWithoutItsGpuSaysSo) {
  const CommandResult none =
      RunCommand({Program("tp-worker"), "--server", "127.0.0.1:1", "--device", "cuda:0"}, Fakes(0));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err,
              HasSubstr("tp-worker: FAILED_PRECONDITION: --device cuda:0: cuda:0 is not there: this host has 0 GPUs"));
  const CommandResult module = RunCommand({Program("tp-worker"), "--server", "127.0.0.1:1", "--device", "cuda:0",
                                           "--cuda-module", "/nowhere/libtp_cuda.so"});
  EXPECT_EQ(module.code, 1);
  EXPECT_THAT(module.err, HasSubstr("--device cuda:0: can't be loaded: /nowhere/libtp_cuda.so"));
  for (const std::string wrong : {"cuda", "cuda:01", "cuda:+1", "cuda:-1", "cuda:"}) {
    const CommandResult name = RunCommand({Program("tp-worker"), "--server", "127.0.0.1:1", "--device", wrong});
    EXPECT_EQ(name.code, 1);
    EXPECT_THAT(name.err, HasSubstr("--device " + wrong + ": must be cpu or cuda:N"));
  }
}

TEST(Cuda, TwoWorkersOnOneGpuAreRefusedByName) {
  Cluster cluster(1, {"--device", "cuda"}, Fakes(1));
  Process second({Program("tp-worker"), "--server", cluster.server(), "--id", "twin", "--device", "cuda:0"}, Fakes(1));
  ASSERT_TRUE(Eventually([&] {
    return cluster.Tpctl({"workers", "--output-format", "json"}).json()["workers"].size() == 2;
  }));
  const CommandResult mesh = cluster.Tpctl({"mesh", "create", "pair", "tp=2", "--workers", "worker-0,twin"});
  EXPECT_EQ(mesh.code, 1);
  EXPECT_THAT(mesh.err, HasSubstr("FAILED_PRECONDITION: workers 'worker-0' and 'twin' are on one GPU: cuda:0 ("));
  const CommandResult any = cluster.Tpctl({"mesh", "create", "pair", "tp=2"});
  EXPECT_EQ(any.code, 1);
  EXPECT_THAT(any.err, HasSubstr("needs 2 workers, 2 are healthy, on 1 device"));
}

// A rank that dies ends the epoch for its peers, which serve again with another one.
TEST(Cuda, ALostRankIsToldAndTheOthersGoOn) {
  Cluster cluster(3, {"--device", "cuda"}, Fakes(3));
  const std::string model = cluster.SubmitDemo(2, "F32");
  const std::vector<std::string> ranks = cluster.WorkersOf(model);
  Process generation({Program("tpctl"), "--server", cluster.server(), "generate", model, "--prompt", "And God said",
                      "--max-new-tokens", "480", "--ignore-eos"});
  kill(cluster.WorkerPid(ranks[1]), SIGKILL);
  const CommandResult lost = generation.Wait();
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, HasSubstr(ranks[1]));
  EXPECT_EQ(cluster.Tpctl({"delete", model}).code, 0);
  ExpectReference(cluster, 2);
}

}  // namespace
}  // namespace tp::testing
