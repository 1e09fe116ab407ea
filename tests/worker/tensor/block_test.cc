#include "worker/tensor/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/device/cpu/cpu_device.h"

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

// Every range of the packed array, packed and unpacked on its own.
TEST(PackShared, RangesAreThePackedArrayInPieces) {
  auto device = *CreateCpuDevice({.threads = 1});
  const auto stream = device->CreateStream();
  const Block a = Of({{{0, 2}, {4, 6}}, {{0, 3}, {5, 8}}, {{0, 2}}});
  const Block b = Of({{{1, 6}}, {{2, 7}}, {{0, 2}}});
  const SharedPart part = SharedPartOf(a, b);
  ASSERT_EQ(part.shape, (Shape{3, 3, 2}));
  std::vector<int32_t> source(4 * 6 * 2), whole(18, -1);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int32_t>(i);
  const ConstTensorView from(DType::kI32, source.data(), a.shape);
  ASSERT_TRUE(PackShared(*device, *stream, part, 0, 18, from, whole.data()).ok());
  // Rows 1, 4, 5 are rows 1, 2, 3 of a; columns 2, 5, 6 are its columns 2, 3, 4.
  EXPECT_EQ(whole, (std::vector<int32_t>{16, 17, 18, 19, 20, 21, 28, 29, 30, 31, 32, 33, 40, 41, 42, 43, 44, 45}));
  std::vector<int32_t> want(5 * 5 * 2, -1);
  ASSERT_TRUE(CopyShared(*device, *stream, part, from, {DType::kI32, want.data(), b.shape}).ok());
  for (int64_t begin = 0; begin <= 18; ++begin) {
    for (int64_t end = begin; end <= 18; ++end) {
      std::vector<int32_t> packed(static_cast<size_t>(end - begin) + 1, -7);
      ASSERT_TRUE(PackShared(*device, *stream, part, begin, end, from, packed.data()).ok());
      EXPECT_TRUE(std::equal(packed.begin(), packed.end() - 1, whole.begin() + begin)) << begin << " " << end;
      EXPECT_EQ(packed.back(), -7);
      std::vector<int32_t> result(want.size(), -1);
      const TensorView to{DType::kI32, result.data(), b.shape};
      ASSERT_TRUE(UnpackShared(*device, *stream, part, 0, begin, whole.data(), to).ok());
      ASSERT_TRUE(UnpackShared(*device, *stream, part, begin, end, packed.data(), to).ok());
      ASSERT_TRUE(UnpackShared(*device, *stream, part, end, 18, whole.data() + end, to).ok());
      EXPECT_EQ(result, want) << begin << " " << end;
    }
  }
}

TEST(PackShared, AScalarIsOneElement) {
  auto device = *CreateCpuDevice({.threads = 1});
  const auto stream = device->CreateStream();
  const float one = 1;
  float packed = 0;
  const SharedPart part = SharedPartOf(Of({}), Of({}));
  ASSERT_TRUE(PackShared(*device, *stream, part, 0, 1, {DType::kF32, &one, {}}, &packed).ok());
  EXPECT_EQ(packed, 1);
}

}  // namespace
}  // namespace tp::worker
