// Every plan between random layouts, executed by one thread a rank, against blocks cut from the global tensor.
#include "worker/tensor/redistribute_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/worker/tensor/rank_threads.h"

namespace tp::worker {
namespace {

std::string Describe(const Mesh& mesh, const Placements& from, const Placements& to, const Shape& shape) {
  return PlacementsText(mesh, from) + " -> " + PlacementsText(mesh, to) + " of " + ShapeText(shape) + " on " +
         mesh.ToString();
}

Placement RandomPlacement(std::mt19937& random, int rank, int axis_size, bool target) {
  const int dim = static_cast<int>(random() % static_cast<uint32_t>(rank));
  switch (random() % 6) {
    case 0:
      return Placement::Replicate();
    case 1:
      return Placement::Partial(target ? ReduceOp::kSum : (random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax));
    case 2:
      if (axis_size % 2 == 0) return Placement::GroupShard(dim, axis_size / 2);
      return Placement::Shard(dim);
    default:
      return Placement::Shard(dim);
  }
}

struct Case {
  Shape shape;
  Placements from, to;
};

class RedistributeOnMesh : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Meshes, RedistributeOnMesh,
                         ::testing::Values("tp=1", "tp=2", "tp=3", "tp=4", "dp=2,tp=2", "dp=3,tp=2"));

TEST_P(RedistributeOnMesh, RandomPairsEqualBlocksOfTheGlobalTensor) {
  const Mesh mesh = *Mesh::Parse(GetParam());
  const char* given = std::getenv("TP_TEST_SEED");
  const uint32_t seed = given == nullptr ? 20240517u : static_cast<uint32_t>(std::atoi(given));
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  std::vector<Case> cases;
  while (cases.size() < 60) {
    Case one;
    const int rank = 1 + static_cast<int>(random() % 3);
    for (int d = 0; d < rank; ++d) one.shape.push_back(random() % 8);
    for (const MeshAxis& axis : mesh.axes()) {
      one.from.push_back(RandomPlacement(random, rank, axis.size, false));
      one.to.push_back(RandomPlacement(random, rank, axis.size, true));
    }
    if (!NormalizePlacements(one.from, rank, DType::kF32, mesh).ok()) continue;
    if (!PlanRedistribute(mesh, DType::kF32, one.shape, one.from, one.to).ok()) continue;
    cases.push_back(std::move(one));
  }
  OnEveryRank(mesh.rank_count(), [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    for (const Case& one : cases) {
      const Coordinate coordinate = mesh.CoordinateOf(rank);
      const RedistributePlan plan = *PlanRedistribute(mesh, DType::kF32, one.shape, one.from, one.to);
      // P(sum): coordinate 0 has the value, the others zeros, as is P(max) of values above 0.
      const SimTensor global = Counting(one.shape);
      const HostTensor local = FromSim(LocalBlock(global, one.from, mesh, coordinate), DType::kF32);
      const absl::StatusOr<HostTensor> result =
          RunPlan(mesh, rank, one.shape, plan, local, communicator, device, stream);
      ASSERT_TRUE(result.ok()) << result.status() << Describe(mesh, one.from, one.to, one.shape);
      // A partial target is checked by reducing it.
      Placements reduced = one.to;
      for (Placement& placement : reduced) {
        if (placement.IsPartial()) placement = Placement::Replicate();
      }
      absl::StatusOr<HostTensor> final = result;
      if (reduced != one.to) {
        final = RunPlan(mesh, rank, one.shape, *PlanRedistribute(mesh, DType::kF32, one.shape, one.to, reduced),
                        *result, communicator, device, stream);
        ASSERT_TRUE(final.ok()) << final.status();
      }
      const SimTensor want = LocalBlock(global, reduced, mesh, coordinate);
      ASSERT_EQ(final->shape, want.shape);
      for (size_t i = 0; i < want.values.size(); ++i) {
        ASSERT_NEAR(final->data<float>()[i], want.values[i], 1e-3)
            << Describe(mesh, one.from, one.to, one.shape) << " rank " << rank << " element " << i;
      }
    }
  });
}

// SEMANTICS 8, case 5: each rank holds arange(16) as 4x4.
TEST(Redistribute, AllToAllOfTheWorkedCase) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  const RedistributeStep step{RedistributeOp::kAllToAll, {0}, {Placement::Shard(0)}, {Placement::Shard(1)}};
  OnEveryRank(2, [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    std::vector<float> values;
    for (int i = 0; i < 16; ++i) values.push_back(static_cast<float>(i));
    const auto result =
        RunPlan(mesh, rank, {8, 4}, {{step}}, MakeHostTensor<float>({4, 4}, values), communicator, device, stream);
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<float> want;
    for (int twice = 0; twice < 2; ++twice) {
      for (int row = 0; row < 4; ++row) {
        want.push_back(static_cast<float>(4 * row + 2 * rank));
        want.push_back(static_cast<float>(4 * row + 2 * rank + 1));
      }
    }
    EXPECT_EQ(*result, MakeHostTensor<float>({8, 2}, want));
  });
}

TEST(Redistribute, IntegersDivideExactlyAndBF16PartialsSumInF32) {
  const Mesh mesh = *Mesh::Parse("tp=4");
  const Placements replicate{Placement::Replicate()}, partial{Placement::Partial()};
  OnEveryRank(4, [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    const auto terms = RunPlan(mesh, rank, {1}, {{{RedistributeOp::kDivide, {0}, replicate, partial}}},
                               MakeHostTensor<int64_t>({1}, {5}), communicator, device, stream);
    ASSERT_TRUE(terms.ok()) << terms.status();
    EXPECT_EQ(*terms, MakeHostTensor<int64_t>({1}, {rank == 0 ? 5 : 0}));
    const RedistributePlan reduce{{{RedistributeOp::kAllReduce, {0}, partial, replicate}}};
    EXPECT_EQ(*RunPlan(mesh, rank, {1}, reduce, *terms, communicator, device, stream),
              MakeHostTensor<int64_t>({1}, {5}));
    const HostTensor term = ConvertTo(MakeHostTensor<float>({1}, {rank == 0 ? 256.f : 1.f}), DType::kBF16);
    const auto sum = RunPlan(mesh, rank, {1}, reduce, term, communicator, device, stream);
    ASSERT_TRUE(sum.ok()) << sum.status();
    // 259 rounds to even: 260 in bf16. Added one by one in bf16 it would stay 256.
    EXPECT_EQ(ConvertTo(*sum, DType::kF32), MakeHostTensor<float>({1}, {260.f}));
  });
}

TEST(Redistribute, TooLittleScratchOrOtherShapesAreInternalErrors) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  OnEveryRank(2, [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    const Coordinate coordinate{rank};
    const RedistributeContext context{device, stream, communicator, mesh, coordinate, absl::Now() + absl::Seconds(9)};
    std::vector<float> a(4), b(2);
    const RedistributeStep scatter{
        RedistributeOp::kReduceScatter, {0}, {Placement::Partial()}, {Placement::StridedShard(0, 2)}};
    const TensorView result{DType::kF32, b.data(), {2}};
    for (const Shape& shape : {Shape{4}, Shape{3}}) {
      const absl::Status status =
          ExecuteRedistributeStep(context, scatter, {4}, {DType::kF32, a.data(), shape}, result, {nullptr, 0}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    }
  });
}

}  // namespace
}  // namespace tp::worker
