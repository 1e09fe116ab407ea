#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CreateMeshRequested Creation(CallId call, const std::string& name, const std::string& axes,
                             std::vector<std::string> workers = {}) {
  CreateMeshRequested request;
  request.head = {call, "", "digest"};
  request.name = name;
  request.mesh = *Mesh::Parse(axes);
  request.workers = std::move(workers);
  return request;
}

absl::Status StatusOf(Driver& d, CallId call) { return ReplyTo<OperationReply>(d, call).status; }

class CoreMeshesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"a", "b", "c", "d"}) d.Join(id);
  }
  const MeshState& Mesh_(const std::string& name) { return d.core.meshes().at(d.core.named_meshes().at(name).mesh_id); }
  Driver d;
};

TEST_F(CoreMeshesTest, RanksListenConnectAndCommit) {
  d.Do(Creation(1, "m", "dp=2,tp=2"));
  EXPECT_EQ(d.MeshPhase("m"), "CONNECTING");
  EXPECT_THAT(d.Waiting<StageListen>(), SizeIs(4));
  d.FinishStages();
  std::vector<StageConnect> connects;
  for (const SendStage& send : d.Of<SendStage>(d.all)) {
    if (const auto* connect = std::get_if<StageConnect>(&send.stage.kind)) connects.push_back(*connect);
  }
  ASSERT_THAT(connects, SizeIs(4));
  EXPECT_THAT(connects[0].addresses, ElementsAre("at a", "at b", "at c", "at d"));
  for (const char* id : {"a", "b", "c", "d"}) {
    ASSERT_THAT(d.commands[id], SizeIs(1));
    EXPECT_THAT(std::get<Commit>(d.commands[id][0].kind).stage_ids, SizeIs(2));
    EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
    d.AckOne(id);
  }
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.mesh, "m");
  EXPECT_EQ(d.MeshPhase("m"), "READY");
  EXPECT_THAT(Mesh_("m").workers, ElementsAre("a", "b", "c", "d"));
}

TEST_F(CoreMeshesTest, IdleWorkersAreTakenFirstThenThoseWithTheFewestRanks) {
  d.MakeMesh("m", "tp=2");
  EXPECT_THAT(Mesh_("m").workers, ElementsAre("a", "b"));
  d.MakeMesh("n", "tp=2");
  EXPECT_THAT(Mesh_("n").workers, ElementsAre("c", "d"));
  d.MakeMesh("o", "tp=3");
  EXPECT_THAT(Mesh_("o").workers, ElementsAre("a", "b", "c"));
  d.MakeMesh("p", "tp=1");
  EXPECT_THAT(Mesh_("p").workers, ElementsAre("d"));
}

TEST_F(CoreMeshesTest, GivenWorkersKeepTheirOrder) {
  d.MakeMesh("m", "tp=3", {"d", "a", "c"});
  EXPECT_THAT(Mesh_("m").workers, ElementsAre("d", "a", "c"));
}

TEST_F(CoreMeshesTest, RefusalsNameWhatIsWrong) {
  d.MakeMesh("m", "tp=2");
  d.Lose("d", "unplugged");
  const std::vector<std::pair<CreateMeshRequested, std::string>> cases = {
      {Creation(0, "n", "tp=9"), "FAILED_PRECONDITION: mesh tp=9 needs 9 workers, 3 are healthy"},
      {Creation(0, "m", "tp=2"), "ALREADY_EXISTS: mesh 'm' exists"},
      {Creation(0, "n/o", "tp=2"), "INVALID_ARGUMENT: name: 'n/o'"},
      {Creation(0, "", "tp=2"), "INVALID_ARGUMENT: name: ''"},
      {Creation(0, "n", "tp=2", {"a"}), "INVALID_ARGUMENT: workers: 1 are given, mesh tp=2 has 2 ranks"},
      {Creation(0, "n", "tp=2", {"a", "a"}), "INVALID_ARGUMENT: workers[0]: 'a' is given twice"},
      {Creation(0, "n", "tp=2", {"a", "x"}), "NOT_FOUND: workers[1]: no worker 'x'; nearest: "},
      {Creation(0, "n", "tp=2", {"a", "d"}), "FAILED_PRECONDITION: workers[1]: worker 'd' is not healthy: unplugged"},
  };
  CallId call = 0;
  for (const auto& [request, text] : cases) {
    CreateMeshRequested sent = request;
    sent.head.call = ++call;
    d.Do(sent);
    EXPECT_THAT(Text(StatusOf(d, call)), HasSubstr(text));
  }
  EXPECT_THAT(d.core.named_meshes(), SizeIs(1));
  EXPECT_EQ(d.core.running_calls(), 0);
}

TEST_F(CoreMeshesTest, FailureInAnyStepLeavesNothing) {
  for (int step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    Driver e;
    e.Join("a");
    e.Join("b");
    e.Do(Creation(1, "m", "tp=2"));
    absl::StatusCode code = absl::StatusCode::kUnavailable;
    if (step == 0) {  // a rank cannot listen
      e.FinishStage("b", e.stages[1].second, absl::UnavailableError("no port"));
    } else if (step == 1) {
      e.Lose("b");
    } else if (step == 2) {
      e.FinishStages();
      e.Lose("b");
    } else if (step == 3) {
      e.FinishStages();
      e.AckOne("a");
      e.AckOne("b", [](const std::string&, const Command&, Ack* ack) { ack->status = absl::InternalError("broken"); });
      code = absl::StatusCode::kInternal;
    } else {
      e.Do(CallCancelled{1});
      code = absl::StatusCode::kCancelled;
    }
    EXPECT_EQ(StatusOf(e, 1).code(), code) << StatusOf(e, 1);
    EXPECT_EQ(e.MeshPhase("m"), "absent");
    EXPECT_THAT(e.core.meshes(), IsEmpty());
    EXPECT_NE(e.LastCommand<CloseMesh>("a"), nullptr);
    e.FinishStages();  // what comes late changes nothing
    e.AckAll();
    EXPECT_EQ(Replies<OperationReply>(e, 1), 1);
    if (step == 1 || step == 2) e.Join("b");
    e.stages.clear();
    e.MakeMesh("m", "tp=2");
  }
}

TEST_F(CoreMeshesTest, EqualRequestIdGivesTheSameAnswer) {
  CreateMeshRequested request = Creation(1, "m", "tp=2");
  request.head.request_id = "r";
  d.Do(request);
  request.head.call = 2;
  d.Do(request);
  d.Do(CallCancelled{1});  // the other still waits
  EXPECT_EQ(StatusOf(d, 1).code(), absl::StatusCode::kCancelled);
  d.FinishStages();
  d.AckAll();
  EXPECT_EQ(ReplyTo<OperationReply>(d, 2).mesh, "m");
  request.head.call = 3;
  d.Do(request);
  EXPECT_EQ(ReplyTo<OperationReply>(d, 3).mesh, "m");
  request.head.call = 4;
  request.head.digest = "other";
  d.Do(request);
  EXPECT_EQ(StatusOf(d, 4).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(CoreMeshesTest, UndoneRequestMayBeSentAgain) {
  CreateMeshRequested request = Creation(1, "m", "tp=2");
  request.head.request_id = "r";
  d.Do(request);
  d.Do(CallCancelled{1});
  request.head.call = 2;
  d.stages.clear();
  d.Do(request);
  d.FinishStages();
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 2).ok());
}

TEST_F(CoreMeshesTest, DeletionClosesTheRanksAndFreesTheName) {
  d.MakeMesh("m", "tp=2");
  d.Do(DeleteMeshRequested{d.Head(1), "m"});
  EXPECT_NE(d.LastCommand<CloseMesh>("a"), nullptr);
  d.AckOne("a");
  EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
  d.Do(d.Creation(2, "t", "m", {4}, {}));
  EXPECT_EQ(Text(StatusOf(d, 2)), "FAILED_PRECONDITION: mesh 'm' is being deleted");
  d.AckOne("b");
  EXPECT_TRUE(StatusOf(d, 1).ok());
  EXPECT_EQ(d.MeshPhase("m"), "absent");
  EXPECT_THAT(d.core.meshes(), IsEmpty());
  d.Do(DeleteMeshRequested{d.Head(3), "m"});
  EXPECT_EQ(Text(StatusOf(d, 3)), "NOT_FOUND: name: no mesh 'm'; there are none");
}

TEST_F(CoreMeshesTest, MeshWithTensorsIsNotDeleted) {
  d.MakeMesh("m", "tp=2");
  d.MakeTensor("t", "m", {4}, {});
  d.MakeTensor("u", "m", {4}, {});
  d.Do(DeleteMeshRequested{d.Head(1), "m"});
  EXPECT_EQ(Text(StatusOf(d, 1)), "FAILED_PRECONDITION: mesh 'm' holds 2 tensors; delete first: t, u");
  EXPECT_EQ(d.MeshPhase("m"), "READY");
}

TEST_F(CoreMeshesTest, LostWorkerBreaksItsMeshesOnly) {
  d.MakeMesh("m", "tp=2");
  d.MakeMesh("n", "tp=2");
  d.MakeTensor("t", "m", {4}, {{"tp", Placement::Shard(0)}});
  d.MakeTensor("u", "n", {4}, {{"tp", Placement::Shard(0)}});
  d.Lose("b", "killed");
  EXPECT_EQ(d.MeshPhase("m"), "BROKEN");
  EXPECT_THAT(Text(d.core.named_meshes().at("m").error), HasSubstr("rank 1 (worker b) was lost: killed"));
  EXPECT_EQ(d.MeshPhase("n"), "READY");
  EXPECT_EQ(d.TensorPhaseOf("t"), "LOST");
  EXPECT_EQ(d.TensorPhaseOf("u"), "READY");
  d.Do(d.Creation(1, "v", "m", {4}, {}));
  EXPECT_EQ(Text(StatusOf(d, 1)),
            "FAILED_PRECONDITION: mesh 'm' is BROKEN and can only be deleted: rank 1 (worker b) was lost: killed");
  GetTensorRequested get;
  get.head = d.Head(2);
  get.name = "t";
  d.Do(get);
  EXPECT_EQ(Text(StatusOf(d, 2)), "DATA_LOSS: tensor 't' is LOST: rank 1 (worker b) was lost: killed");
  // Deleting frees what is left, then the mesh.
  d.Do(DeleteTensorRequested{d.Head(3), "t"});
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 3).ok());
  EXPECT_NE(d.LastCommand<DropTensors>("a"), nullptr);
  EXPECT_EQ(d.Reserved("a"), 0);
  d.Do(DeleteMeshRequested{d.Head(4), "m"});
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 4).ok());
  EXPECT_EQ(d.MeshPhase("m"), "absent");
}

TEST_F(CoreMeshesTest, MeshesOnSharedWorkersKeepOneOrder) {
  d.MakeMesh("m", "tp=4");
  d.MakeMesh("n", "tp=4");
  for (const char* mesh : {"m", "n", "m"}) {
    d.Do(d.Creation(++d.calls, absl::StrCat("t", d.calls), mesh, {4}, {}));
    d.FinishStages();
  }
  d.AckAll();
  std::vector<uint64_t> orders;
  for (const Command& command : d.history["a"]) orders.push_back(command.order);
  EXPECT_TRUE(std::is_sorted(orders.begin(), orders.end()));
  for (const char* id : {"b", "c", "d"}) {
    std::vector<uint64_t> others;
    for (const Command& command : d.history[id]) others.push_back(command.order);
    EXPECT_EQ(others, orders);
  }
}

}  // namespace
}  // namespace tp::server
