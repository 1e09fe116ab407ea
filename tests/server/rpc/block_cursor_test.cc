#include "server/rpc/block_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tp::server {
namespace {

// The global tensor as bytes, each the low byte of its offset.
std::string Global(int64_t size) {
  std::string bytes;
  for (int64_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

// What a rank gets, where the bytes come in pieces of the given size.
std::string TakenBy(const Shape& shape, int64_t item_size, const Placements& placements, const Mesh& mesh, int rank,
                    size_t piece) {
  BlockCursor cursor(shape, item_size, placements, mesh, mesh.CoordinateOf(rank));
  const std::string global = Global(ElementCount(shape) * item_size);
  std::string taken;
  for (size_t at = 0; at < global.size(); at += piece) cursor.Take(std::string_view(global).substr(at, piece), &taken);
  return taken;
}

std::vector<int> Numbers(const std::string& bytes) {
  std::vector<int> numbers;
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return numbers;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Mesh kTwo = *Mesh::Parse("tp=2");

TEST(BlockCursorTest, RowsAreOneRun) {
  EXPECT_THAT(Numbers(TakenBy({3, 2}, 1, {Placement::Shard(0)}, kTwo, 0, 100)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Numbers(TakenBy({3, 2}, 1, {Placement::Shard(0)}, kTwo, 1, 100)), ElementsAre(4, 5));
}

TEST(BlockCursorTest, ColumnsAreOneRunARow) {
  EXPECT_THAT(Numbers(TakenBy({3, 3}, 1, {Placement::Shard(1)}, kTwo, 0, 4)), ElementsAre(0, 1, 3, 4, 6, 7));
  EXPECT_THAT(Numbers(TakenBy({3, 3}, 1, {Placement::Shard(1)}, kTwo, 1, 4)), ElementsAre(2, 5, 8));
}

TEST(BlockCursorTest, PiecesMayCutElementsAndRuns) {
  EXPECT_THAT(Numbers(TakenBy({2, 2}, 2, {Placement::Shard(1)}, kTwo, 1, 3)), ElementsAre(2, 3, 6, 7));
}

TEST(BlockCursorTest, StridedInterleavedAndGroupedCuts) {
  EXPECT_THAT(Numbers(TakenBy({7}, 1, {Placement::StridedShard(0, 2)}, kTwo, 0, 2)), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(Numbers(TakenBy({7}, 1, {Placement::StridedShard(0, 2)}, kTwo, 1, 2)), ElementsAre(2, 3, 6));
  EXPECT_THAT(Numbers(TakenBy({6}, 1, {Placement::InterleavedShard(0, {2, 1})}, kTwo, 1, 6)), ElementsAre(2, 3, 5));
  const Mesh four = *Mesh::Parse("tp=4");
  for (const int rank : {2, 3}) {
    EXPECT_THAT(Numbers(TakenBy({5}, 1, {Placement::GroupShard(0, 2)}, four, rank, 2)), ElementsAre(3, 4));
  }
}

TEST(BlockCursorTest, WholeEmptyAndScalar) {
  EXPECT_THAT(Numbers(TakenBy({2, 2}, 1, {Placement::Replicate()}, kTwo, 1, 3)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Numbers(TakenBy({1, 2}, 1, {Placement::Shard(0)}, kTwo, 1, 3)), IsEmpty());
  EXPECT_THAT(Numbers(TakenBy({0, 2}, 1, {Placement::Shard(1)}, kTwo, 0, 3)), IsEmpty());
  EXPECT_THAT(Numbers(TakenBy({}, 4, {Placement::Replicate()}, kTwo, 1, 3)), ElementsAre(0, 1, 2, 3));
}

TEST(BlockCursorTest, NestedCutsOfOneDim) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2");  // sizes 2, 1, 1, 1 at 0, 2, 3, 4
  const Placements both = {Placement::Shard(0), Placement::Shard(0)};
  EXPECT_THAT(Numbers(TakenBy({5}, 1, both, mesh, 0, 5)), ElementsAre(0, 1));
  EXPECT_THAT(Numbers(TakenBy({5}, 1, both, mesh, 1, 5)), ElementsAre(2));
  EXPECT_THAT(Numbers(TakenBy({5}, 1, both, mesh, 3, 5)), ElementsAre(4));
}

// Against the definition: element by element.
TEST(BlockCursorTest, RandomLayoutsAgreeWithTheirIntervals) {
  std::mt19937 random(20240607);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 2000; ++round) {
    const Mesh mesh = *Mesh::Create({{"a", 1 + below(3)}, {"b", 1 + below(3)}});
    Shape shape;
    for (int d = below(4); d > 0; --d) shape.push_back(below(7));
    Placements placements;
    for (int axis = 0; axis < 2; ++axis) {
      const int dim = shape.empty() ? 0 : below(static_cast<int>(shape.size()));
      const int kind = shape.empty() ? 0 : below(4);
      placements.push_back(kind == 0   ? Placement::Replicate()
                           : kind == 1 ? Placement::Shard(dim)
                           : kind == 2 ? Placement::StridedShard(dim, 2)
                                       : Placement::GroupShard(dim, 1));
    }
    const int64_t item_size = 1 + below(3);
    for (int rank = 0; rank < mesh.rank_count(); ++rank) {
      const Coordinate coordinate = mesh.CoordinateOf(rank);
      std::string expected;
      const std::string global = Global(ElementCount(shape) * item_size);
      for (int64_t element = 0; element < ElementCount(shape); ++element) {
        bool owned = true;
        int64_t rest = element;
        for (int d = static_cast<int>(shape.size()); d-- > 0;) {
          const int64_t index = rest % shape[d];
          rest /= shape[d];
          bool in_dim = false;
          for (const Interval& run : OwnedIntervals(shape[d], d, placements, mesh, coordinate)) {
            in_dim = in_dim || (index >= run.begin && index < run.end);
          }
          owned = owned && in_dim;
        }
        if (owned) expected += global.substr(static_cast<size_t>(element * item_size), static_cast<size_t>(item_size));
      }
      ASSERT_EQ(TakenBy(shape, item_size, placements, mesh, rank, static_cast<size_t>(1 + below(9))), expected)
          << ShapeText(shape) << " " << PlacementsText(mesh, placements) << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace tp::server
