// Reading tensors: to clients, to files, and from files.
#include "common/checkpoint/safetensors.h"
#include "server/coordinator/save_plan.h"
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

absl::Status StatusOf(Driver& d, CallId call) { return ReplyTo<OperationReply>(d, call).status; }
const NamedPlacements kShard0 = {{"tp", Placement::Shard(0)}};
const NamedPlacements kSum = {{"tp", Placement::Partial()}};

class CoreReadTest : public ::testing::Test {
 protected:
  void SetUp() override { Prepare(&d); }
  static void Prepare(Driver* driver) {
    for (const char* id : {"a", "b", "c"}) driver->Join(id);
    driver->MakeMesh("m", "tp=2", {"a", "b"});
  }
  static GetTensorRequested Get(CallId call, const std::string& name, bool local = false) {
    GetTensorRequested request;
    request.head = {call, "", ""};
    request.name = name;
    request.local_blocks = local;
    return request;
  }
  static SaveTensorsRequested Save(CallId call, std::vector<std::string> names) {
    SaveTensorsRequested request;
    request.head = {call, "", "digest"};
    request.directory = "/d";
    request.names = std::move(names);
    return request;
  }
  LoadTensorsRequested Load(CallId call, NamedPlacements placements, std::vector<std::string> names = {}) {
    LoadTensorsRequested request;
    request.head = {call, "", "digest"};
    request.directory = "/d";
    request.mesh = "m";
    request.placements = std::move(placements);
    request.names = std::move(names);
    return request;
  }
  Driver d;
};

TEST_F(CoreReadTest, OwnersSendTheBoxesOfTheirBlocks) {
  d.MakeTensor("t", "m", {8, 3}, {{"tp", Placement::StridedShard(0, 2)}});
  d.Do(Get(1, "t"));
  const auto sends = d.Waiting<StageSend>();
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
  d.FinishStages();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  ASSERT_THAT(reply.blocks, SizeIs(4));
  EXPECT_EQ(reply.blocks[1].offset, (Shape{4, 0}));
  EXPECT_EQ(reply.blocks[1].shape, (Shape{2, 3}));
  EXPECT_EQ(reply.blocks[1].stream_index, 1u);
  EXPECT_EQ(reply.blocks[1].transfer_id, sends[0].second.transfer_id);
  EXPECT_EQ(reply.blocks[2].rank, 1);
  EXPECT_EQ(reply.blocks[2].offset, (Shape{2, 0}));
  EXPECT_EQ(reply.blocks[2].size_bytes, 24);
  EXPECT_EQ(d.core.running_calls(), 1);  // the client still reads
  d.Do(GetFinished{1});
  EXPECT_EQ(d.core.running_calls(), 0);
  EXPECT_EQ(Replies<OperationReply>(d, 1), 1);
  EXPECT_THAT(d.Of<SendDrop>(d.all), SizeIs(2));
}

TEST_F(CoreReadTest, CopiesAreSentOnceAndLocalBlocksByAll) {
  d.MakeTensor("t", "m", {4}, {});
  d.Do(Get(1, "t"));
  EXPECT_THAT(d.Waiting<StageSend>(), SizeIs(1));
  d.FinishStages();
  d.Do(Get(2, "t", true));
  EXPECT_THAT(d.Waiting<StageSend>(), SizeIs(2));
  d.FinishStages();
  EXPECT_THAT(ReplyTo<OperationReply>(d, 2).blocks, SizeIs(2));
  d.MakeTensor("one", "m", {1}, kShard0);
  d.Do(Get(3, "one", true));
  EXPECT_THAT(d.Waiting<StageSend>(), SizeIs(1));  // the other block is empty
  d.FinishStages();
  d.MakeTensor("none", "m", {0, 3}, kShard0);
  d.Do(Get(4, "none"));
  EXPECT_TRUE(StatusOf(d, 4).ok());
  EXPECT_THAT(ReplyTo<OperationReply>(d, 4).blocks, IsEmpty());
}

TEST_F(CoreReadTest, PartialIsReducedIntoATemporaryThatGoesWithTheCall) {
  d.MakeLocalTensor("p", "m", {4}, kSum, {{4}, {4}});
  d.Do(Get(1, "p"));
  const Transform* transform = d.LastCommand<Transform>("a");
  ASSERT_NE(transform, nullptr);
  const uint64_t temporary = transform->outputs[0];
  d.AckAll();
  const auto sends = d.Waiting<StageSend>();
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0].second.tensor_id, temporary);
  d.FinishStages();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  EXPECT_EQ(reply.tensors[0].placements, (Placements{Placement::Partial()}));
  EXPECT_EQ(d.LastCommand<DropTensors>("a"), nullptr);
  d.Do(CallCancelled{1});  // the client leaves in the middle of it
  EXPECT_THAT(d.LastCommand<DropTensors>("a")->tensor_ids, ElementsAre(temporary));
  EXPECT_EQ(Replies<OperationReply>(d, 1), 1);
  EXPECT_THAT(d.Of<CancelTransfer>(d.all), SizeIs(testing::Ge(2)));
  d.AckAll();
  EXPECT_EQ(d.Reserved("a"), 16);
  // Its raw terms need no reduction.
  d.Do(Get(2, "p", true));
  EXPECT_EQ(d.LastCommand<Transform>("a")->outputs[0], temporary);
  EXPECT_THAT(d.Waiting<StageSend>(), SizeIs(2));
}

TEST_F(CoreReadTest, TensorThatIsDeletedWhileItIsReadIsDroppedAfter) {
  d.MakeTensor("t", "m", {4}, kShard0);
  d.Do(Get(1, "t"));
  d.FinishStages();
  d.Do(DeleteTensorRequested{d.Head(2), "t"});
  EXPECT_EQ(d.TensorPhaseOf("t"), "absent");
  EXPECT_EQ(d.LastCommand<DropTensors>("a"), nullptr);
  d.Do(DeleteMeshRequested{d.Head(3), "m"});
  EXPECT_EQ(Text(StatusOf(d, 3)), "FAILED_PRECONDITION: mesh 'm': is in use by the get of tensor 't'");
  d.Do(GetFinished{1});
  EXPECT_NE(d.LastCommand<DropTensors>("a"), nullptr);
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 2).ok());
}

TEST_F(CoreReadTest, GetThatCannotBeginIsRefused) {
  d.MakeTensor("t", "m", {4}, kShard0);
  d.Do(Get(1, "u"));
  EXPECT_EQ(Text(StatusOf(d, 1)), "NOT_FOUND: name: no tensor 'u'; nearest: t");
  d.Do(Get(2, "t"));
  d.FinishStage("b", d.stages[1].second, absl::InternalError("no such tensor"));
  EXPECT_EQ(Text(StatusOf(d, 2)), "INTERNAL: rank 1 (worker b): no such tensor");
  d.Do(Get(3, "t"));
  d.Lose("b", "killed");
  EXPECT_EQ(Text(StatusOf(d, 3)), "UNAVAILABLE: rank 1 (worker b) was lost: killed");
  EXPECT_EQ(d.core.running_calls(), 0);
}

TEST_F(CoreReadTest, EveryWorkerWritesItsBlocksOnceAndTheFilesAreNamedLast) {
  d.MakeMesh("n", "tp=2", {"b", "c"});
  d.MakeTensor("t", "m", {4}, kShard0);
  d.MakeTensor("u", "n", {2}, {});
  d.Do(Save(1, {"u", "t"}));
  auto saves = d.Waiting<StageSave>();
  ASSERT_THAT(saves, SizeIs(1));  // makes the files
  EXPECT_TRUE(saves[0].second.create);
  ASSERT_THAT(saves[0].second.files, SizeIs(1));
  EXPECT_EQ(saves[0].second.files[0].name, "model.safetensors");
  const std::string header = saves[0].second.files[0].header;
  const auto parsed = ParseSafetensorsHeader(header.substr(8), saves[0].second.files[0].size_bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto pop = [&] {
    const auto [worker, stage] = d.stages.front();
    d.stages.pop_front();
    d.FinishStage(worker, stage);
  };
  pop();
  saves = d.Waiting<StageSave>();
  ASSERT_THAT(saves, SizeIs(3));
  int owners = 0;
  for (const auto& [worker, save] : saves) {
    EXPECT_FALSE(save.create);
    EXPECT_THAT(save.tensors, SizeIs(worker == "b" ? 2 : 1));
    for (const SavedTensor& tensor : save.tensors) {
      const bool is_t = tensor.tensor_id == d.core.tensors().at("t").tensor_id;
      EXPECT_EQ(tensor.begin, parsed->tensors.at(is_t ? "t" : "u").begin);
      owners += tensor.owner ? 1 : 0;
    }
  }
  EXPECT_EQ(owners, 3);  // both halves of t, one copy of u
  for (int i = 0; i < 3; ++i) pop();
  const auto seals = d.Waiting<StageSeal>();
  ASSERT_THAT(seals, SizeIs(1));
  EXPECT_EQ(seals[0].second.index, "");
  EXPECT_EQ(Replies<OperationReply>(d, 1), 0);
  pop();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  EXPECT_THAT(reply.files, ElementsAre("model.safetensors"));
  EXPECT_EQ(reply.size_bytes, 24);
}

TEST_F(CoreReadTest, PartialIsSavedReduced) {
  d.MakeLocalTensor("p", "m", {4}, kSum, {{4}, {4}});
  d.MakeTensor("t", "m", {4}, kShard0);
  d.Do(Save(1, {"p", "t"}));
  EXPECT_THAT(d.stages, IsEmpty());
  const uint64_t temporary = d.LastCommand<Transform>("a")->outputs[0];
  d.AckAll();
  bool seen = false;
  while (!d.stages.empty()) {
    const auto [worker, stage] = d.stages.front();
    d.stages.pop_front();
    if (const auto* save = std::get_if<StageSave>(&stage.kind); save != nullptr && !save->create) {
      seen = seen || save->tensors[0].tensor_id == temporary;
    }
    d.FinishStage(worker, stage);
  }
  EXPECT_TRUE(seen);
  d.AckAll();
  EXPECT_TRUE(StatusOf(d, 1).ok());
  EXPECT_EQ(d.Reserved("a"), 16 + 8);
}

TEST_F(CoreReadTest, SaveThatFailsDropsItsStages) {
  d.MakeTensor("t", "m", {4}, kShard0);
  d.Do(Save(1, {"t", "x"}));
  EXPECT_EQ(Text(StatusOf(d, 1)), "NOT_FOUND: names: no tensor 'x'; nearest: t");
  d.Do(Save(2, {"t", "t"}));
  EXPECT_EQ(Text(StatusOf(d, 2)), "INVALID_ARGUMENT: names: 't' is given twice");
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    Driver e;
    Prepare(&e);
    e.MakeTensor("t", "m", {4}, kShard0);
    e.Do(Save(3, {"t"}));
    const auto finish = [&](absl::Status status) {
      const auto [worker, stage] = e.stages.front();
      e.stages.pop_front();
      e.FinishStage(worker, stage, status);
    };
    for (int i = 0; i < (step == 0 ? 0 : step == 1 ? 2 : 3); ++i) finish(absl::OkStatus());
    finish(absl::ResourceExhaustedError("disk full"));
    EXPECT_THAT(Text(StatusOf(e, 3)), HasSubstr("disk full"));
    EXPECT_THAT(e.Of<SendDrop>(e.all), SizeIs(step == 0 ? 1 : step == 1 ? 3 : 4));
    EXPECT_EQ(e.core.running_calls(), 0);
    EXPECT_EQ(e.TensorPhaseOf("t"), "READY");
  }
}

TEST_F(CoreReadTest, LoadIsAllOrNone) {
  d.found_tensors = {{"x", "/d/model.safetensors", DType::kF32, {5, 2}},
                     {"y", "/d/model.safetensors", DType::kI64, {4}}};
  d.Do(Load(1, kShard0));
  ASSERT_THAT(d.Waiting<StageInspect>(), SizeIs(1));
  EXPECT_EQ(d.stages[0].first, "a");
  const auto [worker, stage] = d.stages.front();
  d.stages.pop_front();
  d.FinishStage(worker, stage);
  const auto stages = d.Waiting<StageTensors>();
  ASSERT_THAT(stages, SizeIs(2));
  ASSERT_THAT(stages[0].second.tensors, SizeIs(2));
  const NewTensor& x = stages[0].second.tensors[0];
  EXPECT_EQ(x.state.source.kind, WeightSource::Kind::kFile);
  EXPECT_EQ(x.state.source.path, "/d/model.safetensors");
  EXPECT_EQ(x.state.source.tensor, "x");
  EXPECT_EQ(d.TensorPhaseOf("y"), "CREATING");
  d.FinishStages();
  d.AckAll();
  const OperationReply reply = ReplyTo<OperationReply>(d, 1);
  ASSERT_THAT(reply.tensors, SizeIs(2));
  EXPECT_EQ(reply.size_bytes, 20);
  EXPECT_EQ(d.TensorPhaseOf("x"), "READY");
  EXPECT_EQ(d.core.tensors().at("y").dtype, DType::kI64);
  EXPECT_EQ(d.Reserved("a"), 3 * 2 * 4 + 2 * 8);
}

TEST_F(CoreReadTest, LoadNamesAllProblems) {
  d.MakeTensor("y", "m", {4}, {});
  d.found_tensors = {
      {"x", "/d/f", DType::kF32, {}}, {"y", "/d/f", DType::kI64, {4}}, {"z z", "/d/f", DType::kI64, {4}}};
  d.Do(Load(1, kShard0));
  d.FinishStages();
  const std::string text = Text(StatusOf(d, 1));
  EXPECT_THAT(text, HasSubstr("tensor 'x': placements: "));
  EXPECT_THAT(text, HasSubstr("tensor 'y' exists"));
  EXPECT_THAT(text, HasSubstr("'z z'"));
  d.Do(Load(2, {}, {"xx"}));
  d.FinishStages();
  EXPECT_THAT(Text(StatusOf(d, 2)), HasSubstr("NOT_FOUND: names: '/d' has no tensor 'xx'; nearest: x"));
  d.Do(Load(3, kSum, {"x"}));
  d.FinishStages();
  EXPECT_THAT(Text(StatusOf(d, 3)), HasSubstr("neither initializers nor files give terms"));
  d.Do(Load(4, {}, {"x"}));
  d.FinishStage("a", d.stages[0].second, absl::PermissionDeniedError("outside the model root"));
  EXPECT_EQ(Text(StatusOf(d, 4)), "PERMISSION_DENIED: rank 0 (worker a): outside the model root");
  EXPECT_THAT(d.core.tensors(), SizeIs(1));
}

TEST_F(CoreReadTest, LoadThatFailsOnOneRankLeavesNothing) {
  d.found_tensors = {{"x", "/d/f", DType::kF32, {4}}, {"y", "/d/f", DType::kF32, {4}}};
  d.Do(Load(1, {}));
  d.FinishStage("a", d.stages[0].second);
  d.stages.pop_front();
  d.FinishStage("b", d.stages[1].second, absl::DataLossError("'x': too short"));
  EXPECT_EQ(Text(StatusOf(d, 1)), "DATA_LOSS: rank 1 (worker b): 'x': too short");
  EXPECT_THAT(d.core.tensors(), IsEmpty());
  EXPECT_EQ(d.Reserved("a"), 0);
}

TEST(SavePlanTest, FilesAreCutAtTheLimitAndIndexed) {
  const std::vector<SaveItem> items = {
      {"a", DType::kU8, {3}}, {"b", DType::kF64, {2}}, {"c", DType::kF32, {10}}, {"d", DType::kF32, {}}};
  const auto one = PlanSave(items, 1000);
  ASSERT_TRUE(one.ok());
  ASSERT_THAT(one->files, SizeIs(1));
  EXPECT_EQ(one->size_bytes, 3 + 16 + 40 + 4);
  EXPECT_EQ(one->index, "");
  const int64_t data = static_cast<int64_t>(one->files[0].header.size());
  EXPECT_EQ(one->files[0].size_bytes, data + one->size_bytes);
  EXPECT_EQ(one->places[1].begin, data);  // large items first
  EXPECT_EQ(one->places[0].begin, data + 60);
  const auto three = PlanSave(items, 40);
  ASSERT_TRUE(three.ok());
  ASSERT_THAT(three->files, SizeIs(3));
  EXPECT_EQ(three->files[0].name, "model-00001-of-00003.safetensors");
  EXPECT_EQ(three->places[2].file, 1);
  EXPECT_EQ(three->places[3].file, 2);
  EXPECT_EQ(three->index,
            "{\"metadata\":{\"total_size\":63},\"weight_map\":{\"a\":\"model-00001-of-00003.safetensors\","
            "\"b\":\"model-00001-of-00003.safetensors\",\"c\":\"model-00002-of-00003.safetensors\","
            "\"d\":\"model-00003-of-00003.safetensors\"}}\n");
}

}  // namespace
}  // namespace tp::server
