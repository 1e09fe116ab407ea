#include "client/tpctl/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tp::client {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<HostTensor> Parse(const std::string& text, DType dtype) {
  const std::vector<InputType> types = {{"x", dtype, {Dim(1), Dim(1)}}};
  absl::StatusOr<std::vector<NamedTensor>> inputs = ParseInputs({"x=" + text}, types);
  if (!inputs.ok()) return inputs.status();
  return (*inputs)[0].tensor;
}

TEST(InputsTest, NumbersOutsideOfTheTypesRangeAreRefused) {
  for (const auto& [text, dtype] : std::vector<std::pair<std::string, DType>>{{"1e400", DType::kF32},
                                                                              {"-1e400", DType::kF64},
                                                                              {"1e39", DType::kF32},
                                                                              {"70000", DType::kF16},
                                                                              {"4e38", DType::kBF16},
                                                                              {"3000000000", DType::kI32},
                                                                              {"-2147483649", DType::kI32},
                                                                              {"256", DType::kU8},
                                                                              {"-1", DType::kU8},
                                                                              {"9223372036854775808", DType::kI64}}) {
    const absl::StatusOr<HostTensor> tensor = Parse("0," + text, dtype);
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr("'" + text + "' is outside of the range of "));
  }
}

TEST(InputsTest, NumbersAtTheEndOfTheRangeAndWrittenInfinitiesAreTaken) {
  EXPECT_EQ(Parse("-2147483648,2147483647", DType::kI32)->data<int32_t>()[0], INT32_MIN);
  EXPECT_EQ(Parse("255", DType::kU8)->data<uint8_t>()[0], 255);
  EXPECT_EQ(Parse("3.4028234e38", DType::kF32)->data<float>()[0], 3.4028234e38f);
  EXPECT_TRUE(std::isinf(Parse("-inf", DType::kF32)->data<float>()[0]));
  EXPECT_TRUE(std::isnan(Parse("nan", DType::kF32)->data<float>()[0]));
}

TEST(InputsTest, WordsThatAreNoNumbersAreRefused) {
  for (const char* text : {"", "a", "1,,2", "1.5x", "0x"})
    EXPECT_EQ(Parse(text, DType::kF32).status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(Parse("1.5", DType::kI64).status().code(), absl::StatusCode::kInvalidArgument);
}

std::vector<InputShard> Blocks(const std::vector<Shape>& shapes) {
  std::vector<InputShard> shards;
  for (size_t rank = 0; rank < shapes.size(); ++rank)
    shards.push_back({static_cast<int>(rank), {DType::kU8, shapes[rank], ""}});
  return shards;
}

TEST(ShapeOfShardsTest, SizesOfTheRanksThatCutADimAddUp) {
  const Mesh mesh = *Mesh::Parse("dp=2,tp=2"), four = *Mesh::Parse("tp=4");
  const NamedPlacements rows = {{"dp", Placement::Shard(0)}};
  EXPECT_EQ(ShapeOfShards(Blocks({{3, 7}, {3, 7}, {2, 7}, {2, 7}}), rows, mesh), (Shape{5, 7}));
  const NamedPlacements nested = {{"dp", Placement::Shard(0)}, {"tp", Placement::Shard(-2)}};
  EXPECT_EQ(ShapeOfShards(Blocks({{2, 7}, {1, 7}, {1, 7}, {1, 7}}), nested, mesh), (Shape{5, 7}));
  const NamedPlacements both = {{"dp", Placement::Shard(1)}, {"tp", Placement::StridedShard(0, 2)}};
  EXPECT_EQ(ShapeOfShards(Blocks({{4, 4}, {3, 4}, {4, 3}, {3, 3}}), both, mesh), (Shape{7, 7}));
  EXPECT_EQ(ShapeOfShards(Blocks({{3}, {3}, {2}, {2}}), {{"tp", Placement::GroupShard(0, 2)}}, four), (Shape{5}));
  EXPECT_EQ(ShapeOfShards(Blocks({{2}, {2}, {1}}), {{"tp", Placement::Shard(0)}}, four), (Shape{5}));  // rank 3: none
  EXPECT_EQ(ShapeOfShards(Blocks({{2}, {2}, {2}, {2}}), {{"tp", Placement::Partial()}}, four), (Shape{2}));
  EXPECT_EQ(ShapeOfShards(Blocks({{2}, {2}}), {{"x", Placement::Shard(0)}}, four), std::nullopt);
  EXPECT_EQ(ShapeOfShards(Blocks({{2}, {2}}), {{"tp", Placement::Shard(1)}}, four), std::nullopt);
  EXPECT_EQ(ShapeOfShards(Blocks({{2}, {2, 1}}), {{"tp", Placement::Shard(0)}}, four), std::nullopt);
}

TEST(ForwardInputsTest, ThreeForms) {
  const std::vector<InputType> types = {{"x", DType::kF32, {Dim(1), Dim(1)}}, {"y", DType::kF32, {Dim(1), Dim(1)}}};
  const Mesh mesh = *Mesh::Parse("tp=2");
  const auto inputs = ParseForwardInputs({{"x=1,2", "y=@a/b"}, {}, {}}, types, mesh);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ((*inputs)[0].full.shape, (Shape{1, 2}));
  EXPECT_EQ((*inputs)[1].ref, "a/b");
  for (const InputWords& words : std::vector<InputWords>{{{"x=@"}, {}, {}},
                                                         {{}, {"x=1"}, {}},
                                                         {{}, {"x:a=b.npy"}, {}},
                                                         {{}, {"x:-1=b.npy"}, {}},
                                                         {{}, {"z:0=b.npy"}, {}},
                                                         {{"x=1"}, {}, {"x:tp=R"}},
                                                         {{"x=1"}, {}, {"tp=R"}}})
    EXPECT_EQ(ParseForwardInputs(words, types, mesh).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse("@t", DType::kF32).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tp::client
