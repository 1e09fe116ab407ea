// Single steps between all kinds of placements, in one round and in many small ones, against blocks cut from the global
// tensor.
#include <cstdlib>
#include <random>
#include <set>

#include "tests/worker/tensor/rank_threads.h"

namespace tp::worker {
namespace {

const ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax};

// All placements of an axis of `size` ranks for a tensor of `rank` dims.
std::vector<Placement> AllKinds(int rank, int size) {
  std::vector<Placement> kinds = {Placement::Replicate()};
  for (const ReduceOp op : kOps) kinds.push_back(Placement::Partial(op));
  for (int d = 0; d < rank; ++d) {
    kinds.push_back(Placement::Shard(d));
    kinds.push_back(Placement::StridedShard(d, 2));
    kinds.push_back(Placement::StridedShard(d, 3));
    kinds.push_back(Placement::InterleavedShard(d, {1, 1}));
    kinds.push_back(Placement::InterleavedShard(d, {2, 1}));
    for (int groups = 2; groups <= size; ++groups) {
      if (size % groups == 0) kinds.push_back(Placement::GroupShard(d, groups));
    }
  }
  return kinds;
}

// The op that turns `from` into `to` on one axis; kNone where there is none.
RedistributeOp OpFor(const Placement& from, const Placement& to) {
  if (from == to) return RedistributeOp::kNone;
  if (from.IsReplicate()) {
    if (to.IsSharding()) return RedistributeOp::kSlice;
    return to.op == ReduceOp::kSum ? RedistributeOp::kDivide : RedistributeOp::kNone;
  }
  if (from.IsPartial()) {
    if (to.IsPartial()) return RedistributeOp::kNone;
    return to.IsReplicate() ? RedistributeOp::kAllReduce : RedistributeOp::kReduceScatter;
  }
  if (to.IsReplicate()) return RedistributeOp::kAllGather;
  if (to.IsSharding()) return RedistributeOp::kAllToAll;
  return to.op == ReduceOp::kSum ? RedistributeOp::kFill : RedistributeOp::kNone;
}

struct Case {
  RedistributeStep step;
  Shape shape;
};

std::string Describe(const Mesh& mesh, const Case& one) {
  return std::string(RedistributeOpName(one.step.op)) + " " + PlacementsText(mesh, one.step.from) + " -> " +
         PlacementsText(mesh, one.step.to) + " of " + ShapeText(one.shape) + " on " + mesh.ToString();
}

bool Fits(const Mesh& mesh, const Shape& shape, const Placements& placements) {
  return NormalizePlacements(placements, static_cast<int>(shape.size()), DType::kF32, mesh).ok() &&
         ValidateForShape(shape, placements, mesh).ok();
}

// Runs the step on every rank. A partial result is reduced over the step's axes before it is compared.
void Check(const Mesh& mesh, const std::vector<Case>& cases) {
  OnEveryRank(mesh.rank_count(), [&](int rank, Communicator& communicator, Device& device, Stream& stream) {
    for (const Case& one : cases) {
      const Coordinate at = mesh.CoordinateOf(rank);
      const SimTensor global = Counting(one.shape);
      const HostTensor local = FromSim(LocalBlock(global, one.step.from, mesh, at), DType::kF32);
      Placements reduced = one.step.to;
      for (const int axis : one.step.axes) {
        if (reduced[axis].IsPartial()) reduced[axis] = Placement::Replicate();
      }
      const SimTensor want = LocalBlock(global, reduced, mesh, at);
      for (const int64_t round_bytes : {kRoundBytes, int64_t{40}, int64_t{1}}) {
        absl::StatusOr<HostTensor> got =
            RunPlan(mesh, rank, one.shape, {{one.step}}, local, communicator, device, stream, round_bytes);
        ASSERT_TRUE(got.ok()) << got.status() << Describe(mesh, one);
        if (reduced != one.step.to) {
          const std::vector<int> group = mesh.GroupAlong(one.step.axes, rank);
          ASSERT_TRUE(communicator
                          .AllReduce(stream, group, got->bytes.data(), ElementCount(got->shape), DType::kF32,
                                     ReduceOp::kSum, absl::Now() + absl::Seconds(60))
                          .ok());
        }
        ASSERT_EQ(got->shape, want.shape) << Describe(mesh, one);
        for (size_t i = 0; i < want.values.size(); ++i) {
          ASSERT_NEAR(got->data<float>()[i], want.values[i], 1e-4)
              << Describe(mesh, one) << " rank " << rank << " element " << i << " rounds of " << round_bytes;
        }
      }
    }
  });
}

class KindsOnMesh : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Meshes, KindsOnMesh, ::testing::Values("tp=2", "tp=3", "dp=2,tp=2", "dp=2,tp=3"));

// The last axis goes through all pairs; the axes before it hold each kind in turn.
TEST_P(KindsOnMesh, EveryOpOnTheLastAxis) {
  const Mesh mesh = *Mesh::Parse(GetParam());
  const int last = static_cast<int>(mesh.axes().size()) - 1;
  std::vector<Case> cases;
  std::set<RedistributeOp> seen;
  for (const Shape& shape : std::vector<Shape>{{0}, {1}, {6}, {12}, {9}, {6, 6}, {3, 12}, {0, 6}, {2, 3, 6}}) {
    const int rank = static_cast<int>(shape.size());
    std::vector<Placement> outer = {Placement::Replicate()};
    if (last > 0) outer = AllKinds(rank, mesh.axis_size(0));
    const std::vector<Placement> kinds = AllKinds(rank, mesh.axis_size(last));
    size_t turn = 0;
    for (const Placement& from : kinds) {
      for (const Placement& to : kinds) {
        Case one{{OpFor(from, to), {last}, {}, {}}, shape};
        if (one.step.op == RedistributeOp::kNone) continue;
        if (last > 0) one.step.from.push_back(outer[turn++ % outer.size()]);
        one.step.to = one.step.from;
        one.step.from.push_back(from);
        one.step.to.push_back(to);
        if (!Fits(mesh, shape, one.step.from) || !Fits(mesh, shape, one.step.to)) continue;
        seen.insert(one.step.op);
        cases.push_back(std::move(one));
      }
    }
  }
  EXPECT_EQ(seen.size(), 7u);  // all but none and permute
  Check(mesh, cases);
}

TEST_P(KindsOnMesh, PermutesOverAllAxes) {
  const Mesh mesh = *Mesh::Parse(GetParam());
  const char* given = std::getenv("TP_TEST_SEED");
  const uint32_t seed = given == nullptr ? 5150u : static_cast<uint32_t>(std::atoi(given));
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  std::vector<int> axes;
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) axes.push_back(static_cast<int>(axis));
  std::vector<Case> cases;
  while (cases.size() < 200) {
    Shape shape;
    for (uint32_t d = 0, rank = 1 + random() % 3; d < rank; ++d) shape.push_back(random() % 10);
    Case one{{RedistributeOp::kPermute, axes, {}, {}}, shape};
    for (const MeshAxis& axis : mesh.axes()) {
      const std::vector<Placement> kinds = AllKinds(static_cast<int>(shape.size()), axis.size);
      one.step.from.push_back(kinds[random() % kinds.size()]);
      one.step.to.push_back(kinds[random() % kinds.size()]);
      if (one.step.from.back().IsPartial()) one.step.from.back() = Placement::Replicate();
      if (one.step.to.back().IsPartial()) one.step.to.back() = Placement::Replicate();
    }
    if (Fits(mesh, shape, one.step.from) && Fits(mesh, shape, one.step.to)) cases.push_back(std::move(one));
  }
  Check(mesh, cases);
}

}  // namespace
}  // namespace tp::worker
