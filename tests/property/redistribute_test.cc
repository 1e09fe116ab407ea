// Executes plans by the definition of their steps on the arrays of all ranks at once, and compares with slicing the
// global tensor. Which elements a rank holds is worked out here element by element, apart from common/layout.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/redistribute/plan.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

constexpr DType kDType = DType::kF32;

// Terms are multiples of it, so that every division by group sizes (at most two, of at most 4 ranks) is exact.
constexpr int64_t kUnit = 144;

// Sanitizers make everything some ten times slower: fewer samples there.
#ifdef TP_SANITIZE
constexpr size_t kSamples = 1;
#else
constexpr size_t kSamples = 6;
#endif

using Indices = std::vector<int64_t>;

// The positions of 0..n-1 for which position / ceil(n / k) == r.
Indices NaiveCut(const Indices& held, int64_t k, int64_t r) {
  const int64_t n = static_cast<int64_t>(held.size());
  Indices kept;
  for (int64_t i = 0; i < n; ++i) {
    if (i / ((n + k - 1) / k) == r) kept.push_back(held[i]);
  }
  return kept;
}

Indices NaiveOwned(int64_t n, int dim, const Placements& placements, const Mesh& mesh, const Coordinate& at) {
  Indices held(n);
  for (int64_t i = 0; i < n; ++i) held[i] = i;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& p = placements[axis];
    const int size = mesh.axis_size(static_cast<int>(axis));
    if (p == Placement::Shard(dim)) held = NaiveCut(held, size, at[axis]);
    if (p.kind == PlacementKind::kGroupShard && p.dim == dim) {
      held = NaiveCut(held, p.groups, at[axis] / (size / p.groups));
    }
  }
  return held;
}

// Global row-major positions that a rank holds, ascending: the element map of its block.
Indices NaiveBlock(const Shape& shape, const Placements& placements, const Mesh& mesh, const Coordinate& at) {
  Indices block = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    Indices next;
    for (const int64_t base : block) {
      for (const int64_t i : NaiveOwned(shape[d], static_cast<int>(d), placements, mesh, at)) {
        next.push_back(base * shape[d] + i);
      }
    }
    block = std::move(next);
  }
  return block;
}

struct Block {
  Indices where;               // global positions
  std::vector<int64_t> value;  // one for each
  bool operator==(const Block&) const = default;
};

int64_t Reduce(ReduceOp op, const std::vector<int64_t>& terms) {
  int64_t result = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += terms[i];
        break;
      case ReduceOp::kMin:
        result = std::min(result, terms[i]);
        break;
      case ReduceOp::kMax:
        result = std::max(result, terms[i]);
        break;
      case ReduceOp::kProduct:
        result *= terms[i];
        break;
    }
  }
  if (op != ReduceOp::kAvg) return result;
  EXPECT_EQ(result % static_cast<int64_t>(terms.size()), 0);
  return result / static_cast<int64_t>(terms.size());
}

class Simulation {
 public:
  Simulation(const Mesh& mesh, const Shape& shape) : mesh_(mesh), shape_(shape) {}

  // Random terms in the layout `from`; equal copies get equal values. Keeps the reduced global tensor.
  void Fill(const Placements& from, std::mt19937& random) {
    std::uniform_int_distribution<int64_t> value(-9, 9);
    const int64_t count = ElementCount(shape_);
    // One global array for each coordinate on the partial axes, shared by all ranks there.
    std::vector<std::vector<int64_t>> terms(mesh_.rank_count());
    for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
      Coordinate at = mesh_.CoordinateOf(rank);
      for (size_t axis = 0; axis < from.size(); ++axis) {
        if (!from[axis].IsPartial()) at[axis] = 0;
      }
      std::vector<int64_t>& mine = terms[rank];
      mine = terms[mesh_.RankAt(at)];
      // Negative for the most part: a padding of 0 would win a max.
      while (static_cast<int64_t>(mine.size()) < count) mine.push_back((value(random) - 10) * kUnit);
      Block block{NaiveBlock(shape_, from, mesh_, mesh_.CoordinateOf(rank)), {}};
      for (const int64_t position : block.where) block.value.push_back(mine[position]);
      blocks_.push_back(std::move(block));
    }
    global_ = ReduceAll(from, terms);
  }

  void Run(const RedistributeStep& step) {
    std::vector<Block> after;
    for (int rank = 0; rank < mesh_.rank_count(); ++rank) after.push_back(RunOnRank(step, rank));
    blocks_ = std::move(after);
  }

  // Every rank holds what slicing the global tensor gives; partial terms reduce to it.
  void ExpectLayout(const Placements& to) {
    bool partial = false;
    for (const Placement& placement : to) partial = partial || placement.IsPartial();
    for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
      const Coordinate at = mesh_.CoordinateOf(rank);
      ASSERT_EQ(blocks_[rank].where, NaiveBlock(shape_, to, mesh_, at)) << "rank " << rank;
      ASSERT_EQ(static_cast<int64_t>(blocks_[rank].where.size()), ElementCount(LocalShape(shape_, to, mesh_, at)));

      for (size_t i = 0; i < blocks_[rank].where.size(); ++i) {
        const int64_t position = blocks_[rank].where[i];
        const int64_t got = partial ? ReducedAt(to, rank, position) : blocks_[rank].value[i];
        ASSERT_EQ(got, global_[position]) << "rank " << rank << " position " << position;
      }
    }
  }

  // Bytes of a step by the definition, counted from the element maps.
  int64_t CountBytes(const RedistributeStep& step) const {
    int64_t most = 0;
    int64_t group = 1;
    for (const int axis : step.axes) group *= mesh_.axis_size(axis);
    for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
      const Coordinate at = mesh_.CoordinateOf(rank);
      const Indices from = NaiveBlock(shape_, step.from, mesh_, at);
      const Indices to = NaiveBlock(shape_, step.to, mesh_, at);
      int64_t bytes = 0;
      switch (step.op) {
        case RedistributeOp::kAllGather:
        case RedistributeOp::kAllToAll:
        case RedistributeOp::kPermute:
          for (const int64_t i : to) bytes += std::binary_search(from.begin(), from.end(), i) ? 0 : 4;
          break;
        case RedistributeOp::kAllReduce:
          bytes = 2 * (group - 1) * 4 * static_cast<int64_t>(from.size()) / group;
          break;
        case RedistributeOp::kReduceScatter:
          bytes = (group - 1) * 4 * static_cast<int64_t>(to.size());
          break;
        default:
          break;
      }
      most = std::max(most, bytes);
    }
    return most;
  }

 private:
  int64_t ValueAt(int rank, int64_t position) const {
    const Block& block = blocks_[rank];
    const auto found = std::lower_bound(block.where.begin(), block.where.end(), position);
    if (found == block.where.end() || *found != position) {
      ADD_FAILURE() << "rank " << rank << " lacks position " << position;
      return 0;
    }
    return block.value[found - block.where.begin()];
  }
  bool Holds(int rank, int64_t position) const {
    return std::binary_search(blocks_[rank].where.begin(), blocks_[rank].where.end(), position);
  }

  int64_t ReducedAt(const Placements& placements, int rank, int64_t position) const {
    const std::function<int64_t(size_t, Coordinate)> reduce = [&](size_t axis, Coordinate at) -> int64_t {
      while (axis < placements.size() && !placements[axis].IsPartial()) ++axis;
      if (axis == placements.size()) return ValueAt(mesh_.RankAt(at), position);
      std::vector<int64_t> terms;
      for (at[axis] = 0; at[axis] < mesh_.axis_size(static_cast<int>(axis)); ++at[axis]) {
        terms.push_back(reduce(axis + 1, at));
      }
      return Reduce(placements[axis].op, terms);
    };
    return reduce(0, mesh_.CoordinateOf(rank));
  }

  std::vector<int64_t> ReduceAll(const Placements& from, std::vector<std::vector<int64_t>> terms) const {
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (!from[axis].IsPartial()) continue;
      const auto before = terms;
      for (int rank = 0; rank < mesh_.rank_count(); ++rank) {
        for (size_t i = 0; i < terms[rank].size(); ++i) {
          std::vector<int64_t> values;
          for (const int peer : mesh_.GroupAlong(static_cast<int>(axis), rank)) values.push_back(before[peer][i]);
          terms[rank][i] = Reduce(from[axis].op, values);
        }
      }
    }
    return terms[0];
  }

  Block RunOnRank(const RedistributeStep& step, int rank) const {
    const Coordinate at = mesh_.CoordinateOf(rank);
    const std::vector<int> group = mesh_.GroupAlong(step.axes, rank);
    Block block{NaiveBlock(shape_, step.to, mesh_, at), {}};
    if (step.op == RedistributeOp::kNone) {
      EXPECT_EQ(block.where, blocks_[rank].where);
      return blocks_[rank];
    }
    for (const int64_t position : block.where) {
      switch (step.op) {
        case RedistributeOp::kNone:
          break;
        case RedistributeOp::kSlice:
          block.value.push_back(ValueAt(rank, position));
          break;
        case RedistributeOp::kAllGather:
        case RedistributeOp::kAllToAll:
        case RedistributeOp::kPermute: {
          int suppliers = 0;
          for (const int peer : group) {
            if (!Holds(peer, position) || !SuppliesBlock(mesh_, step, mesh_.CoordinateOf(peer), at)) continue;
            if (++suppliers == 1) block.value.push_back(ValueAt(peer, position));
          }
          EXPECT_EQ(suppliers, 1) << "rank " << rank << " position " << position;
          // What it holds already never travels.
          if (Holds(rank, position)) {
            EXPECT_TRUE(SuppliesBlock(mesh_, step, at, at));
          }
          break;
        }
        case RedistributeOp::kAllReduce:
        case RedistributeOp::kReduceScatter: {
          std::vector<int64_t> terms;
          for (const int peer : group) terms.push_back(ValueAt(peer, position));
          block.value.push_back(Reduce(step.from[step.axes[0]].op, terms));
          break;
        }
        case RedistributeOp::kDivide:
          block.value.push_back(ValueAt(rank, position) / static_cast<int64_t>(group.size()));
          break;
        case RedistributeOp::kFill:
          block.value.push_back(Holds(rank, position) ? ValueAt(rank, position) : 0);
          break;
      }
    }
    if (block.value.size() != block.where.size()) block.value.resize(block.where.size());
    return block;
  }

  const Mesh& mesh_;
  const Shape shape_;
  std::vector<Block> blocks_;
  std::vector<int64_t> global_;
};

bool Refused(const Placements& from, const Placements& to) {
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (from[axis].kind == PlacementKind::kShard && to[axis].IsPartial() && to[axis].op != ReduceOp::kSum) return true;
  }
  return false;
}

// Reduce every P, gather every S from the innermost cut, slice, make partials.
int64_t GatherEverythingBytes(const Simulation& simulation, const Mesh& mesh, const Placements& from) {
  int64_t bytes = 0;
  Placements at = from;
  const auto take = [&](RedistributeOp op, int axis) {
    Placements next = at;
    next[axis] = Placement::Replicate();
    bytes += simulation.CountBytes({op, {axis}, at, next});
    at = next;
  };
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    if (at[axis].IsPartial()) take(RedistributeOp::kAllReduce, axis);
  }
  for (int axis = mesh.axis_count() - 1; axis >= 0; --axis) {
    if (at[axis].IsSharding()) take(RedistributeOp::kAllGather, axis);
  }
  return bytes;
}

// An axis is gathered, exchanged or sliced only while it is the innermost cut of its dim.
bool ActsOnInnermostCuts(const RedistributeStep& step) {
  if (step.op == RedistributeOp::kPermute || step.op == RedistributeOp::kNone) return true;
  for (const int axis : step.axes) {
    for (const Placements* side : {&step.from, &step.to}) {
      if (!(*side)[axis].IsSharding()) continue;
      for (size_t later = axis + 1; later < side->size(); ++later) {
        if ((*side)[later].Cuts((*side)[axis].dim)) return false;
      }
    }
  }
  return true;
}

void CheckPlan(const Mesh& mesh, const Shape& shape, const Placements& from, const Placements& to,
               std::mt19937& random) {
  SCOPED_TRACE(absl::StrCat(mesh.ToString(), " ", ShapeText(shape), " ", PlacementsText(mesh, from), " -> ",
                            PlacementsText(mesh, to)));
  const absl::StatusOr<RedistributePlan> plan = PlanRedistribute(mesh, kDType, shape, from, to);
  if (!plan.ok() && plan.status().code() == absl::StatusCode::kInvalidArgument) {
    ASSERT_TRUE(Refused(from, to)) << plan.status();
    return;
  }
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->steps, PlanRedistribute(mesh, kDType, shape, from, to)->steps);
  Simulation simulation(mesh, shape);
  simulation.Fill(from, random);
  Placements at = from;
  int64_t bytes = 0;
  for (const RedistributeStep& step : plan->steps) {
    ASSERT_EQ(step.from, at);
    ASSERT_FALSE(step.axes.empty());
    ASSERT_TRUE(ActsOnInnermostCuts(step));
    simulation.Run(step);
    ASSERT_EQ(StepBytes(mesh, kDType, shape, step), simulation.CountBytes(step)) << RedistributeOpName(step.op);
    bytes += simulation.CountBytes(step);
    at = step.to;
  }
  ASSERT_EQ(at, to);
  ASSERT_EQ(PlanBytes(mesh, kDType, shape, *plan), bytes);
  ASSERT_LE(bytes, GatherEverythingBytes(simulation, mesh, from));
  simulation.ExpectLayout(to);
}

std::vector<Placement> KindsOn(const Mesh& mesh, int axis, int rank) {
  std::vector<Placement> kinds = {Placement::Replicate(), Placement::Partial(), Placement::Partial(ReduceOp::kMax)};
  for (int d = 0; d < rank; ++d) kinds.push_back(Placement::Shard(d));
  const int size = mesh.axis_size(axis);
  kinds.push_back(Placement::GroupShard(rank - 1, size == 4 ? 2 : size));
  return kinds;
}

std::vector<Placements> LayoutsOf(const Mesh& mesh, int rank) {
  std::vector<Placements> layouts = {{}};
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    std::vector<Placements> longer;
    for (const Placements& layout : layouts) {
      for (const Placement& kind : KindsOn(mesh, axis, rank)) {
        longer.push_back(layout);
        longer.back().push_back(kind);
      }
    }
    layouts = std::move(longer);
  }
  std::erase_if(layouts,
                [&](const Placements& layout) { return !NormalizePlacements(layout, rank, kDType, mesh).ok(); });
  return layouts;
}

uint32_t Seed() {
  const char* given = std::getenv("TP_TEST_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : 20240607u;
  std::cout << "TP_TEST_SEED=" << seed << std::endl;
  return seed;
}

class RedistributePropertyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RedistributePropertyTest, EveryPlanGivesWhatSlicingTheGlobalTensorGives) {
  const Mesh mesh = *Mesh::Parse(GetParam());
  std::mt19937 random(Seed());
  const int64_t sizes[] = {0, 1, 2, 3, 5, 8};
  for (const int rank : {1, 2}) {
    const std::vector<Placements> layouts = LayoutsOf(mesh, rank);
    std::vector<Shape> shapes;
    for (const int64_t a : sizes) {
      if (rank == 1) shapes.push_back({a});
      for (const int64_t b : sizes) {
        if (rank == 2) shapes.push_back({a, b});
      }
    }
    // Every pair of layouts; every shape on one axis and in rank 1, else some shapes of each pair.
    const size_t wanted = mesh.axis_count() == 1 || rank == 1 ? shapes.size() : kSamples;
    for (const Placements& from : layouts) {
      for (const Placements& to : layouts) {
        if (wanted < shapes.size()) std::shuffle(shapes.begin(), shapes.end(), random);
        for (size_t i = 0; i < wanted; ++i) {
          CheckPlan(mesh, shapes[i], from, to, random);
          if (HasFatalFailure() || HasNonfatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, RedistributePropertyTest,
                         ::testing::Values("tp=1", "tp=2", "tp=3", "tp=4", "dp=2,tp=2", "dp=2,tp=3", "dp=1,tp=3"));

TEST(RedistributeSampleTest, ThreeDimsOnThreeAxes) {
  std::mt19937 random(Seed());
  const Mesh mesh = *Mesh::Parse("a=2,b=2,c=2");
  const std::vector<Placements> layouts = LayoutsOf(mesh, 3);
  std::uniform_int_distribution<size_t> any(0, layouts.size() - 1);
  std::uniform_int_distribution<int64_t> size(0, 5);
  for (size_t i = 0; i < 10 * kSamples; ++i) {
    CheckPlan(mesh, {size(random), size(random), size(random)}, layouts[any(random)], layouts[any(random)], random);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(RedistributeSampleTest, GroupsInsideOfTwoAxes) {
  std::mt19937 random(Seed());
  const Mesh mesh = *Mesh::Parse("dp=2,tp=4");
  const std::vector<Placements> layouts = LayoutsOf(mesh, 2);
  std::uniform_int_distribution<size_t> any(0, layouts.size() - 1);
  std::uniform_int_distribution<int64_t> size(0, 9);
  for (size_t i = 0; i < 100 * kSamples; ++i) {
    CheckPlan(mesh, {size(random), size(random)}, layouts[any(random)], layouts[any(random)], random);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace tp
