// Redistributes on one mesh and between meshes.
#include "server/coordinator/tensor_plan.h"
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status StatusOf(Driver& d, CallId call) { return ReplyTo<OperationReply>(d, call).status; }
const NamedPlacements kShard0 = {{"tp", Placement::Shard(0)}};
const NamedPlacements kShard1 = {{"tp", Placement::Shard(1)}};
const NamedPlacements kSum = {{"tp", Placement::Partial()}};

class CoreRedistributeTest : public ::testing::Test {
 protected:
  void SetUp() override { Prepare(&d); }
  static void Prepare(Driver* driver) {
    for (const char* id : {"a", "b", "c"}) driver->Join(id);
    driver->MakeMesh("m", "tp=2", {"a", "b"});
    driver->MakeMesh("n", "tp=2", {"b", "c"});
    driver->MakeTensor("t", "m", {4, 4}, kShard0);
  }
  static RedistributeTensorRequested Move(CallId call, NamedPlacements placements, const std::string& mesh = "",
                                          const std::string& as = "", const std::string& name = "t") {
    RedistributeTensorRequested request;
    request.head = {call, "", "digest"};
    request.name = name;
    request.mesh = mesh;
    request.placements = std::move(placements);
    request.as = as;
    return request;
  }
  static uint64_t IdOf(Driver& driver, const std::string& name) { return driver.core.tensors().at(name).tensor_id; }
  Driver d;
};

TEST_F(CoreRedistributeTest, ResultTakesTheNameAndTheSourceIsDropped) {
  const uint64_t source = IdOf(d, "t");
  d.Do(Move(1, kShard1));
  const Transform* transform = d.LastCommand<Transform>("a");
  ASSERT_NE(transform, nullptr);
  EXPECT_THAT(transform->inputs, ElementsAre(source));
  ASSERT_THAT(transform->outputs, SizeIs(1));
  ASSERT_THAT(transform->program->instructions, SizeIs(1));
  EXPECT_EQ(transform->program->instructions[0].step->op, RedistributeOp::kAllToAll);
  EXPECT_EQ(IdOf(d, "t"), source);  // until it is done
  const uint64_t result = transform->outputs[0];
  const auto counts = [](const std::string& worker, const Command& command, Ack* ack) {
    if (!std::holds_alternative<Transform>(command.kind)) return;
    ack->run.collectives = {{"", "all_to_all", "tp", worker == "a" ? 16 : 14, ""}};
    ack->run.wire_bytes = worker == "a" ? 20 : 30;
    ack->run.duration_us = 5;
  };
  d.AckOne("a", counts);
  d.AckOne("b", counts);
  EXPECT_THAT(d.LastCommand<DropTensors>("a")->tensor_ids, ElementsAre(source));
  d.AckAll();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_THAT(reply.steps, ElementsAre(StepCount{"all_to_all", "tp", 16}));
  EXPECT_THAT(reply.counted, ElementsAre(StepCount{"all_to_all", "tp", 16}));
  EXPECT_EQ(reply.wire_bytes, 30);
  EXPECT_EQ(reply.tensors[0].placements, (Placements{Placement::Shard(1)}));
  EXPECT_EQ(IdOf(d, "t"), result);
  EXPECT_EQ(d.Reserved("a"), 32);
}

TEST_F(CoreRedistributeTest, ResultUnderAnotherNameKeepsTheSource) {
  d.Do(Move(1, {{"tp", Placement::Replicate()}}, "", "u"));
  EXPECT_EQ(d.TensorPhaseOf("u"), "CREATING");
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 1).ok());
  EXPECT_EQ(d.TensorPhaseOf("u"), "READY");
  EXPECT_EQ(d.TensorPhaseOf("t"), "READY");
  EXPECT_NE(IdOf(d, "u"), IdOf(d, "t"));
  EXPECT_EQ(d.Reserved("a"), 32 + 64);
}

TEST_F(CoreRedistributeTest, LayoutThatIsThereAlreadyMovesNothing) {
  d.Do(Move(1, {}));  // an axis that is not named keeps its placement
  EXPECT_TRUE(StatusOf(d, 1).ok());
  EXPECT_THAT(ReplyTo<OperationReply>(d, 1).steps, IsEmpty());
  EXPECT_EQ(d.LastCommand<Transform>("a"), nullptr);
  d.Do(Move(2, {{"tp", Placement::Shard(-2)}}));  // the same, written otherwise
  EXPECT_TRUE(StatusOf(d, 2).ok());
  EXPECT_EQ(d.LastCommand<Transform>("a"), nullptr);
}

TEST_F(CoreRedistributeTest, RefusalsNameWhatIsWrong) {
  d.MakeTensor("x", "m", {4, 4}, {});
  const std::vector<std::pair<RedistributeTensorRequested, std::string>> cases = {
      {Move(1, kShard1, "", "", "tt"), "NOT_FOUND: name: no tensor 'tt'; nearest: "},
      {Move(2, kShard1, "mm"), "NOT_FOUND: mesh: no mesh 'mm'; nearest: "},
      {Move(3, kShard1, "", "x"), "ALREADY_EXISTS: as: tensor 'x' exists"},
      {Move(4, {{"dp", {}}}), "INVALID_ARGUMENT: placements: axes not in mesh: {dp}"},
      {Move(5, {{"tp", Placement::Shard(2)}}), "INVALID_ARGUMENT: placements: "},
      {Move(6, {{"tp", Placement::Partial(ReduceOp::kMax)}}), "INVALID_ARGUMENT: placements: "},
      {Move(7, {{"tp", Placement::Partial(ReduceOp::kProduct)}}, "", "", "x"), "INVALID_ARGUMENT: placements: "},
  };
  for (const auto& [request, text] : cases) {
    d.Do(request);
    EXPECT_THAT(Text(StatusOf(d, request.head.call)), HasSubstr(text));
  }
  EXPECT_EQ(d.TensorPhaseOf("t"), "READY");
  EXPECT_FALSE(d.core.tensors().at("t").moving);
}

TEST_F(CoreRedistributeTest, WhileItIsMovedATensorIsNeitherMovedNorDeleted) {
  d.Do(Move(1, kShard1));
  d.Do(Move(2, kShard1));
  EXPECT_EQ(Text(StatusOf(d, 2)), "FAILED_PRECONDITION: name: tensor 't' is being redistributed");
  d.Do(DeleteTensorRequested{d.Head(3), "t"});
  EXPECT_EQ(Text(StatusOf(d, 3)), "FAILED_PRECONDITION: name: tensor 't' is being redistributed");
  d.Do(DeleteMeshRequested{d.Head(4), "m"});
  EXPECT_EQ(StatusOf(d, 4).code(), absl::StatusCode::kFailedPrecondition);
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 1).ok());
  d.Do(DeleteTensorRequested{d.Head(5), "t"});
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 5).ok());
  EXPECT_EQ(d.Reserved("a"), 0);
}

TEST_F(CoreRedistributeTest, SourceThatIsDeletedMeanwhileIsDroppedAfter) {
  const uint64_t source = IdOf(d, "t");
  d.Do(Move(1, kShard1, "", "u"));
  d.Do(DeleteTensorRequested{d.Head(2), "t"});
  EXPECT_EQ(d.TensorPhaseOf("t"), "absent");
  EXPECT_EQ(d.LastCommand<DropTensors>("a"), nullptr);
  d.AckOne("a");
  d.AckOne("b");
  EXPECT_TRUE(StatusOf(d, 1).ok());
  EXPECT_THAT(d.LastCommand<DropTensors>("a")->tensor_ids, ElementsAre(source));
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 2).ok());
  EXPECT_EQ(d.TensorPhaseOf("u"), "READY");
}

TEST_F(CoreRedistributeTest, FailureLeavesTheTensorAsItWas) {
  const uint64_t source = IdOf(d, "t");
  d.Do(Move(1, kShard1));
  const uint64_t result = d.LastCommand<Transform>("a")->outputs[0];
  d.AckAll([](const std::string&, const Command& command, Ack* ack) {
    if (std::holds_alternative<Transform>(command.kind)) ack->status = absl::ResourceExhaustedError("full");
  });
  EXPECT_EQ(Text(StatusOf(d, 1)), "RESOURCE_EXHAUSTED: rank 0 (worker a): full");
  EXPECT_THAT(d.LastCommand<DropTensors>("a")->tensor_ids, ElementsAre(result));
  EXPECT_EQ(IdOf(d, "t"), source);
  EXPECT_FALSE(d.core.tensors().at("t").moving);
  EXPECT_EQ(d.Reserved("a"), 32);
  d.Do(Move(2, kShard1));
  d.Do(CallCancelled{2});
  EXPECT_EQ(StatusOf(d, 2).code(), absl::StatusCode::kCancelled);
  d.AckAll();
  EXPECT_EQ(IdOf(d, "t"), source);
  EXPECT_EQ(d.Reserved("a"), 32);
  d.Do(Move(3, kShard1));
  d.Lose("b", "killed");
  EXPECT_EQ(Text(StatusOf(d, 3)), "UNAVAILABLE: rank 1 (worker b) was lost: killed");
  EXPECT_EQ(d.TensorPhaseOf("t"), "LOST");
  d.AckAll();
  EXPECT_EQ(d.Reserved("a"), 32);
}

TEST_F(CoreRedistributeTest, OtherMeshIsReachedByALinkOverBothMeshesWorkers) {
  const uint64_t source = IdOf(d, "t");
  d.Do(Move(1, kShard1, "n"));
  EXPECT_THAT(d.Waiting<StageListen>(), SizeIs(3));
  d.FinishStages();
  for (const char* id : {"a", "b", "c"}) d.AckOne(id);  // the link's commit
  const Transfer* transfer = d.LastCommand<Transfer>("c");
  ASSERT_NE(transfer, nullptr);
  EXPECT_EQ(transfer->input, source);
  EXPECT_THAT(transfer->source_ranks, ElementsAre(0, 1));
  EXPECT_THAT(transfer->target_ranks, ElementsAre(1, 2));
  EXPECT_EQ(transfer->source, (Placements{Placement::Shard(0)}));
  EXPECT_EQ(transfer->target, (Placements{Placement::Shard(1)}));
  EXPECT_EQ(transfer->target_mesh_id, d.core.named_meshes().at("n").mesh_id);
  d.AckAll();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  // Rank 1 of n (worker c) has nothing of it: 4 rows of 2 F32. Rank 0 (worker b) has 2 of its rows.
  EXPECT_THAT(reply.steps, ElementsAre(StepCount{"permute", "tp", 32}));
  EXPECT_EQ(d.core.tensors().at("t").mesh, "n");
  EXPECT_EQ(d.Reserved("a"), 0);
  EXPECT_EQ(d.Reserved("b"), 32);
  EXPECT_EQ(d.Reserved("c"), 32);
  // The way back takes the same link.
  d.stages.clear();
  d.Do(Move(2, kShard0, "m"));
  EXPECT_THAT(d.stages, IsEmpty());
  EXPECT_THAT(d.LastCommand<Transfer>("a")->source_ranks, ElementsAre(1, 2));
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 2).ok());
  EXPECT_THAT(d.core.meshes(), SizeIs(3));
  // It goes with one of its meshes.
  d.Do(DeleteMeshRequested{d.Head(3), "n"});
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 3).ok());
  EXPECT_THAT(d.core.meshes(), SizeIs(1));
}

TEST_F(CoreRedistributeTest, PartialIsReducedBeforeAndMadeAfterTheMove) {
  d.MakeLocalTensor("p", "m", {4, 4}, kSum, {{4, 4}, {4, 4}});
  d.Do(Move(1, kSum, "n", "q", "p"));
  const Transform* first = d.LastCommand<Transform>("a");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->program->instructions[0].step->op, RedistributeOp::kReduceScatter);  // less than an all_reduce
  d.AckOne("a");
  d.AckOne("b");
  d.FinishStages();
  d.AckAll();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  ASSERT_THAT(reply.steps, SizeIs(3));
  EXPECT_EQ(reply.steps[0].op, "reduce_scatter");
  EXPECT_EQ(reply.steps[1].op, "permute");
  EXPECT_EQ(reply.steps[2].op, "fill");  // exact, and half the bytes of a divide
  EXPECT_EQ(d.core.tensors().at("q").placements, (Placements{Placement::Partial()}));
  EXPECT_EQ(d.LastCommand<Transfer>("c")->target, (Placements{Placement::Shard(0)}));
  EXPECT_EQ(d.LastCommand<Transform>("c")->inputs[0], d.LastCommand<Transfer>("c")->output);
  // Only p and q are left: 64 bytes of p on a and b, 64 of q on b and c, 32 of t on a and b.
  EXPECT_EQ(d.Reserved("a"), 32 + 64);
  EXPECT_EQ(d.Reserved("b"), 32 + 64 + 64);
  EXPECT_EQ(d.Reserved("c"), 64);
}

TEST_F(CoreRedistributeTest, LostWorkerAtAnyStepOfAMoveLeavesNothing) {
  for (int step = 0; step < 3; ++step) {
    for (const char* lost : {"a", "c"}) {
      SCOPED_TRACE(absl::StrCat(step, lost));
      Driver e;
      Prepare(&e);
      e.Do(Move(1, kShard1, "n"));
      if (step > 0) e.FinishStages();
      if (step > 1) {
        for (const char* id : {"a", "b", "c"}) e.AckOne(id);
        ASSERT_NE(e.LastCommand<Transfer>("b"), nullptr);
      }
      e.Lose(lost, "killed");
      EXPECT_THAT(Text(StatusOf(e, 1)), HasSubstr(absl::StrCat("(worker ", lost, ") was lost: killed")));
      EXPECT_EQ(e.TensorPhaseOf("t"), std::string(lost) == "a" ? "LOST" : "READY");
      e.FinishStages();
      e.AckAll();
      EXPECT_EQ(e.Reserved("b"), 32);
      EXPECT_EQ(e.Reserved("c"), 0);
      EXPECT_THAT(e.core.meshes(), SizeIs(2));  // no link
      EXPECT_EQ(e.core.running_calls(), 0);
    }
  }
}

TEST_F(CoreRedistributeTest, LinkThatCannotConnectFailsAllThatWaitForItAndIsTriedAgain) {
  d.Do(Move(1, kShard1, "n", "u"));
  d.Do(Move(2, kShard0, "n", "v"));
  EXPECT_THAT(d.Waiting<StageListen>(), SizeIs(3));
  const auto [worker, stage] = d.stages.front();
  d.stages.clear();
  d.FinishStage(worker, stage, absl::UnavailableError("no port"));
  for (const CallId call : {1, 2}) {
    EXPECT_EQ(Text(StatusOf(d, call)), "UNAVAILABLE: connecting both meshes: rank 0 (worker a): no port");
  }
  EXPECT_EQ(d.MeshPhase("m"), "READY");
  EXPECT_EQ(d.TensorPhaseOf("u"), "absent");
  d.Do(Move(3, kShard1, "n", "u"));
  d.FinishStages();
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 3).ok());
}

TEST_F(CoreRedistributeTest, TransferThatAbortsEndsTheLinkOnly) {
  d.Do(Move(1, kShard1, "n"));
  d.FinishStages();
  for (const char* id : {"a", "b", "c"}) d.AckOne(id);
  d.AckAll([](const std::string&, const Command& command, Ack* ack) {
    if (std::holds_alternative<Transfer>(command.kind)) ack->status = absl::DeadlineExceededError("slow");
  });
  EXPECT_EQ(StatusOf(d, 1).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(d.MeshPhase("m"), "READY");
  EXPECT_EQ(d.MeshPhase("n"), "READY");
  EXPECT_THAT(d.core.meshes(), SizeIs(2));
  d.Do(Move(2, kShard1, "n"));
  d.FinishStages();
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 2).ok());
}

TEST_F(CoreRedistributeTest, MemoryOfTheResultIsReservedBeforeAnythingMoves) {
  Driver e;
  e.Join("a", 100);
  e.Join("b", 100);
  e.MakeMesh("m", "tp=2");
  e.MakeTensor("t", "m", {4, 4}, kShard0);
  e.Do(Move(1, {{"tp", Placement::Replicate()}}, "", "u"));
  e.AckAll();
  EXPECT_TRUE(StatusOf(e, 1).ok());
  e.Do(Move(2, kShard1));
  EXPECT_EQ(StatusOf(e, 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(e.core.tensors().at("t").moving);
  EXPECT_EQ(e.Reserved("a"), 96);
}

TEST(TensorPlanTest, LeastLayoutWithoutPartialIsChosen) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  const TensorType type{DType::kF32, {8, 8}};
  const auto plan = PlanWithoutPartial(mesh, type, {Placement::Partial(), Placement::Shard(0)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->to[0].kind, PlacementKind::kShard);
  EXPECT_EQ(plan->to[1], Placement::Shard(0));
  ASSERT_THAT(plan->steps, SizeIs(1));
  EXPECT_EQ(plan->steps[0], (StepCount{"reduce_scatter", "dp", 64}));
  const auto scalar = PlanWithoutPartial(mesh, {DType::kF32, {}}, {Placement::Partial(), Placement::Partial()});
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_EQ(scalar->to, (Placements{Placement::Replicate(), Placement::Replicate()}));
}

}  // namespace
}  // namespace tp::server
