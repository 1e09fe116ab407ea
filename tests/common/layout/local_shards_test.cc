#include "common/layout/local_shards.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Shape> Global(const char* mesh_text, const char* placements, const std::vector<Shape>& locals,
                             const std::optional<Shape>& global = std::nullopt, DType dtype = DType::kF32) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  return GlobalShapeOfLocals(mesh, dtype, *ParsePlacements(mesh, placements), locals, global);
}

std::string Refusal(const absl::StatusOr<Shape>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  return std::string(result.status().message());
}

TEST(LocalShardsTest, EqualLocalsGiveTheGlobalShape) {
  EXPECT_EQ(*Global("tp=2", "tp=S(0)", {{4, 4}, {4, 4}}), (Shape{8, 4}));
  EXPECT_EQ(*Global("tp=2", "tp=S(-1)", {{4, 4}, {4, 4}}), (Shape{4, 8}));
  EXPECT_EQ(*Global("dp=2,tp=2", "dp=S(0),tp=S(0)", std::vector<Shape>(4, {3})), (Shape{12}));
  EXPECT_EQ(*Global("dp=2,tp=2", "dp=S(0),tp=P(sum)", std::vector<Shape>(4, {3, 5})), (Shape{6, 5}));
  EXPECT_EQ(*Global("tp=4", "tp=GS(0,2)", std::vector<Shape>(4, {3})), (Shape{6}));
  EXPECT_EQ(*Global("tp=2", "tp=SS(0,2)", std::vector<Shape>(2, {4})), (Shape{8}));
  EXPECT_EQ(*Global("tp=2", "tp=IS(0,[4,1,1])", std::vector<Shape>(2, {6})), (Shape{12}));
  EXPECT_EQ(*Global("tp=3", "tp=R", std::vector<Shape>(3, Shape())), Shape());
  EXPECT_EQ(*Global("tp=2", "tp=S(0)", {{0, 3}, {0, 3}}), (Shape{0, 3}));
}

TEST(LocalShardsTest, UnequalLocalsNeedTheGlobalShape) {
  EXPECT_THAT(Refusal(Global("tp=2", "tp=S(0)", {{3, 3}, {2, 3}})), HasSubstr("given [3, 3] [2, 3]"));
  EXPECT_EQ(*Global("tp=2", "tp=S(0)", {{3, 3}, {2, 3}}, Shape{5, 3}), (Shape{5, 3}));
  EXPECT_EQ(*Global("tp=4", "tp=S(0)", {{2, 3}, {2, 3}, {1, 3}, {0, 3}}, Shape{5, 3}), (Shape{5, 3}));
  EXPECT_EQ(*Global("dp=2,tp=2", "dp=S(0),tp=S(0)", {{2}, {1}, {1}, {1}}, Shape{5}), (Shape{5}));
}

TEST(LocalShardsTest, ListsOffTheChunkRuleAreRefusedWithExpectedAndGiven) {
  // Flat chunks are not nested ones.
  EXPECT_THAT(Refusal(Global("dp=2,tp=2", "dp=S(0),tp=S(0)", {{2}, {2}, {1}, {0}}, Shape{5})),
              HasSubstr("expected [2] [1] [1] [1], given [2] [2] [1] [0]"));
  EXPECT_THAT(Refusal(Global("tp=2", "tp=S(0)", {{2}, {3}}, Shape{5})), HasSubstr("expected [3] [2], given [2] [3]"));
  // A size that is not the sum.
  EXPECT_THAT(Refusal(Global("tp=2", "tp=S(0)", {{4}, {4}}, Shape{6})), HasSubstr("expected [3] [3], given [4] [4]"));
  // R and P have the whole.
  EXPECT_THAT(Refusal(Global("tp=2", "tp=R", {{4}, {4}}, Shape{8})), HasSubstr("expected [8] [8], given [4] [4]"));
  EXPECT_THAT(Refusal(Global("tp=2", "tp=P(sum)", {{4}, {3}}, Shape{4})), HasSubstr("expected [4] [4], given [4] [3]"));
  // Three rows on each of two ranks as two chunks would be 4 and 2.
  EXPECT_THAT(Refusal(Global("tp=2", "tp=SS(0,2)", {{3}, {3}})), HasSubstr("expected [4] [2], given [3] [3]"));
  EXPECT_THAT(Refusal(Global("tp=20", "tp=R", std::vector<Shape>(20, {4}), Shape{3})), HasSubstr(" ..."));
}

TEST(LocalShardsTest, WhatCanNotBeATensorIsRefused) {
  Refusal(Global("tp=2", "tp=S(0)", {{4}}));
  Refusal(Global("tp=2", "tp=S(0)", {{4}, {4, 1}}));
  Refusal(Global("tp=2", "tp=S(0)", {{4}, {4}}, Shape{8, 1}));
  Refusal(Global("tp=2", "tp=S(1)", {{4}, {4}}));
  Refusal(Global("tp=2", "tp=S(0)", {{-4}, {-4}}));
  Refusal(Global("tp=2", "tp=S(0)", {{4}, {4}}, Shape{-8}));
  Refusal(Global("tp=4", "tp=S(0)", std::vector<Shape>(4, {int64_t{1} << 61}), std::nullopt, DType::kU8));
  Refusal(Global("tp=2", "tp=P(avg)", {{4}, {4}}, std::nullopt, DType::kI64));
  Refusal(Global("tp=2", "tp=IS(0,4)", {{3}, {3}}));
}

}  // namespace
}  // namespace tp
