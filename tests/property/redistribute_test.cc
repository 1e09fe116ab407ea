// Every plan of PlanRedistribute, executed by the definition of its steps on the values of all ranks at once, against
// slicing the global tensor (layout_judge.h): values, bytes by definition, never more bytes than gathering everything,
// innermost cuts only, the same plan from a fresh planner, and one plan for all sizes. A plan is made once, at a
// nominal size, and judged at every size. By default every tenth pair runs, begun at TP_TEST_SEED; TP_EXHAUSTIVE=1 runs
// every pair and 200,000 samples:
//   TP_EXHAUSTIVE=1 build/bin/property_test
// Two threads. Prints pairs, refusals and seconds (of processor time).
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/redistribute/geometry.h"
#include "common/redistribute/search.h"
#include "gtest/gtest.h"
#include "tests/property/layout_judge.h"

namespace tp {
namespace {

using testing::JudgedLayout;
using testing::JudgedValues;
using testing::LayoutJudge;

constexpr DType kDType = DType::kF32;
constexpr size_t kThreads = 2;
// Divides by every product of parts and mesh axes below.
constexpr int64_t kNominal = 1728;

bool Exhaustive() {
  const char* given = std::getenv("TP_EXHAUSTIVE");
  return given != nullptr && std::string(given) == "1";
}

uint32_t Seed() {
  const char* given = std::getenv("TP_TEST_SEED");
  return given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : 20240607u;
}

// Sanitizers make everything some ten times slower.
size_t Stride() {
#ifdef TP_SANITIZE
  return Exhaustive() ? 1 : 101;
#else
  return Exhaustive() ? 1 : 10;
#endif
}

struct Counts {
  int64_t pairs = 0;
  int64_t refusals = 0;
  int64_t steps = 0;
  std::string error = {};
};

// What SEMANTICS 3 refuses.
bool IsRefused(const Mesh& mesh, const Placements& from, const Placements& to) {
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (mesh.axis_size(static_cast<int>(axis)) == 1 || !to[axis].IsPartial() || from[axis] == to[axis]) continue;
    if (to[axis].op == ReduceOp::kProduct) return true;
    if (from[axis].kind == PlacementKind::kShard && to[axis].op != ReduceOp::kSum) return true;
  }
  return false;
}

// An axis is gathered, exchanged or sliced only while no axis outside of the step cuts the dim further inside.
bool ActsOnInnermostCuts(const Mesh& mesh, const RedistributeStep& step) {
  if (step.op == RedistributeOp::kPermute || step.op == RedistributeOp::kNone) return true;
  for (const int axis : step.axes) {
    for (const Placements* side : {&step.from, &step.to}) {
      if (!(*side)[axis].IsSharding()) continue;
      for (size_t later = axis + 1; later < side->size(); ++later) {
        const bool acts = std::count(step.axes.begin(), step.axes.end(), static_cast<int>(later)) > 0;
        if (!acts && mesh.axis_size(static_cast<int>(later)) > 1 && (*side)[later].Cuts((*side)[axis].dim))
          return false;
      }
    }
  }
  return true;
}

// Plans and judges pairs of layouts of one mesh; one for each thread.
class Checker {
 public:
  Checker(const Mesh& mesh, const Shape& nominal, const std::vector<Shape>& shapes, uint32_t seed)
      : mesh_(mesh),
        nominal_(nominal),
        judge_(mesh, shapes),
        planner_(mesh, kDType, nominal),
        nominal_bytes_(mesh, kDType, nominal),
        random_(seed) {
    for (const Shape& shape : shapes) bytes_.push_back(std::make_unique<Geometry>(mesh, kDType, shape));
  }

  void SetSource(const Placements& from) {
    source_ = judge_.Fill(judge_.Layout(from), random_, &global_);
    // Reduce every P, gather every sharded axis from the innermost cut; slicing costs nothing.
    gather_everything_ = 0;
    Placements at = from;
    for (const bool reduce : {true, false}) {
      for (int axis = mesh_.axis_count() - 1; axis >= 0; --axis) {
        if (reduce ? !at[axis].IsPartial() : !at[axis].IsSharding()) continue;
        Placements next = at;
        next[axis] = Placement::Replicate();
        gather_everything_ +=
            StepBytes(mesh_, nominal_bytes_,
                      {reduce ? RedistributeOp::kAllReduce : RedistributeOp::kAllGather, {axis}, at, next});
        at = next;
      }
    }
  }

  void Check(const Placements& to, Counts* counts) {
    std::string error;
    CheckPair(to, counts, &error);
    if (error.empty() || !counts->error.empty()) return;
    counts->error =
        absl::StrCat(mesh_.ToString(), " planned at ", ShapeText(nominal_), " ",
                     PlacementsText(mesh_, source_.layout->placements), " -> ", PlacementsText(mesh_, to), ": ", error);
  }

 private:
  void CheckPair(const Placements& to, Counts* counts, std::string* error) {
    const Placements& from = source_.layout->placements;
    const absl::StatusOr<RedistributePlan> plan = planner_.Plan(from, to);
    const int64_t pair = counts->pairs++;
    if (IsRefused(mesh_, from, to)) {
      ++counts->refusals;
      if (plan.status().code() != absl::StatusCode::kInvalidArgument) *error = "is not refused";
      return;
    }
    if (!plan.ok()) {
      *error = std::string(plan.status().message());
      return;
    }
    if (pair % 64 == 0 && PlanRedistribute(mesh_, kDType, nominal_, from, to)->steps != plan->steps) {
      *error = "a fresh planner makes another plan";
      return;
    }
    // Every layout on the way is defined where source and target are.
    const JudgedLayout& target = judge_.Layout(to);
    const testing::Mask judged = judge_.DefinedIn({source_.layout, &target});
    JudgedValues values = source_;
    int64_t bytes = 0;
    for (const RedistributeStep& step : plan->steps) {
      ++counts->steps;
      if (step.from != values.layout->placements || step.axes.empty()) *error = "steps do not join";
      if (!ActsOnInnermostCuts(mesh_, step)) *error = "a step acts on an outer cut";
      if (judge_.DefinedIn({source_.layout, &target, &judge_.Layout(step.to)}) != judged) {
        *error = "a layout on the way is not defined at every size";
      }
      values = judge_.Run(values, step, judged, error);
      bytes += StepBytes(mesh_, nominal_bytes_, step);
      const size_t shape = static_cast<size_t>(pair) % judge_.shapes().size();
      if (source_.layout->defined[shape] && target.defined[shape]) {
        const int64_t counted = judge_.CountBytes(step, shape);
        const int64_t told = StepBytes(mesh_, *bytes_[shape], step);
        if (told != counted) *error = absl::StrCat("bytes of a step: ", told, ", counted ", counted);
      }
      if (!error->empty()) return;
    }
    if (values.layout->placements != to) *error = "the steps end elsewhere";
    if (bytes > gather_everything_) {
      *error = absl::StrCat(bytes, " bytes, gathering everything takes ", gather_everything_);
    }
    if (error->empty()) *error = judge_.Compare(values, global_, judged);
  }

  const Mesh& mesh_;
  const Shape nominal_;
  LayoutJudge judge_;
  RedistributePlanner planner_;
  Geometry nominal_bytes_;
  std::vector<std::unique_ptr<Geometry>> bytes_;  // by shape
  std::mt19937 random_;
  JudgedValues source_;
  std::vector<uint32_t> global_;
  int64_t gather_everything_ = 0;
};

enum class Kinds { kAll, kPlain };

std::vector<Placement> KindsOn(int axis_size, int rank, Kinds kinds) {
  std::vector<Placement> all = {Placement::Replicate()};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    all.push_back(Placement::Partial(op));
  }
  for (int d = 0; d < rank; ++d) {
    all.push_back(Placement::Shard(d));
    for (int count = 2; count <= 3 && kinds == Kinds::kAll; ++count) {
      all.push_back(Placement::StridedShard(d, count));
      all.push_back(Placement::InterleavedShard(d, std::vector<int64_t>(static_cast<size_t>(count), 1)));
      if (axis_size % count == 0) all.push_back(Placement::GroupShard(d, count));
    }
  }
  return all;
}

std::vector<Placements> LayoutsOf(const Mesh& mesh, int rank, Kinds kinds) {
  std::vector<Placements> layouts = {{}};
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    std::vector<Placements> longer;
    for (const Placements& layout : layouts) {
      for (const Placement& kind : KindsOn(mesh.axis_size(axis), rank, kinds)) {
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

std::vector<Shape> ShapesOf(const std::vector<int64_t>& sizes, int rank) {
  std::vector<Shape> shapes = {{}};
  for (int d = 0; d < rank; ++d) {
    std::vector<Shape> longer;
    for (const Shape& shape : shapes) {
      for (const int64_t size : sizes) {
        longer.push_back(shape);
        longer.back().push_back(size);
      }
    }
    shapes = std::move(longer);
  }
  return shapes;
}

// Runs `work(thread, counts)` on kThreads threads and prints what came out.
template <typename Work>
void RunThreads(const std::string& what, const Work& work) {
  std::cout << "TP_TEST_SEED=" << Seed() << (Exhaustive() ? " all of " : " a part of ") << what << std::endl;
  const std::clock_t begin = std::clock();
  std::vector<Counts> counts(kThreads);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] { work(thread, &counts[thread]); });
  }
  for (std::thread& thread : threads) thread.join();
  Counts all;
  for (const Counts& one : counts) {
    all.pairs += one.pairs;
    all.refusals += one.refusals;
    all.steps += one.steps;
    EXPECT_EQ(one.error, "");
  }
  EXPECT_GT(all.pairs, 0);
  std::cout << what << ": " << all.pairs << " pairs, " << all.refusals << " refusals, " << all.steps << " steps, "
            << static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC << " seconds" << std::endl;
}

struct Family {
  const char* mesh;
  int rank;
  Kinds kinds;
  std::vector<int64_t> sizes;
};

class RedistributeFamilyTest : public ::testing::TestWithParam<Family> {};

TEST_P(RedistributeFamilyTest, EveryPairGivesTheGlobalTensorSliced) {
  const Family& family = GetParam();
  const Mesh mesh = *Mesh::Parse(family.mesh);
  const std::vector<Placements> layouts = LayoutsOf(mesh, family.rank, family.kinds);
  const std::vector<Shape> shapes = ShapesOf(family.sizes, family.rank);
  const size_t stride = Stride(), begin = Seed() % stride;
  RunThreads(absl::StrCat(family.mesh, " rank ", family.rank), [&](size_t thread, Counts* counts) {
    Checker checker(mesh, Shape(static_cast<size_t>(family.rank), kNominal), shapes, Seed());
    for (size_t from = thread; from < layouts.size(); from += kThreads) {
      checker.SetSource(layouts[from]);
      for (size_t to = 0; to < layouts.size() && counts->error.empty(); ++to) {
        if ((from * layouts.size() + to) % stride == begin) checker.Check(layouts[to], counts);
      }
    }
  });
}

const std::vector<int64_t> kSizes1 = {0, 1, 2, 3, 5, 8, 9};
const std::vector<int64_t> kSizes2 = {0, 1, 2, 3, 5, 8};
const std::vector<int64_t> kSizes3 = {0, 1, 3, 5};

INSTANTIATE_TEST_SUITE_P(
    Rank1, RedistributeFamilyTest,
    ::testing::Values(Family{"tp=2", 1, Kinds::kAll, kSizes1}, Family{"tp=3", 1, Kinds::kAll, kSizes1},
                      Family{"tp=4", 1, Kinds::kAll, kSizes1}, Family{"dp=2,tp=2", 1, Kinds::kAll, kSizes1},
                      Family{"dp=2,tp=3", 1, Kinds::kAll, kSizes1}, Family{"a=2,b=2,c=2", 1, Kinds::kAll, kSizes1}));
INSTANTIATE_TEST_SUITE_P(Rank2, RedistributeFamilyTest,
                         ::testing::Values(Family{"tp=2", 2, Kinds::kAll, kSizes2},
                                           Family{"tp=3", 2, Kinds::kAll, kSizes2},
                                           Family{"tp=4", 2, Kinds::kAll, kSizes2},
                                           Family{"dp=2,tp=2", 2, Kinds::kAll, kSizes2},
                                           Family{"dp=2,tp=3", 2, Kinds::kAll, kSizes2}));
INSTANTIATE_TEST_SUITE_P(Rank3, RedistributeFamilyTest,
                         ::testing::Values(Family{"tp=2", 3, Kinds::kPlain, kSizes3},
                                           Family{"tp=3", 3, Kinds::kPlain, kSizes3},
                                           Family{"tp=4", 3, Kinds::kPlain, kSizes3},
                                           Family{"dp=2,tp=2", 3, Kinds::kPlain, kSizes3},
                                           Family{"dp=2,tp=3", 3, Kinds::kPlain, kSizes3}));

// Batches of pairs beyond: each on a mesh, a rank and a few shapes of its own.
TEST(RedistributeSampleTest, LargerMeshesRanksAndOddSizes) {
  constexpr size_t kBatch = 50;
  const size_t batches = 200000 / kBatch / Stride();
  RunThreads("samples", [&](size_t thread, Counts* counts) {
    for (size_t batch = thread; batch < batches && counts->error.empty(); batch += kThreads) {
      const uint32_t seed = Seed() + static_cast<uint32_t>(batch) * 7919;
      std::mt19937 random(seed);
      const auto any = [&](size_t n) { return static_cast<size_t>(random()) % n; };
      const char* meshes[] = {"a=2,b=3,c=2", "a=4,b=2", "a=2,b=4", "a=3,b=3",         "a=5",
                              "a=6",         "a=8",     "a=1,b=3", "a=2,b=1,c=2,d=2", "a=2,b=2,c=3"};
      const Mesh mesh = *Mesh::Parse(meshes[any(std::size(meshes))]);
      const int rank = 1 + static_cast<int>(any(4));
      const int64_t most = rank == 1 ? 37 : rank == 2 ? 17 : rank == 3 ? 7 : 5;
      std::vector<Shape> shapes(2, Shape(static_cast<size_t>(rank)));
      for (Shape& shape : shapes) {
        for (int64_t& size : shape) size = static_cast<int64_t>(any(static_cast<size_t>(most) + 1));
      }
      const auto layout = [&] {
        while (true) {
          Placements placements;
          for (int axis = 0; axis < mesh.axis_count(); ++axis) {
            std::vector<Placement> kinds =
                KindsOn(mesh.axis_size(axis), rank, any(2) == 0 ? Kinds::kPlain : Kinds::kAll);
            kinds.push_back(Placement::InterleavedShard(static_cast<int>(any(static_cast<size_t>(rank))), {2, 1, 1}));
            placements.push_back(kinds[any(kinds.size())]);
          }
          if (NormalizePlacements(placements, rank, kDType, mesh).ok()) return placements;
        }
      };
      // Half of the batches are planned at a size of their own where they can be.
      const Shape wide(static_cast<size_t>(rank), kNominal);
      const Shape nominal = any(2) == 0 ? shapes[0] : wide;
      const auto fits = [&](const Placements& placements) { return ValidateForShape(nominal, placements, mesh).ok(); };
      Checker checker(mesh, nominal, shapes, seed);
      for (size_t i = 0; i < kBatch;) {
        const Placements from = layout(), to = layout();
        if (!fits(from) || !fits(to)) continue;
        ++i;
        checker.SetSource(from);
        checker.Check(to, counts);
      }
    }
  });
}

}  // namespace
}  // namespace tp
