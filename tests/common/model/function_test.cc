#include "common/model/function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tp {
namespace {

using ::testing::HasSubstr;

const Dim kBatch = Dim::Symbol("batch");
const Dim kTime = Dim::Symbol("time");

absl::StatusOr<TensorType> Infer(const std::string& name, std::vector<TensorType> inputs,
                                 const Attributes& given = {}) {
  const FunctionDef* function = FindFunction(name);
  absl::StatusOr<Attributes> attributes = CheckAttributes(*function, given);
  if (!attributes.ok()) return attributes.status();
  std::vector<const TensorType*> pointers(function->arguments.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) pointers[i] = &inputs[i];
  absl::StatusOr<std::vector<TensorType>> outputs = function->infer(pointers, *attributes);
  if (!outputs.ok()) return outputs.status();
  return (*outputs)[0];
}

TensorType F32(SymShape shape) { return {DType::kF32, std::move(shape)}; }

TEST(FunctionTest, TableHasNamesAndArguments) {
  EXPECT_EQ(FindFunction("softmax")->arguments[0].name, "input");
  EXPECT_TRUE(FindFunction("cat")->arguments[0].variadic);
  EXPECT_TRUE(FindFunction("add")->arguments[1].optional);
  EXPECT_EQ(FindFunction("conv3d"), nullptr);
  for (const std::string& name : FunctionNames()) EXPECT_EQ(FindFunction(name)->name, name);
}

TEST(FunctionTest, LinearTakesItsOutputDTypeFromTheAttribute) {
  const TensorType x{DType::kBF16, {kBatch, kTime, 8}}, w{DType::kBF16, {257, 8}};
  EXPECT_EQ(*Infer("linear", {x, w}), (TensorType{DType::kBF16, {kBatch, kTime, 257}}));
  EXPECT_EQ(*Infer("linear", {x, w}, {{"output_dtype", std::string("F32")}}), F32({kBatch, kTime, 257}));
  EXPECT_THAT(std::string(Infer("linear", {F32({kBatch, 7}), F32({257, 8})}).status().message()),
              HasSubstr("F32[batch, 7], F32[257, 8]"));
  EXPECT_FALSE(Infer("linear", {F32({kBatch, 8}), w}).ok());
}

TEST(FunctionTest, EmbeddingHasTheWeightsDType) {
  EXPECT_EQ(*Infer("embedding", {{DType::kI64, {kBatch, kTime}}, {DType::kBF16, {10, 4}}}),
            (TensorType{DType::kBF16, {kBatch, kTime, 4}}));
  EXPECT_FALSE(Infer("embedding", {F32({kBatch}), F32({10, 4})}).ok());
}

TEST(FunctionTest, ReshapeFindsTheFreeDim) {
  EXPECT_EQ(
      Infer("reshape", {F32({kBatch, kTime, 256})}, {{"shape", SymShape{kBatch, kTime, Dim(-1), Dim(32)}}})->shape,
      (SymShape{kBatch, kTime, 8, 32}));
  EXPECT_EQ(Infer("reshape", {F32({kBatch, kTime, 8})}, {{"shape", std::vector<int64_t>{-1, 8}}})->shape,
            (SymShape{kBatch * kTime, 8}));
  EXPECT_THAT(
      std::string(
          Infer("reshape", {F32({kBatch, 256})}, {{"shape", SymShape{kBatch, Dim(4), Dim(32)}}}).status().message()),
      HasSubstr("not of one rank's shard"));
  EXPECT_FALSE(Infer("reshape", {F32({4})}, {{"shape", std::vector<int64_t>{-1, -1}}}).ok());
  EXPECT_FALSE(Infer("reshape", {F32({4})}, {{"shape", std::vector<int64_t>{-2}}}).ok());
  EXPECT_FALSE(Infer("reshape", {F32({0})}, {{"shape", std::vector<int64_t>{0, -1}}}).ok());
}

TEST(FunctionTest, BroadcastingFollowsNumpy) {
  EXPECT_EQ(Infer("add", {F32({kBatch, 1, 4}), F32({3, 1})})->shape, (SymShape{kBatch, 3, 4}));
  EXPECT_FALSE(Infer("mul", {F32({kBatch, 4}), F32({kTime, 4})}).ok());
  EXPECT_FALSE(Infer("sub", {F32({4}), {DType::kF64, {4}}}).ok());
  EXPECT_FALSE(Infer("exp", {{DType::kF64, {4}}}).ok());
}

TEST(FunctionTest, AttentionNeedsWholeGroupsOfHeads) {
  const TensorType q = F32({kBatch, kTime, 8, 16});
  EXPECT_EQ(*Infer("attention", {q, F32({kBatch, kTime, 2, 16}), F32({kBatch, kTime, 2, 16})}), q);
  EXPECT_FALSE(Infer("attention", {q, F32({kBatch, kTime, 3, 16}), F32({kBatch, kTime, 3, 16})}).ok());
  EXPECT_FALSE(Infer("attention", {q, F32({kBatch, kTime, 2, 16}), F32({kBatch, kTime, 4, 16})}).ok());
  EXPECT_FALSE(Infer("rotary", {F32({kBatch, kTime, 2, 15})}).ok());
}

TEST(FunctionTest, RestOfTheTable) {
  EXPECT_EQ(Infer("transpose", {F32({2, 3, 4})}, {{"dim0", int64_t{0}}, {"dim1", int64_t{-1}}})->shape,
            (SymShape{4, 3, 2}));
  EXPECT_EQ(*Infer("argmax", {F32({kBatch, 4})}), (TensorType{DType::kI64, {kBatch}}));
  EXPECT_EQ(Infer("cast", {F32({4})}, {{"dtype", DType::kBF16}})->dtype, DType::kBF16);
  EXPECT_EQ(Infer("cast", {F32({4})}, {{"dtype", std::string("I64")}})->dtype, DType::kI64);
  EXPECT_FALSE(Infer("softmax", {F32({4})}, {{"dim", int64_t{1}}}).ok());
  EXPECT_FALSE(Infer("softmax", {F32({})}).ok());
  EXPECT_FALSE(Infer("gelu", {F32({4})}, {{"approximate", std::string("fast")}}).ok());
  EXPECT_FALSE(Infer("rms_norm", {F32({4, 8}), F32({4})}).ok());
}

TEST(CheckAttributesTest, DefaultsAreFilledAndErrorsNameTheNearest) {
  EXPECT_EQ(CheckAttributes(*FindFunction("rms_norm"), {})->at("eps"), Attribute(1e-6));
  EXPECT_FALSE(CheckAttributes(*FindFunction("add"), {})->contains("scalar"));  // one that is not given stays out
  EXPECT_EQ(CheckAttributes(*FindFunction("rotary"), {{"theta", int64_t{500000}}})->at("theta"), Attribute(500000.0));
  EXPECT_THAT(std::string(CheckAttributes(*FindFunction("softmax"), {{"dims", int64_t{1}}}).status().message()),
              HasSubstr("nearest: dim"));
  EXPECT_THAT(std::string(CheckAttributes(*FindFunction("softmax"), {{"dim", 0.5}}).status().message()),
              HasSubstr("is an integer, given a number 0.5"));
  EXPECT_THAT(std::string(CheckAttributes(*FindFunction("cast"), {}).status().message()),
              HasSubstr("needs attribute 'dtype'"));
}

}  // namespace
}  // namespace tp
