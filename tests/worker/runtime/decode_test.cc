#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/forwarding_device.h"
#include "tests/support/model_builders.h"
#include "tests/support/runtime_cluster.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kVocabulary = 41;

Submission SmallDecoder(int degree) {
  Submission submission = DecoderSubmission({.layers = 2, .vocabulary = kVocabulary}, degree);
  submission.seed = 5;
  return submission;
}

JoinSequence Join(uint64_t id, int max_new_tokens) { return {id, {}, max_new_tokens, {}}; }

// Greedy tokens by running the whole text through the plain forward for each.
std::vector<int64_t> ByForward(RuntimeCluster& cluster, std::vector<int64_t> ids, int count) {
  std::vector<int64_t> chosen;
  for (int i = 0; i < count; ++i) {
    const auto time = static_cast<int64_t>(ids.size());
    const ClusterAnswer answer = cluster.Forward("decoder", {{"ids", MakeHostTensor<int64_t>({1, time}, ids)}});
    EXPECT_EQ(answer.status, absl::OkStatus());
    if (!answer.status.ok()) return chosen;
    const float* row = answer.outputs.at("logits").data<float>() + (time - 1) * kVocabulary;
    ids.push_back(std::max_element(row, row + kVocabulary) - row);
    chosen.push_back(ids.back());
  }
  return chosen;
}

// All ranks gave the same sequences; those of rank 0.
std::vector<SequenceTokens> Same(const ClusterAnswer& answer) {
  EXPECT_EQ(answer.status, absl::OkStatus());
  for (const Ack& ack : answer.acks) EXPECT_EQ(ack.decode.sequences, answer.acks[0].decode.sequences);
  return answer.acks[0].decode.sequences;
}

class DecodeAtDegree : public ::testing::TestWithParam<int> {
 protected:
  DecodeAtDegree() : cluster_(GetParam()) {
    EXPECT_EQ(cluster_.Connect(), absl::OkStatus());
    EXPECT_EQ(cluster_.Load(SmallDecoder(GetParam()), 12), absl::OkStatus());
  }
  RuntimeCluster cluster_;
};
INSTANTIATE_TEST_SUITE_P(Degrees, DecodeAtDegree, ::testing::Values(1, 2, 4, 8));

TEST_P(DecodeAtDegree, EqualsRepeatedForward) {
  const std::vector<int64_t> prompt{3, 17, 40, 0, 8};
  const std::vector<int64_t> expected = ByForward(cluster_, prompt, 14);  // over a page's edge
  std::vector<int64_t> got;
  std::vector<SequenceTokens> first = Same(cluster_.Decode({"decoder", 8, {}, {Join(1, 14)}, {{1, prompt, true}}, {}}));
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].finish_reason, "");
  EXPECT_THAT(first[0].token_ids, SizeIs(8));
  std::vector<SequenceTokens> second = Same(cluster_.Decode({"decoder", 8, {}, {}, {}, {}}));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].finish_reason, "length");
  got = first[0].token_ids;
  got.insert(got.end(), second[0].token_ids.begin(), second[0].token_ids.end());
  EXPECT_EQ(got, expected);
  EXPECT_THAT(Same(cluster_.Decode({"decoder", 4, {}, {}, {}, {}})), IsEmpty());
}

TEST_P(DecodeAtDegree, TwoSequencesAndPiecesOfAPromptDoNotDisturbEachOther) {
  const std::vector<int64_t> a{1, 2, 3};
  std::vector<int64_t> b;
  for (int64_t i = 0; i < 20; ++i) b.push_back(i * 7 % kVocabulary);
  const std::vector<int64_t> want_a = ByForward(cluster_, a, 9), want_b = ByForward(cluster_, b, 4);
  std::map<uint64_t, std::vector<int64_t>> got;
  auto take = [&](const ClusterAnswer& answer) {
    for (const SequenceTokens& sequence : Same(answer)) {
      got[sequence.sequence_id].insert(got[sequence.sequence_id].end(), sequence.token_ids.begin(),
                                       sequence.token_ids.end());
    }
  };
  take(cluster_.Decode({"decoder", 2, {}, {Join(1, 9)}, {{1, a, true}}, {}}));
  // b comes in two pieces while a goes on.
  take(cluster_.Decode({"decoder", 2, {}, {Join(2, 4)}, {{2, {b.begin(), b.begin() + 13}, false}}, {}}));
  EXPECT_FALSE(got.contains(2));
  take(cluster_.Decode({"decoder", 3, {}, {}, {{2, {b.begin() + 13, b.end()}, true}}, {}}));
  take(cluster_.Decode({"decoder", 8, {}, {}, {}, {}}));
  EXPECT_EQ(got[1], want_a);
  EXPECT_EQ(got[2], want_b);
}

TEST_P(DecodeAtDegree, ASequenceThatLeavesFreesItsPagesAndTheOtherGoesOn) {
  const std::vector<int64_t> want = ByForward(cluster_, {5, 6}, 6);
  std::vector<int64_t> long_prompt(100, 9);
  // 12 pages: the long one takes 7 and the other 1.
  ASSERT_EQ(
      cluster_.Decode({"decoder", 1, {}, {Join(1, 50), Join(2, 6)}, {{1, long_prompt, true}, {2, {5, 6}, true}}, {}})
          .status,
      absl::OkStatus());
  // Two commands in flight; the second still names the one that left. A new one of 7 pages fits again.
  cluster_.Send([](int) { return Decode{"decoder", 2, {}, {}, {}, {1}}; });
  cluster_.Send([&](int) {
    return Decode{"decoder", 3, {}, {Join(3, 1)}, {{3, long_prompt, true}, {1, {4}, true}}, {1}};
  });
  const std::vector<SequenceTokens> one = Same(cluster_.Collect()), two = Same(cluster_.Collect());
  ASSERT_THAT(one, SizeIs(1));
  EXPECT_THAT(one[0].token_ids, ElementsAre(want[1], want[2]));
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_EQ(two[0].sequence_id, 2u);
  EXPECT_THAT(two[0].token_ids, ElementsAre(want[3], want[4], want[5]));
  EXPECT_EQ(two[0].finish_reason, "length");
  EXPECT_EQ(two[1].sequence_id, 3u);
  EXPECT_THAT(two[1].token_ids, SizeIs(1));
}

TEST_P(DecodeAtDegree, StopsAfterAStopIdWhichIsReturned) {
  const std::vector<int64_t> tokens = ByForward(cluster_, {5, 6, 7}, 6);
  size_t at = 1;  // the first token that is not there before
  while (at < tokens.size() && std::count(tokens.begin(), tokens.begin() + static_cast<int64_t>(at), tokens[at]) > 0) {
    ++at;
  }
  ASSERT_LT(at, tokens.size());
  JoinSequence join = Join(1, 50);
  join.stop_ids = {kVocabulary + 5, tokens[at]};
  const auto got = Same(cluster_.Decode({"decoder", 8, {}, {join}, {{1, {5, 6, 7}, true}}, {}}));
  ASSERT_THAT(got, SizeIs(1));
  EXPECT_EQ(got[0].finish_reason, "stop");
  EXPECT_EQ(got[0].token_ids, std::vector<int64_t>(tokens.begin(), tokens.begin() + static_cast<int64_t>(at) + 1));
}

TEST_P(DecodeAtDegree, SampledTokensAreEqualOnAllRanksAndRepeat) {
  JoinSequence join = Join(1, 8);
  join.sampling = {.temperature = 1.5, .top_k = 20, .top_p = 0.95, .seed = 77};
  const auto first = Same(cluster_.Decode({"decoder", 8, {}, {join}, {{1, {1}, true}}, {}}));
  join.sequence_id = 2;
  const auto second = Same(cluster_.Decode({"decoder", 8, {}, {join}, {{2, {1}, true}}, {}}));
  ASSERT_THAT(first, SizeIs(1));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(first[0].token_ids, second[0].token_ids);
}

TEST_P(DecodeAtDegree, TooFewPagesEndTheSequencesAndFreeAll) {
  std::vector<int64_t> prompt(13 * 16, 1);  // 13 pages of 12
  EXPECT_EQ(cluster_.Decode({"decoder", 1, {}, {Join(1, 5)}, {{1, prompt, true}}, {}}).status.code(),
            absl::StatusCode::kResourceExhausted);
  prompt.resize(12 * 16 - 1);
  EXPECT_THAT(Same(cluster_.Decode({"decoder", 1, {}, {Join(2, 1)}, {{2, prompt, true}}, {}})), SizeIs(1));
}

TEST_P(DecodeAtDegree, RefusesPiecesThatDoNotFit) {
  EXPECT_EQ(cluster_.Decode({"decoder", 9, {}, {}, {}, {}}).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster_.Decode({"decoder", 1, {}, {Join(1, 5)}, {{1, {}, true}}, {}}).status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster_.Decode({"decoder", 1, {}, {Join(2, 5)}, {{2, {1}, true}, {2, {1}, true}}, {}}).status.code(),
            absl::StatusCode::kInvalidArgument);
  const auto none = Same(cluster_.Decode({"decoder", 1, {}, {Join(3, 0)}, {{3, {1}, true}}, {}}));
  ASSERT_THAT(none, SizeIs(1));
  EXPECT_THAT(none[0].token_ids, IsEmpty());
  EXPECT_EQ(none[0].finish_reason, "length");
}

// Fails the n-th attention of one rank.
class FailingAttention : public ForwardingDevice {
 public:
  FailingAttention(std::unique_ptr<worker::Device> device, int at) : ForwardingDevice(std::move(device)), left_(at) {}
  absl::Status Attention(Stream& s, const worker::AttentionArguments& arguments) override {
    if (left_-- == 0) return absl::InternalError("attention broke");
    return ForwardingDevice::Attention(s, arguments);
  }

 private:
  int left_;
};

TEST(Decode, AFailureInTheMiddleEndsItsSequencesOnAllRanks) {
  // Two attentions a step: step 2 of the first command fails on rank 1.
  RuntimeCluster cluster(2, [](int rank, std::unique_ptr<worker::Device> device) -> std::unique_ptr<worker::Device> {
    if (rank != 1) return device;
    return std::make_unique<FailingAttention>(std::move(device), 5);
  });
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(SmallDecoder(2), 3), absl::OkStatus());
  const std::vector<int64_t> prompt(33, 4);  // all 3 pages
  const ClusterAnswer failed = cluster.Decode({"decoder", 6, {}, {Join(1, 20)}, {{1, prompt, true}}, {}});
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.status.message()), ::testing::HasSubstr("attention broke"));
  for (const Ack& ack : failed.acks) {
    EXPECT_EQ(ack.failed_rank, 1);
    EXPECT_THAT(ack.decode.sequences, IsEmpty());
  }
  // It is gone everywhere, and its pages are free.
  EXPECT_THAT(Same(cluster.Decode({"decoder", 2, {}, {}, {}, {}})), IsEmpty());
  EXPECT_THAT(Same(cluster.Decode({"decoder", 2, {}, {Join(2, 2)}, {{2, prompt, true}}, {}})), SizeIs(1));
}

TEST(Decode, AModelThatDoesNotGenerateIsRefused) {
  RuntimeCluster cluster(2);
  ASSERT_EQ(cluster.Connect(), absl::OkStatus());
  ASSERT_EQ(cluster.Load(MlpSubmission(4, 4, 2)), absl::OkStatus());
  EXPECT_EQ(cluster.Decode({"mlp", 1, {}, {}, {}, {}}).status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tp::testing
