// Named tensors on ranks: making them, reading them back, redistributing, failing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/forwarding_device.h"
#include "tests/support/tensor_cluster.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

Placements Parse(const Mesh& mesh, const std::string& text) { return *ParsePlacements(mesh, text); }

struct PutCase {
  std::string mesh;
  Shape shape;
  DType dtype;
  std::string placements;
};

class PutAndGet : public ::testing::TestWithParam<PutCase> {};

TEST_P(PutAndGet, EveryRankHoldsItsBlockAndOwnersGiveTheWhole) {
  const PutCase& test = GetParam();
  const Mesh axes = *Mesh::Parse(test.mesh);
  RuntimeCluster cluster(axes.rank_count());
  TensorCluster tensors(cluster);
  std::vector<int> members;
  for (int rank = 0; rank < axes.rank_count(); ++rank) members.push_back(axes.rank_count() - 1 - rank);
  const TestMesh mesh = *tensors.Connect(test.mesh, members);
  const HostTensor value = Counting(test.dtype, test.shape);
  const Placements placements = Parse(axes, test.placements);
  ASSERT_EQ(tensors.Put(mesh, 5, value, placements), absl::OkStatus());
  for (int rank = 0; rank < axes.rank_count(); ++rank) {
    EXPECT_EQ(*tensors.Block(mesh, 5, rank), BlockAt(value, placements, axes, rank)) << rank;
    EXPECT_EQ(cluster.runtime(mesh.members[rank]).Usage().used_bytes,
              static_cast<int64_t>(BlockAt(value, placements, axes, rank).bytes.size()));
  }
  EXPECT_EQ(*tensors.Get(mesh, 5), value);
  EXPECT_EQ(tensors.Drop(mesh, {5}).status, absl::OkStatus());
  for (int rank = 0; rank < axes.rank_count(); ++rank) EXPECT_EQ(cluster.runtime(rank).Usage().used_bytes, 0);
  EXPECT_EQ(tensors.Get(mesh, 5).status().code(), absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PutAndGet,
                         ::testing::Values(PutCase{"tp=1", {3, 2}, DType::kF32, "tp=R"},
                                           PutCase{"tp=4", {5, 10}, DType::kF32, "tp=S(0)"},
                                           PutCase{"tp=3", {2, 7}, DType::kF64, "tp=S(1)"},
                                           PutCase{"tp=2", {8, 3}, DType::kI64, "tp=SS(0,2)"},
                                           PutCase{"tp=2", {3, 12}, DType::kBF16, "tp=IS(1,[4,1,1])"},
                                           PutCase{"tp=4", {4, 3}, DType::kI32, "tp=GS(0,2)"},
                                           PutCase{"dp=2,tp=2", {5, 3}, DType::kF16, "dp=S(0),tp=S(0)"},
                                           PutCase{"dp=2,tp=3", {9, 8}, DType::kBool, "dp=SS(0,3),tp=SS(1,2)"},
                                           PutCase{"tp=3", {}, DType::kU8, "tp=R"},
                                           PutCase{"tp=3", {0, 4}, DType::kF32, "tp=S(0)"}));

TEST(Tensors, ChainsOfTransformsKeepTheValueAndTheOperands) {
  RuntimeCluster cluster(4);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("dp=2,tp=2", {0, 1, 2, 3});
  const HostTensor value = Counting(DType::kF32, {5, 3});
  ASSERT_EQ(tensors.Put(mesh, 1, value, Parse(mesh.mesh, "dp=R,tp=R")), absl::OkStatus());
  uint64_t id = 1;
  for (const char* text : {"dp=S(0),tp=S(0)", "dp=S(1),tp=S(1)", "dp=R,tp=S(0)", "dp=S(0),tp=R", "dp=R,tp=R"}) {
    const Placements target = Parse(mesh.mesh, text);
    const ClusterAnswer answer = tensors.Redistribute(mesh, id, id + 1, target);
    ASSERT_EQ(answer.status, absl::OkStatus()) << text;
    ++id;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(*tensors.Block(mesh, id, rank), BlockAt(value, target, mesh.mesh, rank)) << text;
    }
  }
  for (uint64_t each = 1; each <= id; ++each) EXPECT_EQ(*tensors.Get(mesh, each), value);
}

TEST(Tensors, ATransformCountsItsCollectives) {
  RuntimeCluster cluster(4);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=4", {0, 1, 2, 3});
  ASSERT_EQ(tensors.Put(mesh, 1, Counting(DType::kF32, {5, 10}), Parse(mesh.mesh, "tp=S(0)")), absl::OkStatus());
  const ClusterAnswer answer = tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=R"));
  ASSERT_EQ(answer.status, absl::OkStatus());
  for (const Ack& ack : answer.acks) {
    ASSERT_EQ(ack.run.collectives.size(), 1u);
    EXPECT_EQ(ack.run.collectives[0].module, "");
    EXPECT_EQ(ack.run.collectives[0].op, "all_gather");
    EXPECT_EQ(ack.run.collectives[0].axis, "tp");
    EXPECT_EQ(ack.run.collectives[0].bytes, 200);  // rank 3 has no row and receives all 5
    EXPECT_GT(ack.run.wire_bytes, 0);
  }
}

TEST(Tensors, TermsOfAPartialAreKeptAndReduced) {
  RuntimeCluster cluster(3);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=3", {0, 1, 2});
  std::vector<HostTensor> terms;
  for (float term : {1.0f, 10.0f, 100.0f}) terms.push_back(MakeHostTensor<float>({2}, {term, 2 * term}));
  ASSERT_EQ(tensors.PutBlocks(mesh, 1, {2}, Parse(mesh.mesh, "tp=P(sum)"), terms), absl::OkStatus());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(*tensors.Block(mesh, 1, rank), terms[rank]);
  ASSERT_EQ(tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=R")).status, absl::OkStatus());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(*tensors.Block(mesh, 2, rank), MakeHostTensor<float>({2}, {111, 222}));
    EXPECT_EQ(*tensors.Block(mesh, 1, rank), terms[rank]);
  }
}

TEST(Tensors, AnOutputThatEqualsItsOperandSharesItsMemory) {
  RuntimeCluster cluster(2);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1});
  const HostTensor value = Counting(DType::kF32, {4});
  ASSERT_EQ(tensors.Put(mesh, 1, value, Parse(mesh.mesh, "tp=S(0)")), absl::OkStatus());
  ASSERT_EQ(tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=S(0)")).status, absl::OkStatus());
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 8);
  ASSERT_EQ(tensors.Drop(mesh, {1}).status, absl::OkStatus());
  EXPECT_EQ(*tensors.Get(mesh, 2), value);
  ASSERT_EQ(tensors.Drop(mesh, {2, 99}).status, absl::OkStatus());
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 0);
}

TEST(Tensors, ABroadcastFillsTheCopiesFromTheSourceRank) {
  RuntimeCluster cluster(6);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("dp=3,tp=2", {0, 1, 2, 3, 4, 5});
  const Placements placements = Parse(mesh.mesh, "dp=R,tp=S(0)");
  // Every rank has other bytes; those of dp coordinate 1 (ranks 2 and 3) win.
  std::vector<HostTensor> blocks;
  for (float rank = 0; rank < 6; ++rank) blocks.push_back(MakeHostTensor<float>({2}, {rank, -rank}));
  ASSERT_EQ(tensors.PutBlocks(mesh, 1, {4}, placements, blocks), absl::OkStatus());
  const ClusterAnswer answer = tensors.Command(mesh, Broadcast{{1}, 1});
  ASSERT_EQ(answer.status, absl::OkStatus());
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(*tensors.Block(mesh, 1, rank), blocks[rank % 2 == 0 ? 2 : 3]) << rank;
    EXPECT_THAT(answer.acks[rank].run.collectives, ElementsAre(CollectiveRecord{"", "broadcast", "dp", 8, ""}));
  }
  EXPECT_EQ(tensors.Command(mesh, Broadcast{{1}, 3}).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tensors.Command(mesh, Broadcast{{7}, 0}).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(tensors.Command(mesh, Broadcast{{1}, 0}).status, absl::OkStatus());
}

TEST(Tensors, ABlockForABroadcastIsAllocatedOnly) {
  RuntimeCluster cluster(2);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1});
  NewTensor tensor;
  tensor.tensor_id = 3;
  tensor.state = {"t", {5}, DType::kF64, Parse(mesh.mesh, "tp=R"), {}, false, false};
  tensor.origin = NewTensor::Origin::kBroadcast;
  ASSERT_EQ(tensors.Stage(mesh, {tensor}), absl::OkStatus());
  EXPECT_EQ(cluster.runtime(1).Usage().used_bytes, 40);
}

TEST(Tensors, InitializersGiveTheSameValuesOnEveryMesh) {
  RuntimeCluster cluster(4);
  TensorCluster tensors(cluster);
  NewTensor tensor;
  tensor.state = {"noise", {7, 6}, DType::kF32, {}, {}, false, false};
  tensor.state.source.kind = WeightSource::Kind::kInitializer;
  tensor.state.source.initializer = {Initializer::Kind::kNormal, 0, 1};
  std::vector<HostTensor> values;
  for (const auto& [axes, placements] : std::vector<std::pair<std::string, std::string>>{
           {"tp=1", "tp=R"}, {"tp=4", "tp=S(0)"}, {"dp=2,tp=2", "dp=S(1),tp=S(0)"}}) {
    std::vector<int> members;
    for (int rank = 0; rank < Mesh::Parse(axes)->rank_count(); ++rank) members.push_back(rank);
    const TestMesh mesh = *tensors.Connect(axes, members);
    tensor.tensor_id = 10 + values.size();
    tensor.state.placements = Parse(mesh.mesh, placements);
    ASSERT_EQ(tensors.Stage(mesh, {tensor}, 4), absl::OkStatus());
    values.push_back(*tensors.Get(mesh, tensor.tensor_id));
  }
  EXPECT_EQ(values[1], values[0]);
  EXPECT_EQ(values[2], values[0]);
  EXPECT_NE(values[0].data<float>()[0], values[0].data<float>()[1]);
}

TEST(Tensors, AnotherMeshOrAnIdThatIsThereIsRefusedOnAllRanks) {
  RuntimeCluster cluster(2);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1});
  const TestMesh other = *tensors.Connect("tp=2", {1, 0});
  ASSERT_EQ(tensors.Put(mesh, 1, Counting(DType::kF32, {4}), Parse(mesh.mesh, "tp=S(0)")), absl::OkStatus());
  EXPECT_EQ(tensors.Redistribute(other, 1, 2, Parse(mesh.mesh, "tp=R")).status.code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tensors.Redistribute(mesh, 1, 1, Parse(mesh.mesh, "tp=R")).status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=R")).status, absl::OkStatus());
}

struct MoveCase {
  std::string source_mesh, source, target_mesh, target;
  std::vector<int> source_members, target_members;
};

class Moves : public ::testing::TestWithParam<MoveCase> {};

TEST_P(Moves, TheTargetsRanksGetTheirBlocksAndTheSourceStays) {
  const MoveCase& test = GetParam();
  RuntimeCluster cluster(4);
  TensorCluster tensors(cluster);
  const TestMesh source = *tensors.Connect(test.source_mesh, test.source_members);
  const TestMesh target = *tensors.Connect(test.target_mesh, test.target_members);
  const TestMesh link = *tensors.Link(source, target);
  uint64_t id = 1;
  for (const Shape& shape : {Shape{7, 5}, Shape{1, 2}, Shape{0, 3}}) {
    const HostTensor value = Counting(DType::kF32, shape);
    const Placements from = Parse(source.mesh, test.source), to = Parse(target.mesh, test.target);
    ASSERT_EQ(tensors.Put(source, id, value, from), absl::OkStatus());
    const ClusterAnswer answer = tensors.Move(source, id, target, id + 1, to, link);
    ASSERT_EQ(answer.status, absl::OkStatus());
    for (int rank = 0; rank < target.mesh.rank_count(); ++rank) {
      EXPECT_EQ(*tensors.Block(target, id + 1, rank), BlockAt(value, to, target.mesh, rank));
    }
    EXPECT_EQ(*tensors.Get(source, id), value);
    for (const Ack& ack : answer.acks) {
      ASSERT_EQ(ack.run.collectives.size(), 1u);
      EXPECT_EQ(ack.run.collectives[0].op, "permute");
    }
    id += 2;
  }
  // Works as a tensor of the target's mesh.
  EXPECT_EQ(tensors.Redistribute(target, 2, 100, Placements(static_cast<size_t>(target.mesh.axis_count()))).status,
            absl::OkStatus());
  EXPECT_EQ(*tensors.Get(target, 100), Counting(DType::kF32, {7, 5}));
}

INSTANTIATE_TEST_SUITE_P(Meshes, Moves,
                         ::testing::Values(MoveCase{"tp=2", "tp=S(0)", "tp=2", "tp=S(1)", {0, 1}, {2, 3}},
                                           MoveCase{
                                               "tp=3", "tp=S(1)", "dp=2,tp=2", "dp=S(0),tp=R", {2, 0, 1}, {0, 1, 2, 3}},
                                           MoveCase{"dp=2,tp=2", "dp=R,tp=S(0)", "x=2", "x=S(0)", {0, 1, 2, 3}, {3, 1}},
                                           MoveCase{"tp=2", "tp=R", "tp=1", "tp=R", {0, 1}, {3}},
                                           MoveCase{"tp=2", "tp=S(0)", "tp=2", "tp=S(0)", {0, 1}, {1, 0}}));

TEST(Tensors, AMoveToAPartialOrOfAWrongInputIsRefusedOnAllRanks) {
  RuntimeCluster cluster(3);
  TensorCluster tensors(cluster);
  const TestMesh source = *tensors.Connect("tp=2", {0, 1});
  const TestMesh target = *tensors.Connect("tp=2", {1, 2});
  const TestMesh link = *tensors.Link(source, target);
  const HostTensor value = Counting(DType::kF32, {4});
  ASSERT_EQ(tensors.Put(source, 1, value, Parse(source.mesh, "tp=S(0)")), absl::OkStatus());
  EXPECT_EQ(tensors.Move(source, 1, target, 2, Parse(target.mesh, "tp=P(sum)"), link).status.code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(tensors.Drop(source, {1}).status, absl::OkStatus());
  const ClusterAnswer missing = tensors.Move(source, 1, target, 2, Parse(target.mesh, "tp=R"), link);
  EXPECT_EQ(missing.status.code(), absl::StatusCode::kNotFound);
  for (const Ack& ack : missing.acks) EXPECT_FALSE(ack.status.ok());
  ASSERT_EQ(tensors.Put(source, 1, value, Parse(source.mesh, "tp=S(0)")), absl::OkStatus());
  EXPECT_EQ(tensors.Move(source, 1, target, 2, Parse(target.mesh, "tp=R"), link).status, absl::OkStatus());
}

TEST(Tensors, ASendThatNobodyReadsHoldsUpNothingAndKeepsItsBytes) {
  RuntimeCluster cluster(2);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1});
  const HostTensor value = Counting(DType::kF32, {6, 700});
  const Placements columns = Parse(mesh.mesh, "tp=S(1)");
  ASSERT_EQ(tensors.Put(mesh, 1, value, columns), absl::OkStatus());
  cluster.runtime(0).StartStage({500, 1, StageSend{1, 900}});
  EXPECT_EQ(cluster.sink(0).ResultOf(500).status, absl::OkStatus());
  EXPECT_EQ(tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=R")).status, absl::OkStatus());
  EXPECT_EQ(tensors.Drop(mesh, {1, 2}).status, absl::OkStatus());
  EXPECT_EQ(cluster.runtime(1).Usage().used_bytes, 0);
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 6 * 350 * 4);  // until it is sent
  EXPECT_THAT(cluster.sink(0).DataOf(900), ElementsAre(BlockAt(value, columns, mesh.mesh, 0).bytes));
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 0);
}

TEST(Tensors, CheckedCollectivesGiveTheSame) {
  RuntimeCluster cluster(3);
  for (int rank = 0; rank < 3; ++rank) cluster.runtime(rank).Reset(1, true);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=3", {0, 1, 2});
  const HostTensor value = Counting(DType::kF32, {5, 4});
  ASSERT_EQ(tensors.Put(mesh, 1, value, Parse(mesh.mesh, "tp=S(0)")), absl::OkStatus());
  const ClusterAnswer answer = tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=S(1)"));
  ASSERT_EQ(answer.status, absl::OkStatus());
  EXPECT_EQ(*tensors.Get(mesh, 2), value);
}

TEST(Tensors, ALostPeerEndsTheEpochNotTheTensors) {
  RuntimeCluster cluster(2);
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1});
  const HostTensor value = Counting(DType::kF32, {4});
  ASSERT_EQ(tensors.Put(mesh, 1, value, Parse(mesh.mesh, "tp=S(0)")), absl::OkStatus());
  for (int rank : {0, 1}) cluster.runtime(rank).AbortEpoch(mesh.id, mesh.epoch, "rank 1 is lost");
  const ClusterAnswer answer = tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=R"));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("rank 1 is lost"));
  EXPECT_EQ(*tensors.Block(mesh, 1, 0), BlockAt(value, Parse(mesh.mesh, "tp=S(0)"), mesh.mesh, 0));
  EXPECT_EQ(tensors.Drop(mesh, {1}).status, absl::OkStatus());
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 0);
}

// Fails one allocation of a size.
class FailingAllocation : public ForwardingDevice {
 public:
  FailingAllocation(std::unique_ptr<worker::Device> device, std::shared_ptr<std::atomic<int64_t>> fails)
      : ForwardingDevice(std::move(device)), fails_(std::move(fails)) {}
  absl::StatusOr<std::unique_ptr<worker::DeviceBuffer>> Allocate(int64_t bytes) override {
    int64_t wanted = bytes;
    if (fails_->compare_exchange_strong(wanted, -1)) return absl::ResourceExhaustedError("no memory here");
    return ForwardingDevice::Allocate(bytes);
  }

 private:
  const std::shared_ptr<std::atomic<int64_t>> fails_;
};

TEST(Tensors, AnAllocationThatFailsOnOneRankIsOneErrorOnAllAndTheNextCommandWorks) {
  const auto fails = std::make_shared<std::atomic<int64_t>>(-1);
  RuntimeCluster cluster(3, [&](int rank, std::unique_ptr<worker::Device> device) -> std::unique_ptr<worker::Device> {
    if (rank != 1) return device;
    return std::make_unique<FailingAllocation>(std::move(device), fails);
  });
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=3", {0, 1, 2});
  const HostTensor value = Counting(DType::kF32, {7, 5});
  ASSERT_EQ(tensors.Put(mesh, 1, value, Parse(mesh.mesh, "tp=S(0)")), absl::OkStatus());
  *fails = 7 * 2 * 4;  // rank 1's columns
  const ClusterAnswer failed = tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=S(1)"));
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kResourceExhausted);
  for (const Ack& ack : failed.acks) {
    EXPECT_FALSE(ack.status.ok());
    EXPECT_EQ(ack.failed_rank, 1);
  }
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(tensors.Block(mesh, 2, rank).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*tensors.Get(mesh, 1), value);
  ASSERT_EQ(tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=S(1)")).status, absl::OkStatus());
  EXPECT_EQ(*tensors.Get(mesh, 2), value);

  *fails = 20 * 4;
  NewTensor tensor;
  tensor.tensor_id = 9;
  tensor.state = {"big", {20}, DType::kF32, Parse(mesh.mesh, "tp=R"), {}, false, false};
  tensor.state.source.kind = WeightSource::Kind::kInitializer;
  std::vector<StageResult> results;
  EXPECT_EQ(tensors.Stage(mesh, {tensor}, 0, &results).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(results[0].status, absl::OkStatus());
  EXPECT_THAT(std::string(results[1].status.message()), HasSubstr("tensor 'big'"));
  cluster.runtime(0).DropStage(results[0].stage_id);
  // Rank 0 has 3 rows of 5 and 2 columns of 7 again.
  EXPECT_EQ(cluster.runtime(0).Usage().used_bytes, 4 * (3 * 5 + 7 * 2));
}

TEST(Tensors, AFailedCopyDuringATransformIsOneErrorAndPublishesNothing) {
  class FailingCopy : public ForwardingDevice {
   public:
    FailingCopy(std::unique_ptr<worker::Device> device, std::shared_ptr<std::atomic<int64_t>> fails)
        : ForwardingDevice(std::move(device)), fails_(std::move(fails)) {}
    absl::Status CopyBox(Stream& s, const In& from, absl::Span<const int64_t> from_offset, const Out& to,
                         absl::Span<const int64_t> to_offset, absl::Span<const int64_t> sizes) override {
      if (*fails_ == 1) return absl::InternalError("broken copy");
      return ForwardingDevice::CopyBox(s, from, from_offset, to, to_offset, sizes);
    }

   private:
    const std::shared_ptr<std::atomic<int64_t>> fails_;
  };
  const auto fails = std::make_shared<std::atomic<int64_t>>(0);
  RuntimeCluster cluster(2, [&](int rank, std::unique_ptr<worker::Device> device) -> std::unique_ptr<worker::Device> {
    if (rank != 1) return device;
    return std::make_unique<FailingCopy>(std::move(device), fails);
  });
  TensorCluster tensors(cluster);
  const TestMesh mesh = *tensors.Connect("tp=2", {0, 1});
  const HostTensor value = Counting(DType::kF32, {3, 4});
  ASSERT_EQ(tensors.Put(mesh, 1, value, Parse(mesh.mesh, "tp=R")), absl::OkStatus());
  *fails = 1;
  const ClusterAnswer failed = tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=S(1)"));  // a local slice
  EXPECT_THAT(std::string(failed.status.message()), HasSubstr("broken copy"));
  for (const Ack& ack : failed.acks) EXPECT_EQ(ack.failed_rank, 1);
  *fails = 0;
  ASSERT_EQ(tensors.Redistribute(mesh, 1, 2, Parse(mesh.mesh, "tp=S(1)")).status, absl::OkStatus());
  EXPECT_EQ(*tensors.Get(mesh, 2), value);
}

// --- Stages with data streams.

class TensorStage : public ::testing::Test {
 protected:
  static NewTensor Wanted(uint64_t id, uint64_t transfer, int64_t elements) {
    NewTensor tensor;
    tensor.tensor_id = id;
    tensor.state = {absl::StrCat("t", id), {elements}, DType::kU8, {Placement::Replicate()}, {}, false, false};
    tensor.origin = NewTensor::Origin::kTransfer;
    tensor.transfer_id = transfer;
    return tensor;
  }
  uint64_t Start(std::vector<NewTensor> tensors) {
    const uint64_t id = cluster_.NextStageId();
    cluster_.runtime(0).StartStage({id, 1, StageTensors{7, *Mesh::Parse("tp=1"), 0, 0, std::move(tensors)}});
    return id;
  }
  bool Give(uint64_t stage, uint64_t transfer, const std::string& bytes, bool last,
            absl::Status status = absl::OkStatus()) {
    return cluster_.runtime(0).ReceiveData(stage, transfer, bytes, last, std::move(status));
  }
  RuntimeCluster cluster_{1};
};

TEST_F(TensorStage, SeveralTransfersFinishInAnyOrder) {
  const uint64_t id = Start({Wanted(1, 11, 3), Wanted(2, 12, 5), Wanted(3, 0, 0)});
  EXPECT_EQ(cluster_.sink(0).WantedSize(11), 3);
  EXPECT_EQ(cluster_.sink(0).WantedSize(12), 5);
  EXPECT_TRUE(Give(id, 12, "he", false));
  EXPECT_TRUE(Give(id, 11, "abc", true));
  EXPECT_TRUE(Give(id, 12, "llo", true));
  EXPECT_EQ(cluster_.sink(0).ResultOf(id).status, absl::OkStatus());
  EXPECT_EQ(cluster_.sink(0).last_progress(), 8);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 8);
  EXPECT_FALSE(Give(id, 12, "more", true));
  cluster_.Send([&](int) { return Commit{{id}}; });
  EXPECT_EQ(cluster_.Collect().status, absl::OkStatus());
  cluster_.runtime(0).StartStage({77, 1, StageSend{2, 500}});
  EXPECT_EQ(cluster_.sink(0).ResultOf(77).status, absl::OkStatus());
  EXPECT_THAT(cluster_.sink(0).DataOf(500), ElementsAre("hello"));
}

TEST_F(TensorStage, TooManyOrTooFewBytesFailAndFreeAll) {
  uint64_t transfer = 20;
  for (const auto& [bytes, last] : std::vector<std::pair<std::string, bool>>{{"toomuch", false}, {"few", true}}) {
    const uint64_t id = Start({Wanted(1, transfer, 5), Wanted(2, transfer + 1, 5)});
    EXPECT_EQ(cluster_.sink(0).WantedSize(transfer + 1), 5);
    Give(id, transfer, bytes, last);
    const absl::Status status = cluster_.sink(0).ResultOf(id).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("expected 5 bytes, got ", bytes.size())));
    EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 0);
    EXPECT_FALSE(Give(id, transfer + 1, "x", false));
    cluster_.Send([&](int) { return Commit{{id}}; });
    EXPECT_EQ(cluster_.Collect().status.code(), absl::StatusCode::kFailedPrecondition);
    cluster_.runtime(0).DropStage(id);
    transfer += 2;
  }
  EXPECT_THAT(cluster_.sink(0).dropped(), IsSupersetOf({20, 21, 22, 23}));
}

TEST_F(TensorStage, AStreamThatBreaksIsTheStagesFailure) {
  const uint64_t id = Start({Wanted(1, 20, 5)});
  EXPECT_EQ(cluster_.sink(0).WantedSize(20), 5);
  Give(id, 20, "ab", false);
  Give(id, 20, "", true, absl::UnavailableError("the client is gone"));
  EXPECT_EQ(cluster_.sink(0).ResultOf(id).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 0);
}

TEST_F(TensorStage, ADropFreesAllAndCancelsTheStreams) {
  const uint64_t id = Start({Wanted(1, 20, 5), Wanted(2, 21, 1 << 20)});
  EXPECT_EQ(cluster_.sink(0).WantedSize(21), 1 << 20);
  Give(id, 20, "abcde", true);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, (1 << 20) + 5);
  cluster_.runtime(0).DropStage(id);
  EXPECT_EQ(cluster_.sink(0).ResultOf(id).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 0);
  EXPECT_THAT(cluster_.sink(0).dropped(), IsSupersetOf({20, 21}));
  EXPECT_FALSE(Give(id, 21, "x", false));
  // A finished one too.
  const uint64_t done = Start({Wanted(1, 30, 2)});
  EXPECT_EQ(cluster_.sink(0).WantedSize(30), 2);
  Give(done, 30, "ab", true);
  EXPECT_EQ(cluster_.sink(0).ResultOf(done).status, absl::OkStatus());
  cluster_.runtime(0).DropStage(done);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 0);
}

TEST_F(TensorStage, ANewSessionForgetsTensorsAndStages) {
  const uint64_t id = Start({Wanted(1, 20, 5)});
  EXPECT_EQ(cluster_.sink(0).WantedSize(20), 5);
  Give(id, 20, "abcde", true);
  EXPECT_EQ(cluster_.sink(0).ResultOf(id).status, absl::OkStatus());
  cluster_.Send([&](int) { return Commit{{id}}; });
  EXPECT_EQ(cluster_.Collect().status, absl::OkStatus());
  const uint64_t under_way = Start({Wanted(2, 21, 50)});
  EXPECT_EQ(cluster_.sink(0).WantedSize(21), 50);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 55);
  cluster_.runtime(0).Reset(2);
  EXPECT_EQ(cluster_.runtime(0).Usage().used_bytes, 0);
  EXPECT_FALSE(Give(under_way, 21, "x", false));
}

TEST_F(TensorStage, BadStagesAreRefused) {
  EXPECT_EQ(cluster_.sink(0).ResultOf(Start({Wanted(1, 20, 5), Wanted(1, 21, 5)})).status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster_.sink(0).ResultOf(Start({Wanted(1, 20, 5), Wanted(2, 20, 5)})).status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster_.sink(0).ResultOf(Start({Wanted(1, 20, int64_t{1} << 60)})).status.code(),
            absl::StatusCode::kResourceExhausted);
  cluster_.runtime(0).StartStage({99, 1, StageSend{1, 5}});
  EXPECT_EQ(cluster_.sink(0).ResultOf(99).status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tp::testing
