#include "worker/tensor/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::worker {
namespace {

Block Of(std::vector<Intervals> dims) {
  Block block{std::move(dims), {}};
  for (const Intervals& dim : block.dims) {
    block.shape.push_back(0);
    for (const Interval& interval : dim) block.shape.back() += interval.end - interval.begin;
  }
  return block;
}

TEST(SharedPartOf, MapsPositionsOfBothAndOfThePackedArray) {
  // Rows 0, 1, 4, 5 against rows 1..4.
  const SharedPart part = SharedPartOf(Of({{{0, 2}, {4, 6}}, {{0, 3}}}), Of({{{1, 5}}, {{2, 9}}}));
  EXPECT_EQ(part.shape, (Shape{2, 1}));
  EXPECT_EQ(part.elements, 2);
  ASSERT_EQ(part.dims[0].size(), 2u);
  EXPECT_EQ(part.dims[0][0].in_a, 1);
  EXPECT_EQ(part.dims[0][0].in_b, 0);
  EXPECT_EQ(part.dims[0][1].in_a, 2);
  EXPECT_EQ(part.dims[0][1].in_b, 3);
  EXPECT_EQ(part.dims[0][1].packed, 1);
  EXPECT_EQ(part.dims[1][0].in_a, 2);
  EXPECT_EQ(part.dims[1][0].in_b, 0);
}

TEST(SharedPartOf, NothingInCommonAndEmptyBlocks) {
  EXPECT_EQ(SharedPartOf(Of({{{0, 2}}}), Of({{{2, 4}}})).elements, 0);
  EXPECT_EQ(SharedPartOf(Of({{{5, 5}}}), Of({{{0, 5}}})).elements, 0);
  EXPECT_EQ(SharedPartOf(Of({}), Of({})).elements, 1);  // a scalar
}

TEST(BlockOf, UnevenShardsAndTheirShapes) {
  const Mesh mesh = *Mesh::Parse("tp=4");
  const Placements rows{Placement::Shard(0)};
  EXPECT_EQ(BlockOf({5, 2}, rows, mesh, Coordinate{2}).shape, (Shape{1, 2}));
  EXPECT_EQ(BlockOf({5, 2}, rows, mesh, Coordinate{3}).shape, (Shape{0, 2}));
}

}  // namespace
}  // namespace tp::worker
