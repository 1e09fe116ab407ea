#include "common/tensor/shape.h"

#include "gtest/gtest.h"

namespace tp {
namespace {

TEST(ShapeTest, CountsAndBytes) {
  EXPECT_EQ(*CheckedElementCount({}), 1);
  EXPECT_EQ(*CheckedElementCount({2, 3}), 6);
  EXPECT_EQ(*CheckedElementCount({2, 0, 3}), 0);
  EXPECT_EQ(*CheckedBytes({2, 3}, DType::kF32), 24);
  EXPECT_EQ(*CheckedBytes({5}, DType::kI64), 40);
  EXPECT_EQ(ElementCount({4, 0}), 0);
}

TEST(ShapeTest, NegativeAndHugeShapesAreRefused) {
  const int64_t big = int64_t{1} << 62;
  EXPECT_EQ(CheckedElementCount({-1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckedElementCount({0, -1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*CheckedElementCount({big}), big);
  EXPECT_EQ(CheckedElementCount({big, 2}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckedElementCount({INT64_MAX}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckedElementCount({big, big, big}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*CheckedElementCount({big, big, 0}), 0);
  EXPECT_EQ(CheckedBytes({big}, DType::kF32).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*CheckedBytes({big}, DType::kU8), big);
}

TEST(ShapeTest, StridesAndText) {
  EXPECT_EQ(RowMajorStrides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(RowMajorStrides({}), Shape{});
  EXPECT_EQ(ShapeText({2, 3}), "[2, 3]");
  EXPECT_EQ(ShapeText({}), "[]");
}

TEST(ShapeTest, NegativeDimsCountFromTheEnd) {
  EXPECT_EQ(*NormalizeDim(-1, 2), 1);
  EXPECT_EQ(*NormalizeDim(-2, 2), 0);
  EXPECT_EQ(*NormalizeDim(1, 2), 1);
  for (const int64_t dim : {int64_t{-3}, int64_t{2}, INT64_MIN}) {
    EXPECT_EQ(NormalizeDim(dim, 2).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(NormalizeDim(0, 0).ok());
}

}  // namespace
}  // namespace tp
