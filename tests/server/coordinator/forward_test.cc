#include "server/coordinator/forward_inputs.h"
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class CoreForwardTest : public ::testing::Test {
 protected:
  void Start(int workers, CoreOptions options = {}) {
    d = std::make_unique<Driver>(options);
    for (int i = 0; i < workers; ++i) d->Join(std::string(1, static_cast<char>('a' + i)));
    d->Deploy("m", workers);
  }
  absl::Status Refusal(ForwardRequested request) {
    request.call = ++call_;
    if (request.model.empty()) request.model = "m";
    d->Do(request);
    return ReplyTo<ForwardReply>(*d, call_).status;
  }
  std::unique_ptr<Driver> d;
  CallId call_ = 500;
};

TEST_F(CoreForwardTest, EachRankGetsItsUnevenBlock) {
  Start(4);  // 10 columns over 4 ranks: 3 3 3 1
  d->Forward(1, "m", 2);
  const std::vector<std::vector<float>> expected = {
      {0, 1, 2, 10, 11, 12}, {3, 4, 5, 13, 14, 15}, {6, 7, 8, 16, 17, 18}, {9, 19}};
  for (int rank = 0; rank < 4; ++rank) {
    const tp::Run& run = std::get<tp::Run>(d->commands[std::string(1, static_cast<char>('a' + rank))].back().kind);
    ASSERT_THAT(run.inputs, SizeIs(2));
    EXPECT_EQ(run.inputs[0].name, "x");
    EXPECT_EQ(run.inputs[0].global_shape, (Shape{2, 10}));
    EXPECT_EQ(run.inputs[0].stage_id, 0u);
    EXPECT_EQ(Floats(run.inputs[0].data), expected[rank]);
    EXPECT_EQ(run.inputs[1].data.size(), 2u * 4 * 8);
  }
}

TEST(CutBlockTest, BlocksOfSeveralRunsAndEmptyOnes) {
  const Mesh mesh = *Mesh::Create({{"tp", 2}});
  const HostTensor tensor = MakeHostTensor<float>({7, 1}, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Floats(*CutBlock(tensor, {Placement::StridedShard(0, 2)}, mesh, {0})), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(Floats(*CutBlock(tensor, {Placement::StridedShard(0, 2)}, mesh, {1})), ElementsAre(2, 3, 6));
  EXPECT_THAT(*CutBlock(tensor, {Placement::Shard(1)}, mesh, {1}), IsEmpty());
  EXPECT_EQ(CutBlock(tensor, {Placement::Partial()}, mesh, {1}).status().code(), absl::StatusCode::kUnimplemented);
  const HostTensor scalar = MakeHostTensor<float>({}, {3});
  EXPECT_THAT(Floats(*CutBlock(scalar, {Placement::Replicate()}, mesh, {1})), ElementsAre(3));
}

TEST_F(CoreForwardTest, BadInputsAreRefusedBeforeDispatch) {
  Start(1);
  ForwardRequested request;
  request.inputs = d->Inputs(1);
  ForwardRequested other = request;
  other.model = "n";
  EXPECT_EQ(Text(Refusal(other)), "NOT_FOUND: no model 'n'; nearest: m");
  other = request;
  other.inputs.erase("x");
  EXPECT_EQ(Text(Refusal(other)), "INVALID_ARGUMENT: input 'x' (F32[batch, 10]) is missing");
  other = request;
  other.inputs["idz"] = other.inputs["ids"];
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("input 'idz': the model has no such input; nearest: ids"));
  other = request;
  other.inputs["x"].dtype = DType::kI32;
  EXPECT_EQ(Text(Refusal(other)), "INVALID_ARGUMENT: input 'x': is I32, expected F32[batch, 10]");
  other = request;
  other.inputs["x"].bytes.pop_back();
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("expected 40 bytes, got 39"));
  other = request;
  other.inputs["x"] = MakeHostTensor<float>({1, 9}, std::vector<float>(9));
  EXPECT_EQ(Refusal(other).code(), absl::StatusCode::kInvalidArgument);
  other = request;
  other.inputs["ids"] = MakeHostTensor<int64_t>({1, 4}, {0, 256, 1, 300});
  EXPECT_EQ(Text(Refusal(other)), "INVALID_ARGUMENT: input 'ids' position [0, 3]: id 300 outside [0, 257)");
  other.inputs["ids"] = MakeHostTensor<int64_t>({1, 4}, {0, -1, 1, 300});
  EXPECT_EQ(Text(Refusal(other)), "INVALID_ARGUMENT: input 'ids' position [0, 1]: id -1 outside [0, 257)");
  EXPECT_THAT(d->commands["a"], IsEmpty());
  EXPECT_EQ(d->core.running_calls(), 0);
}

TEST_F(CoreForwardTest, AnswerIsMadeOfTheOwnersBlocks) {
  Start(2);
  d->Forward(1, "m", 1);
  d->AckAll([](const std::string& worker, const Command&, Ack* ack) {
    ResultBlock block;
    block.output = "y";
    block.global_shape = {1, 10};
    block.shape = {1, 5};
    block.offset = {0, worker == "a" ? 0 : 5};
    block.streamed = worker == "b";
    if (worker == "a") block.data = std::string(20, 'a');
    ack->run.blocks = {block};
    ack->run.collectives = {{"fc", "all_reduce", "tp", worker == "a" ? 8 : 6, ""}};
    ack->run.wire_bytes = worker == "a" ? 1 : 2;
    ack->run.duration_us = worker == "a" ? 4 : 3;
  });
  const ForwardReply reply = ReplyTo<ForwardReply>(*d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  ASSERT_THAT(reply.outputs, SizeIs(1));
  EXPECT_EQ(reply.outputs[0].shape, (Shape{1, 10}));
  ASSERT_THAT(reply.blocks, SizeIs(2));
  EXPECT_EQ(reply.blocks[0].data, std::string(20, 'a'));
  EXPECT_EQ(reply.blocks[0].transfer_id, 0u);
  EXPECT_EQ(reply.blocks[1].offset, (Shape{0, 5}));
  EXPECT_EQ(reply.blocks[1].transfer_id, std::get<tp::Run>(d->history["b"].back().kind).transfer_id);
  EXPECT_EQ(reply.blocks[1].size_bytes, 20);
  ASSERT_THAT(reply.collectives, SizeIs(1));
  EXPECT_EQ(reply.collectives[0].bytes, 8);
  EXPECT_EQ(reply.wire_bytes, 2);
  EXPECT_EQ(reply.duration_us, 4);
  const auto forgotten = d->Of<CancelTransfer>(d->all);
  ASSERT_THAT(forgotten, SizeIs(1));  // rank 0 streams nothing
  EXPECT_EQ(forgotten[0].transfer_id, std::get<tp::Run>(d->history["a"].back().kind).transfer_id);
}

TEST_F(CoreForwardTest, LargeInputsAreStagedBeforeTheRunIsAppended) {
  Start(2);
  d->Forward(1, "m", 3000);  // 3000 * 5 * 4 and 3000 * 4 * 8 bytes a rank
  const auto offers = d->Of<OfferTransfer>(d->last);
  ASSERT_THAT(offers, SizeIs(4));
  EXPECT_EQ(offers[0].bytes->size(), 60000u);
  ASSERT_THAT(d->stages, SizeIs(4));
  EXPECT_EQ(std::get<StageReceive>(d->stages[0].second.kind).size_bytes, 60000);
  EXPECT_EQ(std::get<StageReceive>(d->stages[0].second.kind).transfer_id, offers[0].transfer_id);
  const uint64_t stage = d->stages[0].second.stage_id;
  EXPECT_THAT(d->commands["a"], IsEmpty());
  d->FinishStages();
  ASSERT_THAT(d->commands["a"], SizeIs(1));
  const tp::Run& run = std::get<tp::Run>(d->commands["a"][0].kind);
  EXPECT_EQ(run.inputs[0].stage_id, stage);
  EXPECT_THAT(run.inputs[0].data, IsEmpty());
  d->AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(*d, 1).status.ok());
}

TEST_F(CoreForwardTest, InputThatCannotBeReceivedFailsTheCallAlone) {
  Start(1);
  d->Forward(1, "m", 3000);
  d->FinishStage("a", d->stages[1].second, absl::UnavailableError("cut"));
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(*d, 1).status), "UNAVAILABLE: rank 0 (worker a): cut");
  EXPECT_THAT(d->Of<SendDrop>(d->all), SizeIs(2));
  EXPECT_THAT(d->Of<CancelTransfer>(d->all), SizeIs(2));
  d->Forward(2, "m", 1);
  d->AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(*d, 2).status.ok());
}

TEST_F(CoreForwardTest, AtMostSomeRunInFlightTheOthersWaitInOrderAndTheQueueHasALimit) {
  CoreOptions options;
  options.max_runs_in_flight = 2;
  options.max_queued_requests = 4;
  Start(1, options);
  for (CallId call = 1; call <= 5; ++call) d->Forward(call, "m", 1);
  EXPECT_THAT(d->commands["a"], SizeIs(2));
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(*d, 5).status), HasSubstr("RESOURCE_EXHAUSTED: max_queued_requests"));
  d->Do(CallCancelled{3});
  EXPECT_EQ(ReplyTo<ForwardReply>(*d, 3).status.code(), absl::StatusCode::kCancelled);
  d->AckOne("a");
  EXPECT_TRUE(ReplyTo<ForwardReply>(*d, 1).status.ok());
  EXPECT_THAT(d->commands["a"], SizeIs(2));  // 2 and 4
  d->AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(*d, 4).status.ok());
}

TEST_F(CoreForwardTest, DeadlineIsAnsweredAtOnceAndTheLateResultIsDiscarded) {
  CoreOptions options;
  options.max_runs_in_flight = 1;
  Start(1, options);
  ForwardRequested request;
  request.call = 1;
  request.model = "m";
  request.inputs = d->Inputs(1);
  request.deadline = d->now + absl::Seconds(1);
  d->Do(request);
  d->Forward(2, "m", 1);
  d->Pass(absl::Seconds(1));
  EXPECT_EQ(ReplyTo<ForwardReply>(*d, 1).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(d->Of<CancelTransfer>(d->all), SizeIs(1));
  EXPECT_THAT(d->commands["a"], SizeIs(1));  // the second waits until the first has come back
  d->AckOne("a");
  EXPECT_EQ(Replies<ForwardReply>(*d, 1), 1);
  d->AckOne("a");
  EXPECT_TRUE(ReplyTo<ForwardReply>(*d, 2).status.ok());
}

TEST_F(CoreForwardTest, FailureOfAllRanksLeavesTheMeshUsable) {
  Start(2);
  d->Forward(1, "m", 1);
  d->AckAll([](const std::string&, const Command&, Ack* ack) {
    ack->status = absl::InvalidArgumentError("id 9 outside [0, 5)");
    ack->failed_rank = 1;
  });
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(*d, 1).status), "INVALID_ARGUMENT: rank 1 (worker b): id 9 outside [0, 5)");
  EXPECT_EQ(d->Phase("m"), "READY");
  d->Forward(2, "m", 1);
  d->AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(*d, 2).status.ok());
}

TEST_F(CoreForwardTest, FailureOfOneRankAloneIsADivergence) {
  Start(2);
  d->Forward(1, "m", 1);
  d->AckAll([](const std::string& worker, const Command&, Ack* ack) {
    if (worker == "b") ack->status = absl::InternalError("oops");
  });
  EXPECT_EQ(ReplyTo<ForwardReply>(*d, 1).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(d->Phase("m"), "FAILED");
}

TEST_F(CoreForwardTest, AProgramThatComesWithTheRequestRunsInPlaceOfTheModels) {
  Start(2);
  ForwardProgram program = SmallModel(2).program;
  program.outputs.push_back({"fc:output", 0});
  ForwardRequested request;
  request.call = 1;
  request.model = "m";
  request.inputs = d->Inputs(1);
  request.program = std::make_shared<const ForwardProgram>(program);
  request.base = d->core.models().at("m").submission;
  d->Do(request);
  for (const char* worker : {"a", "b"}) {
    EXPECT_EQ(std::get<tp::Run>(d->commands[worker].back().kind).program, request.program);
  }
  d->AckAll([](const std::string& worker, const Command&, Ack* ack) {
    ResultBlock block;
    block.output = "fc:output";
    block.global_shape = {1, 10};
    block.shape = {1, 5};
    block.offset = {0, worker == "a" ? 0 : 5};
    block.data = std::string(20, 'a');
    ack->run.blocks = {block};
  });
  const ForwardReply reply = ReplyTo<ForwardReply>(*d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  ASSERT_THAT(reply.outputs, SizeIs(2));
  EXPECT_EQ(reply.outputs[1].name, "fc:output");
  EXPECT_EQ(reply.outputs[1].shape, (Shape{1, 10}));
  ASSERT_THAT(reply.blocks, SizeIs(2));
  EXPECT_EQ(reply.blocks[0].output, 1u);
  d->Forward(2, "m", 1);
  EXPECT_EQ(std::get<tp::Run>(d->commands["a"].back().kind).program, nullptr);
}

TEST_F(CoreForwardTest, AProgramOfAnotherSubmissionIsRefused) {
  Start(1);
  ForwardRequested request;
  request.inputs = d->Inputs(1);
  request.program = std::make_shared<const ForwardProgram>(SmallModel(1).program);
  request.base = SubmissionOf("m");
  EXPECT_EQ(Text(Refusal(request)),
            "FAILED_PRECONDITION: model 'm' got another plan while its program was compiled: repeat the request");
  EXPECT_THAT(d->commands["a"], IsEmpty());
}

}  // namespace
}  // namespace tp::server
