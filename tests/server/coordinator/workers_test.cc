#include "server/coordinator/worker_kinds.h"
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CoreWorkersTest, JoinIsWelcomedAndASecondLiveOneIsRefused) {
  Driver d;
  const auto welcome = d.Of<SendWelcome>(d.Join("a"));
  ASSERT_THAT(welcome, SizeIs(1));
  EXPECT_EQ(welcome[0].term, 1u);
  const std::string first = d.incarnations["a"];
  const auto refused = d.Of<RefuseJoin>(d.Join("a"));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(d.core.workers().at("a").description.incarnation, first);
}

TEST(CoreWorkersTest, OtherVersionIsRefused) {
  Driver d;
  WorkerDescription worker;
  worker.id = "a";
  worker.version = "2";
  const auto refused = d.Of<RefuseJoin>(d.Do(WorkerJoined{worker}));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(d.core.workers(), IsEmpty());
}

TEST(CoreWorkersTest, AnotherVersionOfTheSameCollectivesIsRefused) {
  Driver d;
  d.collectives = "nccl 2.28.9, cuda 13.0";
  d.Join("a");
  d.collectives = "nccl 2.27.3, cuda 13.0";
  auto refused = d.Of<RefuseJoin>(d.Join("b"));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(refused[0].status.message()),
            "worker 'b' has nccl 2.27.3, cuda 13.0, worker 'a' nccl 2.28.9, cuda 13.0: versions must be equal");
  d.collectives = "gloo";
  EXPECT_THAT(d.Of<SendWelcome>(d.Join("c")), SizeIs(1));  // another kind
  d.Lose("a");
  d.collectives = "nccl 2.27.3, cuda 13.0";
  EXPECT_THAT(d.Of<SendWelcome>(d.Join("b")), SizeIs(1));
}

TEST(CoreWorkersTest, AMeshIsOfOneKindOfWorker) {
  Driver d;
  d.collectives = "nccl 2.28.9, cuda 13.0";
  d.Join("a");
  d.Join("b");
  d.collectives = "gloo";
  d.Join("c");
  d.Do(d.Request(1, "m", 3));
  const absl::Status refused = ReplyTo<SubmitReply>(d, 1).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("needs 3 workers, 3 are healthy, at most 2 of one kind (nccl 2.28.9, cuda 13.0)"));
  EXPECT_EQ(DefaultComputeDType(d.core.workers()), DType::kBF16);
  d.Lose("b");
  EXPECT_EQ(DefaultComputeDType(d.core.workers()), DType::kF32);  // as many of each: the first by name
}

TEST(CoreWorkersTest, AMeshHoldsADeviceOnce) {
  Driver d;
  d.collectives = "nccl 2.28.9, cuda 13.0";
  d.identity = "gpu 0";
  d.Join("a");
  d.Join("twin");
  d.identity = "gpu 1";
  d.Join("z");
  d.Do(d.Request(1, "three", 3));
  EXPECT_THAT(std::string(ReplyTo<SubmitReply>(d, 1).status.message()),
              HasSubstr("needs 3 workers, 3 are healthy, on 2 devices"));
  d.Deploy("m", 2);
  EXPECT_EQ(d.Phase("m"), "READY");
  std::vector<std::string> used;
  for (const auto& [id, mesh] : d.core.meshes()) used = mesh.workers;
  EXPECT_THAT(used, ElementsAre("a", "z"));
}

TEST(CoreWorkersTest, SilentWorkerIsFencedAfterTheLeaseAndReplacedWhenItComesBack) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Pass(absl::Seconds(3), "a");
  EXPECT_TRUE(d.core.workers().at("a").healthy);
  d.Pass(absl::Milliseconds(500), "a");
  EXPECT_FALSE(d.core.workers().at("a").healthy);
  EXPECT_THAT(d.core.workers().at("a").reason, HasSubstr("no heartbeat"));
  EXPECT_TRUE(d.core.workers().at("b").healthy);
  EXPECT_THAT(d.Of<SendFence>(d.all), SizeIs(1));
  EXPECT_THAT(d.Of<SendWelcome>(d.Join("a")), SizeIs(1));
  EXPECT_TRUE(d.core.workers().at("a").healthy);
}

TEST(CoreWorkersTest, LostWorkerFailsItsModelsAndLeavesOthersAlone) {
  Driver d;
  for (const char* id : {"a", "b", "c", "d"}) d.Join(id);
  d.Deploy("m", 2);  // a, b
  d.Deploy("n", 2);  // c, d
  d.Forward(1, "m");
  d.Forward(2, "n");
  const auto actions = d.Lose("b", "its session broke");
  const ForwardReply reply = ReplyTo<ForwardReply>(d, 1);
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(reply.status), HasSubstr("rank 1 (worker b) was lost: its session broke"));
  EXPECT_EQ(d.Phase("m"), "FAILED");
  EXPECT_EQ(d.Phase("n"), "READY");
  const auto aborts = d.Of<SendAbort>(actions);
  ASSERT_THAT(aborts, SizeIs(1));
  EXPECT_EQ(aborts[0].worker, "a");
  EXPECT_EQ(aborts[0].mesh_id, d.core.models().at("m").mesh_id);
  d.Forward(3, "m");
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 3).status.code(), absl::StatusCode::kUnavailable);
  // The survivor answers the command of the epoch that is over: nobody minds, and its stream goes on.
  d.AckAll([](const std::string& worker, const Command&, Ack* ack) {
    if (worker == "a") ack->status = absl::AbortedError("aborted");
  });
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 2).status.ok());
  EXPECT_TRUE(d.core.workers().at("a").pending.empty());
  d.Join("b");
  d.Deploy("o", 4);
  EXPECT_EQ(d.history["a"].back().sequence, 3u);
  EXPECT_EQ(d.history["b"].back().sequence, 1u);
}

TEST(CoreWorkersTest, StuckWorkerIsLostAndItsPeerGetsItsWholeTime) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  d.Pass(absl::Seconds(10));
  EXPECT_EQ(Replies<ForwardReply>(d, 1), 0);  // the first execution after a load has ten seconds
  d.AckAll();
  EXPECT_EQ(Replies<ForwardReply>(d, 1), 1);
  d.Forward(2, "m");
  d.Do(WorkerHeartbeat{"a", d.incarnations["a"], 2, 0});
  d.Pass(absl::Seconds(4));
  EXPECT_EQ(Replies<ForwardReply>(d, 2), 0);
  d.Pass(absl::Milliseconds(500));
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(d, 2).status), HasSubstr("was lost: command 3 stands still for 4.5s"));
  int healthy = 0;
  for (const auto& [id, worker] : d.core.workers()) healthy += worker.healthy ? 1 : 0;
  EXPECT_EQ(healthy, 1);
}

// Half seconds in which `mover` reports more instructions each time, and the others none.
void PassMoving(Driver* d, absl::Duration time, const std::string& mover, uint64_t* progress) {
  for (const absl::Time end = d->now + time; d->now < end;) {
    d->now += absl::Milliseconds(500);
    for (const auto& [id, incarnation] : d->incarnations) {
      d->Do(WorkerHeartbeat{id, incarnation, 0, 0, id == mover ? ++*progress : 0});
    }
    d->Do(Tick{});
  }
}

TEST(CoreWorkersTest, LongCommandThatMovesIsNotLost) {
  Driver d;
  d.Join("a");
  d.Deploy("m", 1);
  d.Forward(1, "m");
  d.AckAll();
  d.Forward(2, "m");
  uint64_t progress = 0;
  PassMoving(&d, absl::Minutes(2), "a", &progress);
  EXPECT_EQ(Replies<ForwardReply>(d, 2), 0);
  PassMoving(&d, absl::Seconds(5), "", &progress);
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(d, 2).status), HasSubstr("stands still"));
}

TEST(CoreWorkersTest, RankThatWaitsForAPeersEarlierCommandIsNotLost) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("both", 2);
  d.Deploy("one", 1);
  const std::string busy = d.core.meshes().rbegin()->second.workers[0];
  d.Forward(1, "both");
  d.Forward(2, "one");
  d.AckAll();
  d.Forward(3, "one");
  d.Forward(4, "both");  // the other worker is at its header already
  uint64_t progress = 0;
  PassMoving(&d, absl::Minutes(1), busy, &progress);
  EXPECT_EQ(Replies<ForwardReply>(d, 4), 0);
  PassMoving(&d, absl::Seconds(5), "", &progress);
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(d, 4).status), HasSubstr("worker " + busy + ") was lost"));
}

TEST(CoreWorkersTest, TransportFailureWithoutALostWorkerBreaksTheMeshWithItsFirstCause) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  const auto aborts = d.Of<SendAbort>(d.AckOne("a", [](const std::string&, const Command&, Ack* ack) {
    ack->status = absl::AbortedError("a peer failed");
    ack->failed_rank = 1;
  }));
  EXPECT_THAT(aborts, SizeIs(2));
  EXPECT_EQ(Replies<ForwardReply>(d, 1), 0);
  d.AckOne("b", [](const std::string&, const Command&, Ack* ack) {
    ack->status = absl::InternalError("out of paper");
    ack->failed_rank = 1;
  });
  const ForwardReply reply = ReplyTo<ForwardReply>(d, 1);
  EXPECT_EQ(Text(reply.status), "INTERNAL: rank 1 (worker b): out of paper");
  EXPECT_EQ(d.Phase("m"), "FAILED");
}

TEST(CoreWorkersTest, LostWorkerIsTheCauseWhereItsPeerReportedFirst) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  d.AckOne("a", [](const std::string&, const Command&, Ack* ack) { ack->status = absl::UnavailableError("closed"); });
  d.Lose("b", "its stream broke");
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(d, 1).status), HasSubstr("rank 1 (worker b) was lost: its stream broke"));
}

// A worker that dies right after its answer: all have answered, and only its peer knows that something is wrong.
TEST(CoreWorkersTest, LostWorkerIsTheCauseWhereItHadAnsweredBefore) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  d.AckOne("b");
  d.AckOne("a",
           [](const std::string&, const Command&, Ack* ack) { ack->status = absl::UnavailableError("1 is gone"); });
  EXPECT_EQ(Replies<ForwardReply>(d, 1), 0);
  d.Lose("b", "its stream broke");
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(d, 1).status), HasSubstr("rank 1 (worker b) was lost: its stream broke"));
}

TEST(CoreWorkersTest, APeersReportIsTheCauseWhereNobodyIsLost) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  d.AckOne("b");
  d.AckOne("a", [](const std::string&, const Command&, Ack* ack) { ack->status = absl::UnavailableError("no line"); });
  d.Pass(absl::Seconds(2));
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 1).status), "UNAVAILABLE: rank 0 (worker a): no line");
}

TEST(CoreWorkersTest, PeerThatNeverAnswersAnAbortIsNotAwaitedForever) {
  Driver d;
  d.Join("a");
  d.Join("b");
  d.Deploy("m", 2);
  d.Forward(1, "m");
  d.AckOne("a",
           [](const std::string&, const Command&, Ack* ack) { ack->status = absl::DeadlineExceededError("late"); });
  d.Pass(absl::Seconds(2));
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 1).status), "DEADLINE_EXCEEDED: rank 0 (worker a): late");
  EXPECT_EQ(d.Phase("m"), "FAILED");
}

TEST(CoreWorkersTest, AnswerOutOfOrderFencesTheWorker) {
  Driver d;
  d.Join("a");
  d.Deploy("m", 1);
  d.Forward(1, "m");
  d.Forward(2, "m");
  const Command second = d.commands["a"].back();
  Ack ack;
  ack.sequence = second.sequence;
  ack.order = second.order;
  d.Do(AckReceived{"a", d.incarnations["a"], ack});
  EXPECT_FALSE(d.core.workers().at("a").healthy);
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 1).status.code(), absl::StatusCode::kUnavailable);
}

TEST(CoreWorkersTest, DrainRefusesNewCallsAndLetsRunningOnesEnd) {
  Driver d;
  d.Join("a");
  d.Deploy("m", 1);
  d.Forward(1, "m");
  d.Do(DrainRequested{});
  EXPECT_EQ(d.core.running_calls(), 1);
  d.Forward(2, "m");
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 2).status.code(), absl::StatusCode::kUnavailable);
  d.Do(d.Request(3, "n", 1));
  EXPECT_EQ(ReplyTo<SubmitReply>(d, 3).status.code(), absl::StatusCode::kUnavailable);
  d.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 1).status.ok());
  EXPECT_EQ(d.core.running_calls(), 0);
}

TEST(CoreWorkersTest, ADrainingWorkerEndsItsWorkGetsNoMoreAndIsLetGo) {
  Driver d;
  for (const char* id : {"a", "b", "c"}) d.Join(id);
  d.Deploy("m", 2);  // a, b
  d.MakeMesh("mesh", "tp=2", {"a", "b"});
  d.MakeTensor("t", "mesh", {4, 4}, {});
  d.Forward(1, "m");
  d.Do(WorkerDraining{"b", d.incarnations["b"]});
  EXPECT_THAT(d.Of<LetWorkerGo>(d.all), IsEmpty());

  d.Forward(2, "m");
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 2).status),
            "UNAVAILABLE: model 'm': rank 1 (worker b) is draining: it stops and takes no new requests");
  d.Do(d.Creation(3, "u", "mesh", {4, 4}, {}));
  EXPECT_THAT(Text(ReplyTo<OperationReply>(d, 3).status), HasSubstr("UNAVAILABLE: mesh 'mesh': rank 1 (worker b)"));
  GetTensorRequested get;
  get.head = d.Head(4);
  get.name = "t";
  d.Do(get);
  EXPECT_THAT(Text(ReplyTo<OperationReply>(d, 4).status), HasSubstr("UNAVAILABLE: tensor 't': rank 1 (worker b)"));
  CreateMeshRequested mesh;
  mesh.head = d.Head(5);
  mesh.name = "other";
  mesh.mesh = *Mesh::Parse("tp=2");
  mesh.workers = {"b", "c"};
  d.Do(mesh);
  EXPECT_EQ(Text(ReplyTo<OperationReply>(d, 5).status), "UNAVAILABLE: workers[0]: worker 'b' is draining: it stops");
  d.Do(d.Request(6, "three", 3));
  EXPECT_THAT(Text(ReplyTo<SubmitReply>(d, 6).status), HasSubstr("needs 3 workers, 2 are healthy; draining: b"));

  d.AckOne("a");
  EXPECT_THAT(d.Of<LetWorkerGo>(d.all), IsEmpty());
  d.AckOne("b");
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 1).status.ok());
  const auto let_go = d.Of<LetWorkerGo>(d.all);
  ASSERT_THAT(let_go, SizeIs(1));
  EXPECT_EQ(let_go[0].worker, "b");
  EXPECT_TRUE(d.core.workers().at("b").healthy);
  d.Lose("b", "its session ended");
  EXPECT_EQ(d.Phase("m"), "FAILED");
  d.Forward(7, "m");
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(d, 7).status),
              HasSubstr("rank 1 (worker b) was lost: it was draining; its session ended"));
  d.Deploy("n", 2);  // a, c
  EXPECT_EQ(d.Phase("n"), "READY");
}

TEST(CoreWorkersTest, AnIdleWorkerIsLetGoAtOnceAndOnlyThatIncarnation) {
  Driver d;
  d.Join("a");
  d.Do(WorkerDraining{"a", "another"});
  EXPECT_THAT(d.Of<LetWorkerGo>(d.all), IsEmpty());
  d.Do(WorkerDraining{"a", d.incarnations["a"]});
  d.Do(Tick{});
  EXPECT_THAT(d.Of<LetWorkerGo>(d.all), SizeIs(1));
}

}  // namespace
}  // namespace tp::server
