#include <limits>

#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoreGenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    d.Join("a");
    d.Join("b");
    d.Deploy("m", 2, true);
  }
  absl::Status Refusal(GenerateRequested request) {
    request.call = ++call_;
    request.model = "m";
    d.Do(request);
    return ReplyTo<GenerateProgress>(d, call_).status;
  }
  const Decode& Last() { return std::get<Decode>(d.history["a"].back().kind); }
  // Both ranks answer their oldest command with these.
  void Answer(std::vector<SequenceTokens> tokens) {
    for (const char* id : {"a", "b"}) {
      d.AckOne(id, [&](const std::string&, const Command&, Ack* ack) { ack->decode.sequences = tokens; });
    }
  }
  Driver d;
  CallId call_ = 500;
};

TEST_F(CoreGenerateTest, BadRequestsAreRefused) {
  GenerateRequested good;
  good.token_ids = {1, 2};
  GenerateRequested bad = good;
  bad.token_ids = {};
  EXPECT_THAT(Text(Refusal(bad)), HasSubstr("INVALID_ARGUMENT: the prompt is empty"));
  bad.token_ids = {1, 257};
  EXPECT_EQ(Text(Refusal(bad)), "INVALID_ARGUMENT: prompt position 1: id 257 outside [0, 257)");
  bad.token_ids.assign(600, 1);
  EXPECT_EQ(Text(Refusal(bad)), "INVALID_ARGUMENT: prompt of 600 tokens, at most 511 fit");
  bad.token_ids.assign(500, 1);
  bad.max_new_tokens = 100;
  EXPECT_THAT(Text(Refusal(bad)), HasSubstr("prompt of 500 tokens and 100 new tokens pass the model's 512 positions"));
  for (double temperature : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    bad = good;
    bad.sampling.temperature = temperature;
    EXPECT_EQ(Refusal(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  bad = good;
  bad.sampling.top_k = -1;
  EXPECT_EQ(Refusal(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.sampling.top_p = 1.5;
  EXPECT_EQ(Refusal(bad).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(d.commands["a"], IsEmpty());
}

TEST_F(CoreGenerateTest, ModelWithoutGenerationIsRefused) {
  d.Deploy("plain", 2);
  d.Generate(1, "plain", 1, 1);
  EXPECT_EQ(Text(ReplyTo<GenerateProgress>(d, 1).status), "INVALID_ARGUMENT: model 'plain' is not a language model");
}

TEST_F(CoreGenerateTest, TokensAreSentAsTheyComeAndTheLastSaysWhy) {
  d.Generate(1, "m", 3, 4);
  ASSERT_THAT(d.commands["a"], SizeIs(2));
  ASSERT_THAT(d.commands["b"], SizeIs(2));
  const Decode first = std::get<Decode>(d.commands["a"][0].kind);
  ASSERT_THAT(first.joins, SizeIs(1));
  const uint64_t id = first.joins[0].sequence_id;
  EXPECT_THAT(first.joins[0].stop_ids, ElementsAre(256));
  EXPECT_EQ(first.joins[0].max_new_tokens, 4);
  Answer({{id, {10}, ""}});
  auto progress = d.Of<GenerateProgress>(d.all);
  ASSERT_THAT(progress, SizeIs(1));
  EXPECT_THAT(progress[0].token_ids, ElementsAre(10));
  EXPECT_FALSE(progress[0].done);
  Answer({{id, {11, 256}, "stop"}});
  progress = d.Of<GenerateProgress>(d.all);
  ASSERT_THAT(progress, SizeIs(2));
  EXPECT_THAT(progress[1].token_ids, ElementsAre(11, 256));
  EXPECT_EQ(progress[1].finish_reason, "stop");
  EXPECT_TRUE(progress[1].done);
  EXPECT_EQ(d.core.running_calls(), 0);
  d.AckAll();  // one more command was in flight
  EXPECT_THAT(d.commands["a"], IsEmpty());
  EXPECT_THAT(d.Of<GenerateProgress>(d.all), SizeIs(2));
}

TEST_F(CoreGenerateTest, ADrainingWorkerIsLetGoAfterTheLastToken) {
  d.Generate(1, "m", 3, 4);
  const uint64_t id = std::get<Decode>(d.commands["a"][0].kind).joins[0].sequence_id;
  d.Do(WorkerDraining{"a", d.incarnations["a"]});
  d.Generate(2, "m", 3, 4);
  EXPECT_THAT(Text(ReplyTo<GenerateProgress>(d, 2).status), HasSubstr("UNAVAILABLE: model 'm': rank 0 (worker a)"));
  Answer({{id, {10}, ""}});
  Answer({{id, {11, 256}, "stop"}});
  EXPECT_THAT(d.Of<LetWorkerGo>(d.all), IsEmpty());  // one more command is in flight
  d.AckAll();
  EXPECT_THAT(d.Of<LetWorkerGo>(d.all), SizeIs(1));
  EXPECT_THAT(d.Of<GenerateProgress>(d.all), SizeIs(3));
}

TEST_F(CoreGenerateTest, DefaultNumberOfTokensAndIgnoredEndTokens) {
  GenerateRequested request;
  request.call = 1;
  request.model = "m";
  request.token_ids.assign(400, 1);
  request.ignore_eos = true;
  d.Do(request);
  const JoinSequence join = std::get<Decode>(d.history["a"][1].kind).joins[0];
  EXPECT_EQ(join.max_new_tokens, 112);
  EXPECT_THAT(join.stop_ids, IsEmpty());
}

TEST_F(CoreGenerateTest, CancelledCallLeavesAndOthersGoOn) {
  d.Generate(1, "m", 3, 50);
  d.Generate(2, "m", 3, 50);
  const uint64_t first = std::get<Decode>(d.commands["a"][0].kind).joins[0].sequence_id;
  d.Do(CallCancelled{1});
  EXPECT_EQ(ReplyTo<GenerateProgress>(d, 1).status.code(), absl::StatusCode::kCancelled);
  Answer({{first, {9}, ""}});
  EXPECT_EQ(Replies<GenerateProgress>(d, 1), 1);
  EXPECT_THAT(Last().leaves, ElementsAre(first));
  ASSERT_THAT(Last().joins, SizeIs(1));
  const uint64_t second = Last().joins[0].sequence_id;
  Answer({});
  Answer({{second, {7}, ""}});
  EXPECT_THAT(ReplyTo<GenerateProgress>(d, 2).token_ids, ElementsAre(7));
}

TEST_F(CoreGenerateTest, RequestsWaitForPages) {
  CoreOptions options;
  options.cache_bytes = 2048 * 33;  // 33 pages: one sequence of 512 positions and one more page
  Driver small(options);
  small.Join("a");
  small.Join("b");
  small.Deploy("m", 2, true);
  small.Generate(1, "m", 500, 12);
  small.Generate(2, "m", 10, 20);
  small.AckAll([](const std::string&, const Command& command, Ack* ack) {
    const Decode& decode = std::get<Decode>(command.kind);
    for (const PrefillPiece& piece : decode.pieces) {
      if (piece.sequence_id == 1 && piece.last) ack->decode.sequences = {{1, {256}, "stop"}};
      if (piece.sequence_id == 2 && piece.last) ack->decode.sequences = {{2, {5}, "stop"}};
    }
  });
  EXPECT_EQ(ReplyTo<GenerateProgress>(small, 1).finish_reason, "stop");
  EXPECT_EQ(ReplyTo<GenerateProgress>(small, 2).finish_reason, "stop");
}

TEST_F(CoreGenerateTest, OtherTokensOnAnotherRankBreakTheMesh) {
  d.Generate(1, "m", 3, 4);
  d.AckOne("a", [](const std::string&, const Command&, Ack* ack) { ack->decode.sequences = {{1, {10}, ""}}; });
  d.AckOne("b", [](const std::string&, const Command&, Ack* ack) { ack->decode.sequences = {{1, {11}, ""}}; });
  const absl::Status status = ReplyTo<GenerateProgress>(d, 1).status;
  EXPECT_EQ(Text(status), "INTERNAL: rank 1 (worker b) chose other tokens than rank 0 (worker a)");
  EXPECT_EQ(d.Phase("m"), "FAILED");
  EXPECT_THAT(d.Of<SendAbort>(d.all), SizeIs(2));
}

TEST_F(CoreGenerateTest, LostWorkerEndsGenerationsAndDeleteCancelsThem) {
  d.Generate(1, "m", 3, 4);
  d.Lose("b", "killed");
  EXPECT_EQ(Text(ReplyTo<GenerateProgress>(d, 1).status), "UNAVAILABLE: rank 1 (worker b) was lost: killed");
  d.Join("b");
  d.Deploy("n", 2, true);
  d.Generate(2, "n", 3, 4);
  d.Do(DeleteRequested{3, "", "n"});
  EXPECT_EQ(Text(ReplyTo<GenerateProgress>(d, 2).status), "CANCELLED: model 'n' was deleted");
}

TEST_F(CoreGenerateTest, FailedDecodeEndsItsSequencesAndTheModelGoesOn) {
  d.Generate(1, "m", 3, 4);
  for (const char* id : {"a", "b"}) {
    d.AckOne(id, [](const std::string&, const Command&, Ack* ack) { ack->status = absl::InternalError("bad step"); });
  }
  EXPECT_EQ(ReplyTo<GenerateProgress>(d, 1).status.code(), absl::StatusCode::kInternal);
  d.AckAll();
  d.Generate(2, "m", 3, 4);
  EXPECT_EQ(Last().model, "m");
  EXPECT_EQ(d.Phase("m"), "READY");
}

TEST_F(CoreGenerateTest, DeadlineEndsAGeneration) {
  GenerateRequested request;
  request.call = 1;
  request.model = "m";
  request.token_ids = {1};
  request.deadline = d.now + absl::Seconds(1);
  d.Do(request);
  d.Pass(absl::Seconds(1));
  EXPECT_EQ(ReplyTo<GenerateProgress>(d, 1).status.code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace tp::server
