// Forwards whose inputs are blocks of ranks or named tensors, and whose answers are blocks of ranks.
#include "server/coordinator/forward_shards.h"
#include "tests/server/coordinator/driver.h"

namespace tp::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string HeldText(const std::string& worker, const Driver& d) {
  return absl::StrCat(worker, " holds ", d.core.reserved_bytes(worker));
}

// The model takes x F32[batch, 10] as S(1) and ids I64[batch, 4] as R.
class CoreBoundaryTest : public ::testing::Test {
 protected:
  void Start(int workers, int64_t memory_limit = 0) {
    for (int i = 0; i < workers; ++i) d.Join(std::string(1, static_cast<char>('a' + i)), memory_limit);
    d.Deploy("m", workers);
    for (const auto& [id, incarnation] : d.incarnations) held_.push_back(HeldText(id, d));
  }
  // x of `rows` rows by rows on two ranks, ids full.
  ForwardRequested ByRows(CallId call, int64_t rows) {
    ForwardRequested request;
    request.call = call;
    request.model = "m";
    request.inputs = d.Inputs(rows);
    InputShards x;
    x.placements = {{"tp", Placement::Shard(0)}};
    x.shape = {rows, 10};
    const int64_t first = (rows + 1) / 2;
    x.locals = {{0, {first, 10}}, {1, {rows - first, 10}}};
    const std::string whole = request.inputs.at("x").bytes;
    x.data = {whole.substr(0, first * 40), whole.substr(first * 40)};
    request.inputs.erase("x");
    request.shards["x"] = std::move(x);
    return request;
  }
  ForwardRequested WithRef(CallId call, const std::string& tensor) {
    ForwardRequested request;
    request.call = call;
    request.model = "m";
    request.inputs = d.Inputs(4);
    request.inputs.erase("x");
    request.refs["x"] = tensor;
    return request;
  }
  absl::Status Refusal(ForwardRequested request) {
    request.call = ++call_;
    d.Do(request);
    return ReplyTo<ForwardReply>(d, call_).status;
  }
  // No temporary is left: memory as after Start, nothing that waits.
  void ExpectNothingLeft(const std::vector<std::string>& but = {}) {
    std::vector<std::string> held;
    for (const auto& [id, incarnation] : d.incarnations) held.push_back(HeldText(id, d));
    EXPECT_EQ(held, but.empty() ? held_ : but);
    EXPECT_EQ(d.core.running_calls(), 0);
  }
  std::vector<std::string> Held() {
    std::vector<std::string> held;
    for (const auto& [id, incarnation] : d.incarnations) held.push_back(HeldText(id, d));
    return held;
  }
  Driver d;
  CallId call_ = 500;
  std::vector<std::string> held_;
};

TEST_F(CoreBoundaryTest, ShardsInTheProgramsLayoutGoStraightToTheirRanks) {
  Start(4);  // 10 columns over 4 ranks: 3 3 3 1
  ForwardRequested request;
  request.call = 1;
  request.model = "m";
  request.inputs = d.Inputs(1);
  request.inputs.erase("x");
  InputShards x;
  x.placements = {{"tp", Placement::Shard(-1)}};
  x.shape = {1, 10};
  // In any order.
  x.locals = {{3, {1, 1}}, {0, {1, 3}}, {2, {1, 3}}, {1, {1, 3}}};
  x.data = {Bytes<float>({9}), Bytes<float>({0, 1, 2}), Bytes<float>({6, 7, 8}), Bytes<float>({3, 4, 5})};
  request.shards["x"] = x;
  d.Do(request);
  const std::vector<std::vector<float>> expected = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}};
  for (int rank = 0; rank < 4; ++rank) {
    const auto* run = d.LastCommand<tp::Run>(std::string(1, static_cast<char>('a' + rank)));
    ASSERT_NE(run, nullptr);
    ASSERT_THAT(run->inputs, SizeIs(2));
    EXPECT_EQ(run->inputs[0].data, Bytes(expected[rank]));
    EXPECT_EQ(run->inputs[0].global_shape, (Shape{1, 10}));
    EXPECT_EQ(run->inputs[0].tensor_id, 0u);
    EXPECT_FALSE(run->local_blocks);
  }
  d.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 1).status.ok());
  ExpectNothingLeft();
}

TEST_F(CoreBoundaryTest, ShardsInAnotherLayoutAreRedistributedIntoATemporary) {
  Start(2);
  d.Do(ByRows(1, 3));
  const auto stages = d.Waiting<StageTensors>();
  ASSERT_THAT(stages, SizeIs(2));
  const auto offers = d.Of<OfferTransfer>(d.last);
  ASSERT_THAT(offers, SizeIs(2));
  EXPECT_EQ(offers[0].bytes->size(), 80u);
  EXPECT_EQ(offers[1].bytes->size(), 40u);
  ASSERT_THAT(stages[1].second.tensors, SizeIs(1));
  EXPECT_EQ(stages[1].second.tensors[0].transfer_id, offers[1].transfer_id);
  EXPECT_EQ(stages[1].second.tensors[0].state.placements, (Placements{Placement::Shard(0)}));
  EXPECT_NE(Held(), held_);
  d.FinishStages();
  d.AckOne("a");
  d.AckOne("b");  // the commit
  const Transform* transform = d.LastCommand<Transform>("a");
  ASSERT_NE(transform, nullptr);
  const uint64_t staged = stages[0].second.tensors[0].tensor_id, output = transform->outputs[0];
  EXPECT_THAT(transform->inputs, ElementsAre(staged));
  ASSERT_THAT(transform->program->instructions, SizeIs(1));
  EXPECT_EQ(transform->program->instructions[0].step->op, RedistributeOp::kAllToAll);
  EXPECT_EQ(d.LastCommand<tp::Run>("a"), nullptr);
  const auto count = [](const std::string& worker, const Command& command, Ack* ack) {
    if (!std::holds_alternative<Transform>(command.kind)) return;
    ack->run.collectives = {{"", "all_to_all", "tp", worker == "a" ? 20 : 40, ""}};
    ack->run.wire_bytes = 50;
  };
  d.AckOne("a", count);
  d.AckOne("b", count);
  for (const char* worker : {"a", "b"}) {
    const auto* run = d.LastCommand<tp::Run>(worker);
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(run->inputs[0].name, "x");
    EXPECT_EQ(run->inputs[0].tensor_id, output);
    EXPECT_EQ(run->inputs[0].global_shape, (Shape{3, 10}));
    EXPECT_THAT(run->inputs[0].data, IsEmpty());
    EXPECT_EQ(run->inputs[1].data.size(), 3u * 4 * 8);
  }
  d.AckAll();
  const ForwardReply reply = ReplyTo<ForwardReply>(d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  ASSERT_THAT(reply.collectives, SizeIs(1));
  EXPECT_EQ(reply.collectives[0].module, "(input x)");
  EXPECT_EQ(reply.collectives[0].op, "all_to_all");
  EXPECT_EQ(reply.collectives[0].bytes, 40);
  EXPECT_EQ(reply.wire_bytes, 50);
  std::vector<uint64_t> dropped;
  for (const Command& command : d.history["a"]) {
    if (const auto* drop = std::get_if<DropTensors>(&command.kind)) dropped.push_back(drop->tensor_ids[0]);
  }
  EXPECT_THAT(dropped, ElementsAre(staged, output));
  EXPECT_THAT(d.core.tensors(), IsEmpty());
  ExpectNothingLeft();
}

TEST_F(CoreBoundaryTest, TermsOfASumAreReducedOnTheRanks) {
  Start(2);
  ForwardRequested request = ByRows(1, 1);
  InputShards& x = request.shards.at("x");
  x.placements = {{"tp", Placement::Partial()}};
  x.locals = {{0, {1, 10}}, {1, {1, 10}}};
  x.data = {Bytes(std::vector<float>(10, 1)), Bytes(std::vector<float>(10, 2))};
  d.Do(request);
  d.FinishStages();
  d.AckOne("a");
  d.AckOne("b");
  const Transform* transform = d.LastCommand<Transform>("b");
  ASSERT_NE(transform, nullptr);
  EXPECT_EQ(transform->program->instructions[0].step->op, RedistributeOp::kReduceScatter);
  d.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 1).status.ok());
  ExpectNothingLeft();
}

TEST_F(CoreBoundaryTest, BadShardsAreRefusedBeforeDispatch) {
  Start(2);
  ForwardRequested request = ByRows(0, 5);  // 3 and 2 rows
  ForwardRequested other = request;
  std::swap(other.shards["x"].locals[0].shape, other.shards["x"].locals[1].shape);
  EXPECT_THAT(Text(Refusal(other)), AllOf(HasSubstr("INVALID_ARGUMENT: input 'x': locals: "),
                                          HasSubstr("expected [3, 10] [2, 10]"), HasSubstr("given [2, 10] [3, 10]")));
  other = request;
  other.shards["x"].shape = {10, 10};  // never read as twice as large
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("expected [5, 10] [5, 10], given [3, 10] [2, 10]"));
  other = request;
  other.shards["x"].shape = {};
  other.shards["x"].infer_shape = true;
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("local shards without a global shape must be equal"));
  other = request;
  other.shards["x"].locals.pop_back();
  other.shards["x"].data.pop_back();
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("locals: rank 1 is missing; its block is [2, 10]"));
  other = request;
  other.shards["x"].data[1].pop_back();
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("input 'x': locals[1]: expected 80 bytes, got 79"));
  other = request;
  other.shards["x"].placements = {{"dp", Placement::Shard(0)}};
  EXPECT_THAT(Text(Refusal(other)), AllOf(HasSubstr("input 'x': placements"), HasSubstr("dp")));
  other = request;
  other.shards["x"].dtype = DType::kI32;
  EXPECT_EQ(Text(Refusal(other)), "INVALID_ARGUMENT: input 'x': is I32, expected F32[batch, 10]");
  other = request;
  other.shards["y"] = other.shards["x"];
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("input 'y': the model has no such input"));
  other = request;
  other.shards["x"].placements = {};  // copies
  other.shards["x"].locals = {{0, {5, 10}}, {1, {5, 10}}};
  other.shards["x"].data = {std::string(200, 'a'), std::string(199, 'a') + "b"};
  EXPECT_THAT(Text(Refusal(other)), HasSubstr("rank 0 and rank 1 are equal copies by the placements, but their bytes"));
  EXPECT_THAT(d.commands["a"], IsEmpty());
  ExpectNothingLeft();
}

TEST_F(CoreBoundaryTest, IdsOfShardsAreCheckedAtTheirGlobalPosition) {
  Start(2);
  ForwardRequested request;
  request.model = "m";
  request.inputs = d.Inputs(3);
  request.inputs.erase("ids");
  InputShards ids;
  ids.dtype = DType::kI64;
  ids.shape = {3, 4};
  ids.placements = {{"tp", Placement::Shard(1)}};
  ids.locals = {{0, {3, 2}}, {1, {3, 2}}};
  ids.data = {Bytes<int64_t>({0, 1, 2, 3, 4, -7}), Bytes<int64_t>({0, 1, 2, 257, 4, 5})};
  request.shards["ids"] = ids;
  // The first one in the tensor's order, as for the full tensor.
  EXPECT_EQ(Text(Refusal(request)), "INVALID_ARGUMENT: input 'ids' position [1, 3]: id 257 outside [0, 257)");
  request.shards["ids"].data[1] = Bytes<int64_t>({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(Text(Refusal(request)), "INVALID_ARGUMENT: input 'ids' position [2, 1]: id -7 outside [0, 257)");
  EXPECT_THAT(d.commands["a"], IsEmpty());
}

TEST_F(CoreBoundaryTest, RefInTheProgramsLayoutIsReadWhereItLies) {
  Start(2);
  d.MakeMesh("pair", "tp=2", {"a", "b"});
  d.MakeTensor("t", "pair", {4, 10}, {{"tp", Placement::Shard(1)}});
  const std::vector<std::string> before = Held();
  const uint64_t id = d.core.tensors().at("t").tensor_id;
  d.Do(WithRef(1, "t"));
  const auto* run = d.LastCommand<tp::Run>("b");
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->inputs[0].tensor_id, id);
  EXPECT_EQ(run->inputs[0].global_shape, (Shape{4, 10}));
  EXPECT_EQ(d.LastCommand<Transform>("b"), nullptr);
  d.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 1).status.ok());
  EXPECT_EQ(d.TensorPhaseOf("t"), "READY");
  ExpectNothingLeft(before);
}

TEST_F(CoreBoundaryTest, RefInAnotherLayoutIsRedistributedAndStaysWhatItIs) {
  Start(2);
  d.MakeMesh("pair", "tp=2", {"a", "b"});
  d.MakeTensor("t", "pair", {4, 10}, {{"tp", Placement::Shard(0)}});
  const std::vector<std::string> before = Held();
  const uint64_t id = d.core.tensors().at("t").tensor_id;
  d.Do(WithRef(1, "t"));
  const Transform* transform = d.LastCommand<Transform>("a");
  ASSERT_NE(transform, nullptr);
  EXPECT_THAT(transform->inputs, ElementsAre(id));
  EXPECT_EQ(d.commands["a"].back().mesh_id, d.core.named_meshes().at("pair").mesh_id);
  const uint64_t output = transform->outputs[0];
  // Its values are those of the call, whatever happens to the name meanwhile; the mesh can't go.
  d.Do(DeleteMeshRequested{d.Head(2), "pair"});
  EXPECT_EQ(ReplyTo<OperationReply>(d, 2).status.code(), absl::StatusCode::kFailedPrecondition);
  d.Do(DeleteTensorRequested{d.Head(3), "t"});
  EXPECT_EQ(Replies<OperationReply>(d, 3), 0);
  d.AckOne("a");
  d.AckOne("b");
  EXPECT_EQ(d.LastCommand<tp::Run>("a")->inputs[0].tensor_id, output);
  EXPECT_EQ(d.LastCommand<DropTensors>("a"), nullptr);
  d.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 1).status.ok());
  EXPECT_TRUE(ReplyTo<OperationReply>(d, 3).status.ok());
  EXPECT_NE(Held(), before);  // without the tensor
  ExpectNothingLeft();
}

TEST_F(CoreBoundaryTest, BadRefsAreRefused) {
  Start(2);
  d.MakeMesh("pair", "tp=2", {"a", "b"});
  d.MakeMesh("turned", "tp=2", {"b", "a"});
  d.MakeMesh("other", "dp=2", {"a", "b"});
  d.MakeTensor("hidden", "pair", {4, 10}, {});
  d.MakeTensor("turned", "turned", {4, 10}, {});
  d.MakeTensor("named", "other", {4, 10}, {});
  d.MakeTensor("short", "pair", {4, 9}, {});
  const std::vector<std::string> before = Held();
  EXPECT_THAT(Text(Refusal(WithRef(0, "hiden"))),
              HasSubstr("NOT_FOUND: input 'x': no tensor 'hiden'; nearest: hidden"));
  EXPECT_EQ(Text(Refusal(WithRef(0, "turned"))),
            "FAILED_PRECONDITION: input 'x': tensor 'turned' is on mesh 'turned' (tp=2 on b,a), model 'm' on a mesh "
            "tp=2 on a,b; the axes and the workers by rank must be the same");
  EXPECT_THAT(Text(Refusal(WithRef(0, "named"))), HasSubstr("mesh 'other' (dp=2 on a,b), model 'm' on a mesh tp=2"));
  EXPECT_EQ(Refusal(WithRef(0, "short")).code(), absl::StatusCode::kInvalidArgument);
  ForwardRequested request = WithRef(0, "hidden");
  request.inputs = d.Inputs(4);
  request.inputs.erase("ids");
  request.refs = {{"ids", "hidden"}};
  EXPECT_EQ(Text(Refusal(request)), "INVALID_ARGUMENT: input 'ids': is F32, expected I64[batch, 4]");
  ExpectNothingLeft(before);
  d.Lose("b");
  d.Join("b");
  d.Do(DeleteRequested{++call_, "", "m"});
  d.Stored();
  d.AckAll();
  d.Deploy("m", 2);
  const absl::Status lost = Refusal(WithRef(0, "hidden"));
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Text(lost), AllOf(HasSubstr("hidden"), HasSubstr("rank 1 (worker b) was lost")));
}

TEST_F(CoreBoundaryTest, HoweverItEndsNothingIsLeft) {
  Start(2);
  d.MakeMesh("pair", "tp=2", {"a", "b"});
  d.MakeTensor("t", "pair", {4, 10}, {{"tp", Placement::Shard(0)}});
  const std::vector<std::string> before = Held();
  const auto fail = [](const std::string&, const Command& command, Ack* ack) {
    if (!std::holds_alternative<DropTensors>(command.kind)) ack->status = absl::ResourceExhaustedError("no memory");
  };
  // A staging that fails; a cancelled one; a commit that fails; a transform that fails, that is cancelled; a run that
  // fails, and one that is cancelled.
  d.Do(ByRows(1, 3));
  d.FinishStage("b", d.stages[1].second, absl::UnavailableError("cut"));
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 1).status), "UNAVAILABLE: rank 1 (worker b): cut");
  d.stages.clear();
  ExpectNothingLeft(before);
  d.Do(ByRows(2, 3));
  d.Do(CallCancelled{2});
  EXPECT_THAT(d.Of<SendDrop>(d.last), SizeIs(2));
  EXPECT_THAT(d.Of<CancelTransfer>(d.last), SizeIs(2));
  d.stages.clear();
  ExpectNothingLeft(before);
  d.Do(ByRows(3, 3));
  d.FinishStages();
  d.AckAll(fail);
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 3).status.code(), absl::StatusCode::kResourceExhausted);
  ExpectNothingLeft(before);
  d.Do(WithRef(4, "t"));
  d.AckAll(fail);
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 4).status.code(), absl::StatusCode::kResourceExhausted);
  ExpectNothingLeft(before);
  d.Do(WithRef(5, "t"));
  d.Do(CallCancelled{5});
  d.AckAll();
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 5).status.code(), absl::StatusCode::kCancelled);
  ExpectNothingLeft(before);
  d.Do(WithRef(6, "t"));
  d.AckOne("a");
  d.AckOne("b");
  ASSERT_NE(d.LastCommand<tp::Run>("a"), nullptr);
  d.AckAll(fail);
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 6).status.code(), absl::StatusCode::kResourceExhausted);
  ExpectNothingLeft(before);
  d.Do(WithRef(7, "t"));
  d.AckOne("a");
  d.AckOne("b");
  d.Do(CallCancelled{7});
  d.AckAll();
  ExpectNothingLeft(before);
  ForwardRequested late = WithRef(8, "t");
  late.deadline = d.now + absl::Seconds(1);
  d.Do(late);
  d.Pass(absl::Seconds(2));
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 8).status.code(), absl::StatusCode::kDeadlineExceeded);
  d.AckAll();
  ExpectNothingLeft(before);
  // The model works on.
  d.Do(WithRef(9, "t"));
  d.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(d, 9).status.ok());
  // It goes away under a forward.
  d.Do(ByRows(10, 3));
  d.FinishStages();
  d.Do(DeleteRequested{11, "", "m"});
  d.Stored();
  d.AckAll();
  EXPECT_EQ(ReplyTo<ForwardReply>(d, 10).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(ReplyTo<DeleteReply>(d, 11).status.ok());
  EXPECT_EQ(d.core.running_calls(), 0);
  EXPECT_EQ(d.Reserved("a"), 80);  // the tensor
}

TEST_F(CoreBoundaryTest, LostRankFailsTheForwardInEveryPhase) {
  for (int acked = 0; acked < 2; ++acked) {
    SCOPED_TRACE(acked);
    Driver driver;
    driver.Join("a");
    driver.Join("b");
    driver.Deploy("m", 2);
    driver.MakeMesh("pair", "tp=2", {"a", "b"});
    driver.MakeTensor("t", "pair", {4, 10}, {{"tp", Placement::Shard(0)}});
    driver.Do(WithRef(1, "t"));
    for (int i = 0; i < acked; ++i) {
      driver.AckOne("a");
      driver.AckOne("b");
    }
    driver.Lose("b");
    const absl::Status status = ReplyTo<ForwardReply>(driver, 1).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(Text(status), HasSubstr("rank 1 (worker b) was lost"));
    driver.AckAll();
    EXPECT_EQ(driver.TensorPhaseOf("t"), "LOST");
    EXPECT_EQ(driver.Reserved("b"), 0);
    driver.Do(DeleteTensorRequested{driver.Head(2), "t"});
    driver.Do(DeleteRequested{3, "", "m"});
    driver.Stored();
    driver.AckAll();
    EXPECT_EQ(driver.Reserved("a"), 0);
    EXPECT_EQ(driver.core.running_calls(), 0);
  }
}

TEST_F(CoreBoundaryTest, MemoryOfTemporariesIsCounted) {
  Start(1);
  const int64_t model = d.Reserved("a");
  Driver small;
  small.Join("a", model + 100);
  small.Deploy("m", 1);
  ForwardRequested request = WithRef(1, "");
  request.refs.clear();
  InputShards x;
  x.shape = {4, 10};
  x.placements = {{"tp", Placement::Partial()}};
  x.locals = {{0, {4, 10}}};
  x.data = {std::string(160, '\0')};
  request.shards["x"] = x;
  small.Do(request);
  small.FinishStages();
  small.AckAll();
  EXPECT_TRUE(ReplyTo<ForwardReply>(small, 1).status.ok());  // on one rank P is whole: nothing is redistributed
  Driver pair;
  pair.Join("a", 3000);
  pair.Join("b", 3000);
  pair.Deploy("m", 2);
  const int64_t held = pair.Reserved("a");
  pair.Do(ByRows(2, 200));
  EXPECT_EQ(ReplyTo<ForwardReply>(pair, 2).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(ReplyTo<ForwardReply>(pair, 2).status), HasSubstr("input 'x'"));
  EXPECT_EQ(pair.Reserved("a"), held);
  EXPECT_EQ(pair.core.running_calls(), 0);
}

TEST_F(CoreBoundaryTest, ShardsOfTheAnswerAreThoseOfEveryRank) {
  Start(2);
  ForwardRequested request;
  request.model = "m";
  request.local_blocks = true;
  request.inputs = d.Inputs(1);
  request.call = 1;
  d.Do(request);
  EXPECT_TRUE(d.LastCommand<tp::Run>("a")->local_blocks);
  const auto answer = [](const std::string& worker, const Command&, Ack* ack) {
    ResultBlock block;
    block.output = "y";
    block.global_shape = block.shape = {1, 10};
    block.offset = {0, 0};
    block.data = std::string(40, worker[0]);
    ack->run.blocks = {block};
  };
  d.AckAll(answer);
  const ForwardReply reply = ReplyTo<ForwardReply>(d, 1);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.mesh, *Mesh::Parse("tp=2"));
  EXPECT_EQ(reply.outputs[0].placements, (Placements{Placement::Replicate()}));
  ASSERT_THAT(reply.blocks, SizeIs(2));  // copies included
  EXPECT_EQ(reply.blocks[0].rank, 0);
  EXPECT_EQ(reply.blocks[1].rank, 1);
  EXPECT_EQ(reply.blocks[1].data, std::string(40, 'b'));
  request.call = 2;
  d.Do(request);
  d.AckAll([&](const std::string& worker, const Command& command, Ack* ack) {
    if (worker == "a") answer(worker, command, ack);  // b is silent of its copy
  });
  EXPECT_EQ(Text(ReplyTo<ForwardReply>(d, 2).status), "INTERNAL: rank 1 answered other blocks than its own");
}

TEST(PlaceShardsTest, EmptyBlocksMayBeLeftOut) {
  const Mesh mesh = *Mesh::Parse("tp=4");
  InputShards shards;
  shards.dtype = DType::kU8;
  shards.shape = {5};
  shards.placements = {{"tp", Placement::Shard(0)}};
  shards.locals = {{2, {1}}, {1, {2}}, {0, {2}}};
  shards.data = {"c", "bb", "aa"};
  const auto placed = PlaceShards(shards, mesh);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_THAT(placed->data, ElementsAre("aa", "bb", "c", ""));
  shards.shape = {};
  shards.infer_shape = true;
  shards.locals = {{0, {2}}, {1, {2}}, {2, {2}}, {3, {2}}};
  shards.data = {"aa", "bb", "cc", "dd"};
  EXPECT_EQ(PlaceShards(shards, mesh)->shape, (Shape{8}));
}

}  // namespace
}  // namespace tp::server
