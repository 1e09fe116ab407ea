#include "client/tpctl/tensor_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp::client {
namespace {

using ::testing::HasSubstr;

TEST(TensorArgumentsTest, Shapes) {
  EXPECT_EQ(*ParseShapeText("5x3"), Shape({5, 3}));
  EXPECT_EQ(*ParseShapeText(" 7 x 0 "), Shape({7, 0}));
  EXPECT_EQ(*ParseShapeText("[]"), Shape());
  EXPECT_EQ(*ParseShapeText(""), Shape());
  for (const char* text : {"-1x3", "5,3", "5x", "x", "a", "99999999999999999999", "1.5"})
    EXPECT_EQ(ParseShapeText(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(ParseShapeText("2x-1").status().message()), HasSubstr("size -1 is negative"));
}

TEST(TensorArgumentsTest, Placements) {
  const NamedPlacements expected = {{"dp", Placement::InterleavedShard(-1, {8, 2, 2})},
                                    {"tp", Placement::Partial(ReduceOp::kMax)}};
  EXPECT_EQ(*ParsePlacementsOption(" dp = IS(-1,[8,2,2]) , tp=P(max)"), expected);
  EXPECT_TRUE(ParsePlacementsOption("")->empty());
  for (const char* text : {"tp", "tp=", "=R", "tp=X", "tp=S", "tp=R,tp=S(0)", "tp=R,,dp=R"})
    EXPECT_EQ(ParsePlacementsOption(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(TensorArgumentsTest, Initializers) {
  EXPECT_EQ(ParseInitializer("zeros")->kind, Initializer::Kind::kZeros);
  EXPECT_EQ(*ParseInitializer("constant(-2.5)"), (Initializer{Initializer::Kind::kConstant, -2.5, 0}));
  EXPECT_EQ(*ParseInitializer("arange"), (Initializer{Initializer::Kind::kArange, 0, 1}));
  EXPECT_EQ(*ParseInitializer("arange(3, -2)"), (Initializer{Initializer::Kind::kArange, 3, -2}));
  EXPECT_EQ(*ParseInitializer("normal(1,0.5)"), (Initializer{Initializer::Kind::kNormal, 1, 0.5}));
  EXPECT_EQ(*ParseInitializer("uniform"), (Initializer{Initializer::Kind::kUniform, 0, 1}));
  EXPECT_EQ(*ParseInitializer("truncated_normal(0,2)"), (Initializer{Initializer::Kind::kTruncatedNormal, 0, 2}));
  EXPECT_EQ(ParseInitializer("xavier_normal")->kind, Initializer::Kind::kXavierNormal);
  for (const char* text :
       {"", "nothing", "zeros(1)", "kaiming_uniform(1)", "truncated_normal(0,-1)", "constant", "constant(1,2)",
        "constant(1", "constant(x)", "constant(1e400)", "constant(nan)", "arange(1,0)", "normal(0,0)", "normal(0,-1)"})
    EXPECT_EQ(ParseInitializer(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(TensorArgumentsTest, RanksAndFiles) {
  EXPECT_EQ(ParseRankFile("3=a=b.npy")->rank, 3);
  EXPECT_EQ(ParseRankFile("3=a=b.npy")->file, "a=b.npy");
  for (const char* text : {"a.npy", "=a.npy", "-1=a.npy", "x=a.npy", "1="})
    EXPECT_EQ(ParseRankFile(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  PutTensorOptions options;
  EXPECT_TRUE(ParseSourceRank("2", &options).ok());
  EXPECT_EQ(options.src_data_rank, 2);
  EXPECT_FALSE(options.no_src_data_rank);
  EXPECT_TRUE(ParseSourceRank("none", &options).ok());
  EXPECT_TRUE(options.no_src_data_rank);
  EXPECT_FALSE(ParseSourceRank("-1", &options).ok());
  EXPECT_FALSE(ParseSourceRank("all", &options).ok());
}

}  // namespace
}  // namespace tp::client
