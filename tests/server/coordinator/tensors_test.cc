// Creation, puts, deletion and memory of named tensors.
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status StatusOf(Driver& d, CallId call) { return ReplyTo<OperationReply>(d, call).status; }
const NamedPlacements kShard0 = {{"tp", Placement::Shard(0)}};

class CoreTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"a", "b"}) d.Join(id, 1000);
    d.MakeMesh("m", "tp=2");
  }
  PutTensorRequested Put(CallId call, const std::string& name, Shape shape, NamedPlacements placements) {
    PutTensorRequested request;
    request.head = d.Head(call);
    request.name = name;
    request.mesh = "m";
    request.shape = std::move(shape);
    request.placements = std::move(placements);
    return request;
  }
  // All that a finished or undone request may hold is free: memory, names, calls.
  void ExpectNothingLeft(Driver& driver) {
    EXPECT_EQ(driver.Reserved("a"), 0);
    EXPECT_EQ(driver.Reserved("b"), 0);
    EXPECT_THAT(driver.core.tensors(), IsEmpty());
    EXPECT_EQ(driver.core.running_calls(), 0);
  }
  Driver d;
};

TEST_F(CoreTensorsTest, RanksMakeTheirBlocksAndCommitThem) {
  CreateTensorRequested request = d.Creation(1, "t/u", "m", {5, 3}, kShard0);
  request.seed = 7;
  request.initializer.kind = Initializer::Kind::kOnes;
  d.Do(request);
  EXPECT_EQ(d.TensorPhaseOf("t/u"), "CREATING");
  EXPECT_EQ(d.Reserved("a"), 3 * 3 * 4);
  EXPECT_EQ(d.Reserved("b"), 2 * 3 * 4);
  const auto stages = d.Waiting<StageTensors>();
  ASSERT_THAT(stages, SizeIs(2));
  EXPECT_EQ(stages[1].second.rank, 1);
  EXPECT_EQ(stages[1].second.seed, 7u);
  ASSERT_THAT(stages[1].second.tensors, SizeIs(1));
  const NewTensor& block = stages[1].second.tensors[0];
  EXPECT_EQ(block.origin, NewTensor::Origin::kSource);
  EXPECT_EQ(block.state.path, "t/u");
  EXPECT_EQ(block.state.shape, (Shape{5, 3}));
  EXPECT_THAT(block.state.placements, ElementsAre(Placement::Shard(0)));
  EXPECT_EQ(block.state.source.initializer.kind, Initializer::Kind::kOnes);
  d.FinishStages();
  d.AckOne("a");
  EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
  d.AckOne("b");
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  ASSERT_THAT(reply.tensors, SizeIs(1));
  EXPECT_EQ(reply.tensors[0].phase, TensorPhase::kReady);
  EXPECT_EQ(d.TensorPhaseOf("t/u"), "READY");
}

TEST_F(CoreTensorsTest, BadRequestsAreRefusedWithTheirField) {
  d.MakeTensor("t", "m", {4}, {});
  const auto with = [&](std::function<void(CreateTensorRequested*)> change) {
    CreateTensorRequested request = d.Creation(0, "n", "m", {4}, {});
    change(&request);
    return request;
  };
  using R = CreateTensorRequested;
  const std::vector<std::pair<R, std::string>> cases = {
      {with([](R* r) { r->name = "t"; }), "ALREADY_EXISTS: name: tensor 't' exists"},
      {with([](R* r) { r->name = "/t"; }), "INVALID_ARGUMENT: name: '/t'"},
      {with([](R* r) { r->name = std::string(257, 'x'); }), "INVALID_ARGUMENT: name: 'x"},
      {with([](R* r) { r->mesh = "mm"; }), "NOT_FOUND: mesh: no mesh 'mm'; nearest: m"},
      {with([](R* r) {
         r->placements = {{"dp", {}}, {"zp", {}}};
       }),
       "INVALID_ARGUMENT: placements: axes not in mesh: {dp, zp}"},
      {with([](R* r) {
         r->placements = {{"tp", Placement::Shard(1)}};
       }),
       "INVALID_ARGUMENT: placements: "},
      {with([](R* r) {
         r->placements = {{"tp", Placement::InterleavedShard(0, {3})}};
       }),
       "INVALID_ARGUMENT: placements: "},
      {with([](R* r) {
         r->placements = {{"tp", Placement::Partial()}};
       }),
       "INVALID_ARGUMENT: placements: tp=P(sum): neither initializers nor files give terms"},
      {with([](R* r) {
         r->shape = {int64_t{1} << 40, int64_t{1} << 40};
       }),
       "INVALID_ARGUMENT: shape: "},
  };
  CallId call = 0;
  for (const auto& [request, text] : cases) {
    R sent = request;
    sent.head.call = ++call;
    d.Do(sent);
    EXPECT_THAT(Text(StatusOf(d, call)), HasSubstr(text));
  }
  EXPECT_THAT(d.stages, IsEmpty());
  EXPECT_EQ(d.Reserved("a"), 16);
}

TEST_F(CoreTensorsTest, OverTheWorkersMemoryIsRefusedNamingAllNumbers) {
  d.MakeTensor("t", "m", {100}, {});
  d.Do(d.Creation(1, "u", "m", {302}, kShard0));
  EXPECT_EQ(
      Text(StatusOf(d, 1)),
      "RESOURCE_EXHAUSTED: worker 'a' (rank 0): tensor 'u' needs 604 bytes beside 400 in use, its memory limit is "
      "1000");
  EXPECT_EQ(d.TensorPhaseOf("u"), "absent");
  EXPECT_EQ(d.Reserved("a"), 400);
  d.Do(DeleteTensorRequested{d.Head(2), "t"});
  d.AckAll();
  d.MakeTensor("u", "m", {300}, kShard0);
}

TEST_F(CoreTensorsTest, FailureInAnyStepOfACreationLeavesNothing) {
  for (int step = 0; step < 6; ++step) {
    SCOPED_TRACE(step);
    Driver e;
    e.Join("a");
    e.Join("b");
    e.MakeMesh("m", "tp=2");
    e.Do(e.Creation(1, "t", "m", {4}, kShard0));
    absl::StatusCode code = absl::StatusCode::kUnavailable;
    const auto full = [](const std::string&, const Command&, Ack* ack) {
      ack->status = absl::ResourceExhaustedError("full");
    };
    if (step == 0) {
      e.FinishStage("b", e.stages[1].second, absl::ResourceExhaustedError("no memory"));
      code = absl::StatusCode::kResourceExhausted;
    } else if (step == 1) {
      e.Lose("b");
    } else if (step == 2) {
      e.Do(CallCancelled{1});
      code = absl::StatusCode::kCancelled;
    } else if (step == 3) {
      e.FinishStages();
      e.AckOne("a");
      e.AckOne("b", full);
      code = absl::StatusCode::kResourceExhausted;
    } else if (step == 4) {
      e.FinishStages();
      e.Lose("b");
    } else {
      e.FinishStages();
      e.Do(CallCancelled{1});
      code = absl::StatusCode::kCancelled;
    }
    EXPECT_EQ(StatusOf(e, 1).code(), code) << StatusOf(e, 1);
    // A commit that was sent is followed by a drop.
    EXPECT_EQ(e.LastCommand<DropTensors>("a") != nullptr, step >= 3);
    EXPECT_THAT(e.Of<SendDrop>(e.all), Not(IsEmpty()));
    e.FinishStages();
    e.AckAll();
    ExpectNothingLeft(e);
    EXPECT_EQ(e.MeshPhase("m"), step == 1 || step == 4 ? "BROKEN" : "READY");
  }
}

TEST_F(CoreTensorsTest, RanksOfAPutReceiveTheirBlocksAndCommitOnceAllWasSent) {
  const auto actions = d.Do(Put(1, "t", {5, 3}, kShard0));
  const auto started = d.Of<PutStarted>(actions);
  ASSERT_THAT(started, SizeIs(1));
  ASSERT_THAT(started[0].targets, SizeIs(2));
  EXPECT_EQ(started[0].targets[1].worker, "b");
  EXPECT_EQ(started[0].targets[1].size_bytes, 2 * 3 * 4);
  const auto stages = d.Waiting<StageTensors>();
  ASSERT_THAT(stages, SizeIs(2));
  EXPECT_EQ(stages[1].second.tensors[0].origin, NewTensor::Origin::kTransfer);
  EXPECT_EQ(stages[1].second.tensors[0].transfer_id, started[0].targets[1].transfer_id);
  d.FinishStages();
  EXPECT_THAT(d.commands["a"], IsEmpty());  // the client may still send too much
  d.Do(PutSent{1});
  ASSERT_THAT(d.commands["a"], SizeIs(1));
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 1).ok());
  EXPECT_EQ(d.LastCommand<Broadcast>("a"), nullptr);
  EXPECT_EQ(d.TensorPhaseOf("t"), "READY");
}

TEST_F(CoreTensorsTest, EqualCopiesComeFromTheSourceRankByBroadcast) {
  PutTensorRequested request = Put(1, "t", {4}, {});
  request.src_data_rank = 1;
  const auto started = d.Of<PutStarted>(d.Do(request));
  ASSERT_THAT(started[0].targets, SizeIs(1));
  EXPECT_EQ(started[0].targets[0].rank, 1);
  EXPECT_EQ(d.Waiting<StageTensors>()[0].second.tensors[0].origin, NewTensor::Origin::kBroadcast);
  d.Do(PutSent{1});
  d.FinishStages();
  d.AckOne("a");
  d.AckOne("b");
  ASSERT_NE(d.LastCommand<Broadcast>("a"), nullptr);
  EXPECT_EQ(d.LastCommand<Broadcast>("a")->src_data_rank, 1);
  EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 1).ok());
  // Without a source rank all receive.
  request = Put(2, "u", {4}, {});
  request.no_src_data_rank = true;
  EXPECT_THAT(d.Of<PutStarted>(d.Do(request))[0].targets, SizeIs(2));
}

TEST_F(CoreTensorsTest, BlocksWithoutElementsAreNotSent) {
  const auto started = d.Of<PutStarted>(d.Do(Put(1, "t", {1, 3}, kShard0)));
  ASSERT_THAT(started[0].targets, SizeIs(1));
  EXPECT_EQ(d.Waiting<StageTensors>()[1].second.tensors[0].origin, NewTensor::Origin::kSource);
  EXPECT_THAT(d.Of<PutStarted>(d.Do(Put(2, "u", {0}, kShard0)))[0].targets, IsEmpty());
}

TEST_F(CoreTensorsTest, BadPutsAreRefusedBeforeTheirBytes) {
  PutTensorRequested partial = Put(1, "t", {4}, {{"tp", Placement::Partial()}});
  PutTensorRequested source = Put(2, "t", {4}, kShard0);
  source.src_data_rank = 2;
  PutTensorRequested locals = Put(3, "t", {5, 3}, kShard0);
  locals.locals = {{0, {2, 3}}, {1, {3, 3}}};
  PutTensorRequested twice = Put(4, "t", {5, 3}, kShard0);
  twice.locals = {{0, {3, 3}}, {0, {3, 3}}};
  PutTensorRequested missing = Put(5, "t", {5, 3}, kShard0);
  missing.locals = {{0, {3, 3}}};
  PutTensorRequested rank = Put(6, "t", {5, 3}, kShard0);
  rank.locals = {{2, {3, 3}}};
  const std::vector<std::pair<PutTensorRequested, std::string>> cases = {
      {partial, "placements: tp=P(sum): a global tensor has no terms; put takes P for local blocks"},
      {source, "src_data_rank: is 2; must be smaller than every axis, tp has 2 ranks"},
      {locals, "locals: "},
      {twice, "locals[1].rank: 0 is given twice"},
      {missing, "locals: rank 1 is missing; its block is [2, 3]"},
      {rank, "locals[0].rank: is 2; mesh tp=2 has ranks 0 to 1"},
  };
  for (const auto& [request, text] : cases) {
    d.Do(request);
    EXPECT_EQ(StatusOf(d, request.head.call).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Text(StatusOf(d, request.head.call)), HasSubstr(text));
  }
  EXPECT_THAT(d.Of<PutStarted>(d.all), IsEmpty());
  ExpectNothingLeft(d);
}

TEST_F(CoreTensorsTest, LocalBlocksTakePartialAndInferTheGlobalShape) {
  PutTensorRequested request = Put(1, "t", {}, {{"tp", Placement::Partial()}});
  request.locals = {{1, {2, 2}}, {0, {2, 2}}};
  request.infer_shape = true;
  const auto started = d.Of<PutStarted>(d.Do(request));
  ASSERT_THAT(started, SizeIs(1)) << StatusOf(d, 1);
  EXPECT_EQ(started[0].shape, (Shape{2, 2}));
  ASSERT_THAT(started[0].targets, SizeIs(2));
  EXPECT_EQ(started[0].targets[0].local, 1);
  EXPECT_EQ(started[0].targets[1].local, 0);
  EXPECT_NE(started[0].targets[0].copy_of, started[0].targets[1].copy_of);  // terms are no copies
  request = Put(2, "u", {}, kShard0);
  request.locals = {{0, {2, 2}}, {1, {2, 2}}};
  request.infer_shape = true;
  EXPECT_EQ(d.Of<PutStarted>(d.Do(request))[0].shape, (Shape{4, 2}));
  request = Put(3, "v", {2}, {});
  request.locals = {{0, {2}}, {1, {2}}};
  const auto copies = d.Of<PutStarted>(d.Do(request));
  EXPECT_EQ(copies[0].targets[1].copy_of, 0);
}

TEST_F(CoreTensorsTest, PutThatIsGivenUpAtAnyStepLeavesNothing) {
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    Driver e;
    e.Join("a");
    e.Join("b");
    e.MakeMesh("m", "tp=2");
    e.Do(Put(1, "t", {4}, {}));
    const uint64_t transfer = e.Of<PutStarted>(e.all)[0].targets[0].transfer_id;
    if (step == 1) e.FinishStages();
    if (step >= 2) e.Do(PutSent{1});
    if (step >= 3) e.FinishStages();
    if (step == 4) {
      e.AckOne("a");
      e.AckOne("b");
      ASSERT_NE(e.LastCommand<Broadcast>("a"), nullptr);
    }
    e.Do(CallCancelled{1});
    EXPECT_EQ(StatusOf(e, 1).code(), absl::StatusCode::kCancelled);
    const auto cancelled = e.Of<CancelTransfer>(e.all);
    ASSERT_THAT(cancelled, SizeIs(1));
    EXPECT_EQ(cancelled[0].transfer_id, transfer);
    e.FinishStages();
    e.AckAll();
    ExpectNothingLeft(e);
    EXPECT_EQ(e.MeshPhase("m"), "READY");
    e.MakeTensor("t", "m", {4}, {});
  }
}

TEST_F(CoreTensorsTest, SlowPutIsKeptWhileItsBytesMoveAndEndsWhereTheyStandStill) {
  d.Do(Put(1, "t", {4}, kShard0));
  for (int i = 0; i < 5; ++i) {
    d.Pass(absl::Seconds(20));
    d.Do(PutProgressed{1});
  }
  EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
  d.Pass(absl::Seconds(31));
  EXPECT_THAT(Text(StatusOf(d, 1)), HasSubstr("DEADLINE_EXCEEDED: rank 0 (worker a): receiving a tensor stands still"));
  d.AckAll();
  ExpectNothingLeft(d);
}

TEST_F(CoreTensorsTest, WorkerLostWhileItReceivesEndsThePut) {
  d.Do(Put(1, "t", {4}, kShard0));
  d.Lose("b", "killed");
  EXPECT_EQ(Text(StatusOf(d, 1)), "UNAVAILABLE: rank 1 (worker b) was lost: killed");
  d.AckAll();
  ExpectNothingLeft(d);
}

TEST_F(CoreTensorsTest, EqualRequestIdOfAPutWaitsForTheFirstAndGetsItsAnswer) {
  PutTensorRequested request = Put(1, "t", {4}, kShard0);
  request.head.request_id = "r";
  d.Do(request);
  request.head.call = 2;
  EXPECT_THAT(d.Of<PutStarted>(d.Do(request)), IsEmpty());
  d.Do(PutSent{1});
  d.FinishStages();
  d.AckAll();
  EXPECT_EQ(ReplyTo<OperationReply>(d, 2).tensors[0].name, "t");
  request.head.call = 3;
  d.Do(request);
  EXPECT_EQ(ReplyTo<OperationReply>(d, 3).tensors[0].name, "t");
  // Whose client leaves before its bytes are here ends it for all.
  request = Put(4, "u", {4}, kShard0);
  request.head.request_id = "s";
  d.Do(request);
  request.head.call = 5;
  d.Do(request);
  d.Do(CallCancelled{4});
  EXPECT_EQ(StatusOf(d, 5).code(), absl::StatusCode::kCancelled);
}

TEST_F(CoreTensorsTest, DeletionFreesAndUnknownNamesGetTheNearest) {
  d.MakeTensor("tensor", "m", {4}, kShard0);
  const uint64_t id = d.core.tensors().at("tensor").tensor_id;
  d.Do(DeleteTensorRequested{d.Head(1), "tenser"});
  EXPECT_EQ(Text(StatusOf(d, 1)), "NOT_FOUND: name: no tensor 'tenser'; nearest: tensor");
  d.Do(DeleteTensorRequested{d.Head(2), "tensor"});
  EXPECT_EQ(d.TensorPhaseOf("tensor"), "absent");
  EXPECT_EQ(d.Reserved("a"), 8);
  d.AckOne("a");
  EXPECT_EQ(Replies<OperationReply>(d, 2), 0);
  d.AckOne("b");
  EXPECT_TRUE(StatusOf(d, 2).ok());
  EXPECT_THAT(d.LastCommand<DropTensors>("b")->tensor_ids, ElementsAre(id));
  ExpectNothingLeft(d);
}

TEST_F(CoreTensorsTest, TensorThatIsBeingMadeCannotBeUsed) {
  d.Do(d.Creation(1, "t", "m", {4}, {}));
  d.Do(DeleteTensorRequested{d.Head(2), "t"});
  EXPECT_EQ(Text(StatusOf(d, 2)), "FAILED_PRECONDITION: name: tensor 't' is still being made");
  d.Do(d.Creation(3, "t", "m", {4}, {}));
  EXPECT_EQ(StatusOf(d, 3).code(), absl::StatusCode::kAlreadyExists);
  d.Do(DeleteMeshRequested{d.Head(4), "m"});
  EXPECT_EQ(StatusOf(d, 4).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoreTensorsTest, AbortedEpochBreaksTheMeshAndKeepsTheBlocks) {
  d.MakeTensor("t", "m", {4}, kShard0);
  d.Do(d.Creation(1, "u", "m", {4}, {}));
  d.FinishStages();
  d.AckOne("a", [](const std::string&, const Command&, Ack* ack) { ack->status = absl::AbortedError("peer"); });
  d.AckOne("b", [](const std::string&, const Command&, Ack* ack) { ack->status = absl::InternalError("cause"); });
  EXPECT_EQ(Text(StatusOf(d, 1)), "INTERNAL: rank 1 (worker b): cause");
  EXPECT_EQ(d.MeshPhase("m"), "BROKEN");
  EXPECT_EQ(d.TensorPhaseOf("t"), "READY");
  GetTensorRequested get;
  get.head = d.Head(2);
  get.name = "t";
  d.Do(get);
  d.FinishStages();
  EXPECT_TRUE(StatusOf(d, 2).ok());  // needs no communicator
  d.Do(GetFinished{2});
  d.Lose("b", "killed later");
  EXPECT_EQ(d.TensorPhaseOf("t"), "LOST");
}

}  // namespace
}  // namespace tp::server
