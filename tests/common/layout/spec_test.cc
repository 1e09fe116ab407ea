#include "common/layout/spec.h"

#include "gtest/gtest.h"

namespace tp {
namespace {

const Placement kR = Placement::Replicate();
const Placement kS0 = Placement::Shard(0);
const Placement kS1 = Placement::Shard(1);
const Placement kP = Placement::Partial();

Placement Text(const char* text) { return *ParsePlacement(text); }

// Global indices of dim 0 that each rank holds.
std::vector<std::vector<int64_t>> Held(int64_t n, const Placements& placements, const Mesh& mesh) {
  std::vector<std::vector<int64_t>> held;
  for (int rank = 0; rank < mesh.rank_count(); ++rank) {
    held.emplace_back();
    for (const Interval& interval : OwnedIntervals(n, 0, placements, mesh, mesh.CoordinateOf(rank))) {
      for (int64_t i = interval.begin; i < interval.end; ++i) held.back().push_back(i);
    }
  }
  return held;
}

struct ChunkRow {
  int64_t n;
  int k;
  std::vector<int64_t> sizes;
};

TEST(ChunkTest, SizesOfTheTable) {
  const ChunkRow rows[] = {{5, 4, {2, 2, 1, 0}},
                           {6, 4, {2, 2, 2, 0}},
                           {7, 3, {3, 3, 1}},
                           {1, 4, {1, 0, 0, 0}},
                           {9, 8, {2, 2, 2, 2, 1, 0, 0, 0}},
                           {10, 4, {3, 3, 3, 1}},
                           {257, 4, {65, 65, 65, 62}},
                           {50257, 8, {6283, 6283, 6283, 6283, 6283, 6283, 6283, 6276}},
                           {0, 3, {0, 0, 0}}};
  for (const ChunkRow& row : rows) {
    int64_t at = 0;
    const Mesh mesh = *Mesh::Create({{"tp", row.k}});
    for (int r = 0; r < row.k; ++r) {
      const Interval chunk = ChunkOf(row.n, row.k, r);
      EXPECT_EQ(chunk.end - chunk.begin, row.sizes[r]) << row.n << " over " << row.k << ", rank " << r;
      EXPECT_EQ(chunk.begin, at);
      at = chunk.end;
      EXPECT_EQ(LocalShape({row.n, 10}, {kS0}, mesh, {r}), (Shape{row.sizes[r], 10}));
      EXPECT_EQ(LocalOffset({row.n, 10}, {kS0}, mesh, {r}), (Shape{row.sizes[r] == 0 ? row.n : chunk.begin, 0}));
    }
    EXPECT_EQ(at, row.n);
  }
}

TEST(ChunkTest, HugeSizesDoNotOverflow) {
  const int64_t n = (int64_t{1} << 62) - 1;
  EXPECT_EQ(ChunkOf(n, 1 << 20, (1 << 20) - 1).end, n);
  EXPECT_EQ(ChunkOf(3, 1 << 20, (1 << 20) - 1), (Interval{3, 3}));
}

TEST(LayoutTest, NestedCutsAreNotOneFlatCut) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  const int64_t sizes[] = {2, 1, 1, 1};
  const int64_t offsets[] = {0, 2, 3, 4};
  for (int rank = 0; rank < 4; ++rank) {
    const Coordinate at = mesh.CoordinateOf(rank);
    EXPECT_EQ(LocalShape({5, 3}, {kS0, kS0}, mesh, at), (Shape{sizes[rank], 3}));
    EXPECT_EQ(LocalOffset({5, 3}, {kS0, kS0}, mesh, at), (Shape{offsets[rank], 0}));
  }
}

TEST(LayoutTest, EmptyShardsUnderNestedCutsStandAtTheGlobalSize) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=4");
  for (int rank = 0; rank < 8; ++rank) {
    const Coordinate at = mesh.CoordinateOf(rank);
    const bool owns = at[1] == 0;
    EXPECT_EQ(LocalShape({2}, {kS0, kS0}, mesh, at), (Shape{owns ? 1 : 0}));
    EXPECT_EQ(LocalOffset({2}, {kS0, kS0}, mesh, at), (Shape{owns ? at[0] : 2}));
    if (!owns) {
      EXPECT_EQ(OwnedIntervals(2, 0, {kS0, kS0}, mesh, at), (std::vector<Interval>{{2, 2}}));
    }
  }
}

TEST(LayoutTest, StridedShardTakesAPieceOfEveryChunk) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  using Indices = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(Held(8, {Text("SS(0,2)")}, mesh), (Indices{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(Held(7, {Text("SS(0,2)")}, mesh), (Indices{{0, 1, 4, 5}, {2, 3, 6}}));
  EXPECT_EQ(Held(1, {Text("SS(0,2)")}, mesh), (Indices{{0}, {}}));
  EXPECT_EQ(Held(5, {Text("SS(0,1)")}, mesh), Held(5, {kS0}, mesh));
}

TEST(LayoutTest, StridedShardNestsLeftToRightWithShard) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  using Indices = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(Held(8, {Text("SS(0,2)"), kS0}, mesh), (Indices{{0, 1}, {4, 5}, {2, 3}, {6, 7}}));
  EXPECT_EQ(Held(8, {kS0, Text("SS(0,2)")}, mesh), (Indices{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
}

TEST(LayoutTest, InterleavedShardCutsEachPartOnItsOwn) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  using Indices = std::vector<std::vector<int64_t>>;
  // Fused heads [8q | 2k | 2v]: q0-q3, k0, v0 and q4-q7, k1, v1.
  EXPECT_EQ(Held(12, {Text("IS(0,[8,2,2])")}, mesh), (Indices{{0, 1, 2, 3, 8, 10}, {4, 5, 6, 7, 9, 11}}));
  // Three equal parts would be wrong for it: q0 q1 q4 q5 k0 k1.
  EXPECT_EQ(Held(12, {Text("IS(0,3)")}, mesh)[0], (std::vector<int64_t>{0, 1, 4, 5, 8, 9}));
  // Fused rows [g0..g3, u0..u3].
  EXPECT_EQ(Held(8, {Text("IS(0,2)")}, mesh), (Indices{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(Held(6, {Text("IS(0,2)")}, mesh), (Indices{{0, 1, 3, 4}, {2, 5}}));
  EXPECT_EQ(Held(0, {Text("IS(0,2)")}, mesh), (Indices{{}, {}}));
}

TEST(LayoutTest, GroupShardGivesNeighboursOneChunk) {
  const Mesh mesh = *Mesh::Parse("tp=8");
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(LocalOffset({128, 256}, {Text("GS(0,4)")}, mesh, {rank}), (Shape{32 * (rank / 2), 0}));
    EXPECT_EQ(LocalShape({128, 256}, {Text("GS(0,4)")}, mesh, {rank}), (Shape{32, 256}));
    EXPECT_EQ(IsOwner({Text("GS(0,4)")}, mesh, {rank}), rank % 2 == 0);
  }
  const Mesh four = *Mesh::Parse("tp=4");
  using Indices = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(Held(3, {Text("GS(0,2)")}, four), (Indices{{0, 1}, {0, 1}, {2}, {2}}));
  EXPECT_EQ(Held(1, {Text("GS(0,2)")}, four), (Indices{{0}, {0}, {}, {}}));
}

TEST(LayoutTest, ReplicateAndPartialHoldAll) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=3");
  EXPECT_EQ(LocalShape({4, 7}, {kP, kS1}, mesh, {1, 2}), (Shape{4, 1}));
  EXPECT_EQ(LocalOffset({4, 7}, {kP, kS1}, mesh, {1, 2}), (Shape{0, 6}));
  EXPECT_EQ(LocalShape({}, {kR, kP}, mesh, {1, 2}), Shape{});
  EXPECT_TRUE(IsOwner({kP, kS1}, mesh, {1, 2}));
  EXPECT_TRUE(IsOwner({kR, kS1}, mesh, {0, 2}));
  EXPECT_FALSE(IsOwner({kR, kS1}, mesh, {1, 2}));
}

TEST(NormalizeTest, NegativeDimsBecomePositive) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=4");
  EXPECT_EQ(*NormalizePlacements({Text("S(-1)"), Text("GS(-2,2)")}, 2, DType::kF32, mesh),
            (Placements{kS1, Text("GS(0,2)")}));
}

TEST(NormalizeTest, WrongPlacementsAreRefused) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=4");
  const auto refused = [&](const Placements& placements, DType dtype = DType::kF32) {
    return NormalizePlacements(placements, 2, dtype, mesh).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({kR}));
  EXPECT_TRUE(refused({kR, kR, kR}));
  EXPECT_TRUE(refused({kR, Text("S(2)")}));
  EXPECT_TRUE(refused({kR, Text("S(-3)")}));
  EXPECT_TRUE(refused({kR, Placement::StridedShard(0, 0)}));
  EXPECT_TRUE(refused({kR, Placement::GroupShard(0, 0)}));
  EXPECT_TRUE(refused({kR, Placement::GroupShard(0, 3)}));
  EXPECT_TRUE(refused({kR, Placement::InterleavedShard(0, {})}));
  EXPECT_TRUE(refused({kR, Placement::InterleavedShard(0, {2, 0})}));
  EXPECT_TRUE(refused({kR, Placement::InterleavedShard(0, {INT64_MAX, INT64_MAX})}));
  EXPECT_TRUE(refused({kP, Text("P(max)")}));
  EXPECT_TRUE(refused({Text("P(min)"), Text("P(max)")}));
  EXPECT_FALSE(refused({kP, Text("P(avg)")}));
  EXPECT_FALSE(refused({Text("P(max)"), Text("P(max)")}));
}

TEST(NormalizeTest, PartialOpsThatADtypeHasNotAreRefused) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  const auto accepted = [&](const char* text, DType dtype) {
    return NormalizePlacements({Text(text)}, 1, dtype, mesh).ok();
  };
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    EXPECT_FALSE(accepted("P(avg)", dtype));
    EXPECT_TRUE(accepted("P(sum)", dtype));
    EXPECT_TRUE(accepted("P(product)", dtype));
  }
  for (const char* text : {"P(sum)", "P(avg)", "P(product)"}) EXPECT_FALSE(accepted(text, DType::kBool)) << text;
  for (const char* text : {"P(min)", "P(max)"}) EXPECT_TRUE(accepted(text, DType::kBool)) << text;
  EXPECT_TRUE(accepted("P(avg)", DType::kBF16));
}

TEST(ValidateTest, AnInterleavedDimMustDivide) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_TRUE(ValidateForShape({12}, {kR, Text("IS(0,[8,2,2])")}, mesh).ok());
  EXPECT_TRUE(ValidateForShape({0}, {kR, Text("IS(0,2)")}, mesh).ok());
  EXPECT_EQ(ValidateForShape({13}, {kR, Text("IS(0,[8,2,2])")}, mesh).code(), absl::StatusCode::kInvalidArgument);
  // What is cut is the block inside of the outer cut: 6 rows, then 3 on each rank.
  EXPECT_EQ(ValidateForShape({6}, {kS0, Text("IS(0,2)")}, mesh).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ValidateForShape({8}, {kS0, Text("IS(0,2)")}, mesh).ok());
  EXPECT_EQ(ValidateForShape({8}, {kR, kS1}, mesh).code(), absl::StatusCode::kInvalidArgument);
}

// What a placement costs to plan is bounded, whatever the numbers in it.
TEST(SpecTest, CutsIntoTooManyPiecesAreRefused) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  const int64_t huge = int64_t{1} << 62;
  EXPECT_TRUE(ValidateForShape({16384}, {kR, Text("SS(0,100000000)")}, mesh).ok());
  EXPECT_EQ(ValidateForShape({16385}, {kR, Text("SS(0,100000000)")}, mesh).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ValidateForShape({huge, 0}, {kR, Text("SS(0,16385)")}, mesh).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ValidateForShape({huge, 0}, {Text("SS(0,200)"), Text("SS(0,200)")}, mesh).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ValidateForShape({huge, 0}, {Text("SS(1,200)"), Text("SS(0,200)")}, mesh).ok());
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ValidateForShape({8}, {kR, Placement::InterleavedShard(0, {most, most})}, mesh).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ValidateForShape({0}, {kR, Placement::InterleavedShard(0, std::vector<int64_t>(16385, 1))}, mesh).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(SpecTest, TextNamesDtypeShapeAndPlacements) {
  const Mesh mesh = *Mesh::Parse("tp=2");
  EXPECT_EQ(SpecText({DType::kF32, {Dim::Symbol("batch"), 256}, {kS1}}, mesh), "F32[batch, 256] tp=S(1)");
  EXPECT_EQ(SpecText({DType::kI64, {}, {}}, Mesh()), "I64[]");
}

}  // namespace
}  // namespace tp
