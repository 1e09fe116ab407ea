// Sequence parallelism and batch axes on real worker runtimes (CPU device, in-process collectives): the forward against
// the simulation in float64, generation against repeated forwards and the demo model's reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/checkpoint/file.h"
#include "common/checkpoint/hugging_face.h"
#include "common/checkpoint/json.h"
#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

using ::testing::SizeIs;

const char kDemo[] = TP_SOURCE_DIR "/deploy/demo/kjv";

int RanksOf(const Submission& submission) {
  int ranks = 1;
  for (const MeshAxis& axis : submission.plan.mesh) ranks *= axis.size;
  return ranks;
}

std::vector<int64_t> SomeIds(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back((i * 37 + 11) % vocabulary);
  return ids;
}

SimTensor ToSim(const HostTensor& tensor) {
  SimTensor sim{tensor.shape, {}};
  const HostTensor wide = ConvertTo(tensor, DType::kF64);
  for (int64_t i = 0; i < ElementCount(tensor.shape); ++i) sim.values.push_back(wide.data<double>()[i]);
  return sim;
}

// The forward of `styled` equals `plain` on one rank, as simulated, and counts what the program promises.
void ExpectForward(Submission plain, const Submission& styled, const std::vector<HostTensor>& requests,
                   const std::string& input) {
  plain.plan = {};
  plain.plan.mesh = Tp(1);
  absl::StatusOr<CompiledModel> one = CompileForward(plain);
  ASSERT_TRUE(one.ok()) << one.status();
  RuntimeCluster cluster(RanksOf(styled));
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  CompiledModel compiled;
  ASSERT_EQ(cluster.Load(styled, 8, &compiled), absl::OkStatus());
  for (const HostTensor& request : requests) {
    const auto expected = Simulate(one->program, InitialStates(*one, styled.seed), {{input, ToSim(request)}});
    ASSERT_TRUE(expected.ok()) << expected.status();
    const ClusterAnswer answer = cluster.Forward(styled.name, {{input, request}});
    ASSERT_EQ(answer.status, absl::OkStatus()) << ShapeText(request.shape);
    for (const auto& [name, want] : expected->outputs) {
      const SimTensor got = ToSim(answer.outputs.at(name));
      ASSERT_EQ(got.shape, want.shape) << name;
      for (size_t i = 0; i < got.values.size(); ++i) {
        ASSERT_NEAR(got.values[i], want.values[i], 1e-4) << ShapeText(request.shape) << " element " << i;
      }
    }
    const auto planned = CollectivesOf(compiled.program, *BindInputs(compiled.program, {{input, request.shape}}));
    ASSERT_TRUE(planned.ok());
    for (const Ack& ack : answer.acks) EXPECT_EQ(ack.run.collectives, *planned);
  }
}

// CASES 5: a rowwise linear of one column; the other ranks are empty, add zeros, and the bias is added once.
TEST(StylesRuntimeTest, OneColumnOverMoreRanks) {
  const std::vector<HostTensor> requests = {MakeHostTensor<float>({2, 4}, {1, -2, 3, 0.5f, 0, 7, -1, 2}),
                                            MakeHostTensor<float>({0, 4}, {})};
  for (int degree : {2, 3}) ExpectForward(MlpSubmission(4, 1, 1), MlpSubmission(4, 1, degree), requests, "x");
}

// SEMANTICS 8, case 8; CASES 21.
TEST(SequenceRuntimeTest, EveryLengthEqualsOneRank) {
  const DecoderSize size{.layers = 1, .vocabulary = 31};
  std::vector<HostTensor> requests;
  for (int64_t length : {1, 3, 17, 64}) requests.push_back(MakeHostTensor<int64_t>({1, length}, SomeIds(length, 31)));
  requests.push_back(MakeHostTensor<int64_t>({2, 3}, SomeIds(6, 31)));
  for (int degree : {2, 4}) {
    ExpectForward(DecoderSubmission(size, 1), SequenceDecoderSubmission(size, degree), requests, "ids");
  }
}

TEST(BatchRuntimeTest, EachCoordinateRunsItsRows) {
  const DecoderSize size{.layers = 1, .vocabulary = 31};
  std::vector<HostTensor> requests;
  for (int64_t batch : {1, 2, 3}) requests.push_back(MakeHostTensor<int64_t>({batch, 5}, SomeIds(5 * batch, 31)));
  for (Submission styled : {DecoderSubmission(size, 2), SequenceDecoderSubmission(size, 2)}) {
    styled.plan.mesh = {{"dp", 2}, {"tp", 2}};
    styled.plan.batch_axes = {"dp"};
    ExpectForward(DecoderSubmission(size, 1), styled, requests, "ids");
  }
}

struct Reference {
  std::vector<int64_t> ids, greedy;
};
Reference FirstReference() {
  absl::StatusOr<std::string> text = ReadWholeFile(std::string(kDemo) + "/reference.json", 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  absl::StatusOr<Json> json = ParseJson(*text);
  EXPECT_TRUE(json.ok()) << json.status();
  const Json& first = json->Find("cases")->array()->at(0);
  Reference reference;
  for (const Json& id : *first.Find("ids")->array()) reference.ids.push_back(*id.integer());
  for (const Json& id : *first.Find("greedy")->array()) reference.greedy.push_back(*id.integer());
  return reference;
}

// One prompt in two pieces, then tokens one by one: the sequence is cut at every length of a step.
std::vector<int64_t> Generate(RuntimeCluster& cluster, const std::string& model, const std::vector<int64_t>& prompt,
                              int count) {
  std::vector<int64_t> tokens;
  auto take = [&](const ClusterAnswer& answer) {
    EXPECT_EQ(answer.status, absl::OkStatus());
    for (const Ack& ack : answer.acks) EXPECT_EQ(ack.decode.sequences, answer.acks[0].decode.sequences);
    for (const SequenceTokens& sequence : answer.acks[0].decode.sequences) {
      tokens.insert(tokens.end(), sequence.token_ids.begin(), sequence.token_ids.end());
    }
    return answer.status.ok();
  };
  const std::vector<int64_t> first(prompt.begin(), prompt.begin() + 3), rest(prompt.begin() + 3, prompt.end());
  if (!take(cluster.Decode({model, 1, {}, {{1, {}, count, {}}}, {{1, first, false}}, {}}))) return tokens;
  if (!take(cluster.Decode({model, 8, {}, {}, {{1, rest, true}}, {}}))) return tokens;
  while (static_cast<int>(tokens.size()) < count) {
    if (!take(cluster.Decode({model, 8, {}, {}, {}, {}}))) break;
  }
  return tokens;
}

// SEMANTICS 8, case 9, on the demo model, and its reference tokens.
TEST(SequenceRuntimeTest, DemoModelCountsItsCollectivesAndGeneratesTheReference) {
  const Reference reference = FirstReference();
  const int count = static_cast<int>(reference.greedy.size());
  ASSERT_GT(count, 8);
  for (int degree : {2, 4}) {
    ImportOptions options;
    options.degree = degree;
    options.sequence_parallel = true;
    absl::StatusOr<Submission> submission = ImportHuggingFace(kDemo, options);
    ASSERT_TRUE(submission.ok()) << submission.status();
    RuntimeCluster cluster(degree, nullptr, {.model_root = "/"});
    ASSERT_EQ(cluster.Connect(), absl::OkStatus());
    ASSERT_EQ(cluster.Load(*submission, 16), absl::OkStatus());
    const ClusterAnswer answer = cluster.Forward(
        submission->name,
        {{"ids", MakeHostTensor<int64_t>({1, static_cast<int64_t>(reference.ids.size())}, reference.ids)}});
    ASSERT_EQ(answer.status, absl::OkStatus());
    std::map<std::string, int> ops;
    for (const CollectiveRecord& record : answer.acks[0].run.collectives) ++ops[record.op];
    EXPECT_EQ(ops, (std::map<std::string, int>{{"reduce_scatter", 9}, {"all_gather", 9}}));
    EXPECT_EQ(Generate(cluster, submission->name, reference.ids, count), reference.greedy) << degree;
  }
}

TEST(BatchRuntimeTest, GenerationComputesCopies) {
  const Reference reference = FirstReference();
  absl::StatusOr<Submission> submission = ImportHuggingFace(kDemo, {});
  ASSERT_TRUE(submission.ok()) << submission.status();
  submission->plan.mesh = {{"dp", 2}, {"tp", 2}};
  submission->plan.batch_axes = {"dp"};
  RuntimeCluster cluster(4, nullptr, {.model_root = "/"});
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(*submission, 16), absl::OkStatus());
  const std::vector<int64_t> tokens = Generate(cluster, submission->name, reference.ids, 16);
  ASSERT_THAT(tokens, SizeIs(16));
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), reference.greedy.begin()));
}

}  // namespace
}  // namespace tp::testing
