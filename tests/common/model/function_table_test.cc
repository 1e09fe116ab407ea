// Type inference of the function table, by family: dtype and shape of every output, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/model/function.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

// "F32[batch, 4]"; "-" is an omitted optional.
TensorType Type(const std::string& text) {
  const size_t bracket = text.find('[');
  TensorType type{*ParseDType(text.substr(0, bracket)), {}};
  const std::string dims = text.substr(bracket + 1, text.size() - bracket - 2);
  if (dims.empty()) return type;
  for (absl::string_view dim : absl::StrSplit(dims, ',')) {
    type.shape.push_back(*ParseDim(std::string_view(dim.data(), dim.size())));
  }
  return type;
}

using Ints = std::vector<int64_t>;
SymShape Dims(const std::string& text) { return Type(absl::StrCat("F32[", text, "]")).shape; }

struct Case {
  std::string function;
  std::vector<std::string> inputs;
  Attributes attributes;
  std::string outputs;  // "; " between them; or part of the error after "! "
};

class FunctionTableTest : public ::testing::TestWithParam<Case> {};

TEST_P(FunctionTableTest, InfersOrRefuses) {
  const Case& c = GetParam();
  const FunctionDef* function = FindFunction(c.function);
  ASSERT_NE(function, nullptr);
  const bool variadic = !function->arguments.empty() && function->arguments.back().variadic;
  std::vector<TensorType> types(c.inputs.size());
  std::vector<const TensorType*> inputs(variadic ? c.inputs.size() : function->arguments.size(), nullptr);
  ASSERT_LE(c.inputs.size(), inputs.size());
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i] == "-") continue;
    types[i] = Type(c.inputs[i]);
    inputs[i] = &types[i];
  }
  absl::StatusOr<std::vector<TensorType>> outputs = std::vector<TensorType>();
  absl::StatusOr<Attributes> attributes = CheckAttributes(*function, c.attributes);
  if (attributes.ok()) {
    outputs = function->infer(inputs, *attributes);
  } else {
    outputs = attributes.status();
  }
  if (c.outputs.substr(0, 2) == "! ") {
    ASSERT_FALSE(outputs.ok());
    EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(outputs.status().message()), HasSubstr(c.outputs.substr(2)));
    return;
  }
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  std::vector<std::string> texts;
  for (const TensorType& type : *outputs) {
    texts.push_back(absl::StrCat(std::string(DTypeName(type.dtype)), SymShapeText(type.shape)));
  }
  EXPECT_EQ(absl::StrJoin(texts, "; "), c.outputs);
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.function, "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(
    Linear, FunctionTableTest,
    ::testing::Values(
        Case{"matmul", {"F32[2,3]", "F32[3,4]"}, {}, "F32[2, 4]"},
        Case{"matmul", {"BF16[batch,1,time,8]", "BF16[5,8,4]"}, {}, "BF16[batch, 5, time, 4]"},
        Case{"matmul", {"F32[3]", "F32[3]"}, {}, "F32[]"}, Case{"matmul", {"F32[3]", "F32[7,3,4]"}, {}, "F32[7, 4]"},
        Case{"matmul", {"F32[7,2,3]", "F32[3]"}, {}, "F32[7, 2]"},
        Case{"matmul", {"F32[2,3]", "F32[4,3]"}, {}, "! matmul: the last dim of input must be the last but one"},
        Case{"matmul", {"F32[]", "F32[3]"}, {}, "! at least one dim"},
        Case{"matmul", {"F32[2,2,3]", "F32[5,3,4]"}, {}, "! do not broadcast; given F32[2, 2, 3], F32[5, 3, 4]"},
        Case{"matmul", {"I64[2,2]", "I64[2,2]"}, {}, "! matmul needs a floating dtype"},
        Case{"bmm", {"F32[batch,2,3]", "F32[batch,3,time]"}, {}, "F32[batch, 2, time]"},
        Case{"bmm", {"F32[1,2,3]", "F32[batch,3,4]"}, {}, "! bmm needs [b, m, k]"},
        Case{"conv1d", {"F32[batch,4,9]", "F32[6,4,3]"}, {{"stride", Ints{2}}}, "F32[batch, 6, 4]"},
        Case{"conv1d",
             {"F32[2,4,time]", "F32[6,2,3]", "F32[6]"},
             {{"groups", int64_t{2}}, {"padding", Ints{1}}},
             "F32[2, 6, time]"},
        Case{"conv1d", {"F32[2,4,time]", "F32[6,4,3]"}, {{"stride", int64_t{2}}}, "! a stride of 2 needs a fixed size"},
        Case{"conv1d", {"F32[2,4,2]", "F32[6,4,3]"}, {}, "! longer than the padded input"},
        Case{"conv2d",
             {"F32[2,3,8,10]", "F32[5,3,3,2]"},
             {{"stride", Ints{1, 2}}, {"padding", Ints{1, 0}}, {"dilation", Ints{1, 2}}},
             "F32[2, 5, 8, 4]"},
        Case{"conv2d", {"F32[2,3,8,8]", "F32[5,2,3,3]"}, {}, "! the input's dim 1 must be the weight's dim 1"},
        Case{"conv2d", {"F32[2,3,8,8]", "F32[5,3,3,3]", "F32[4]"}, {}, "! the bias must be [out]"},
        Case{"conv2d", {"F32[2,3,8]", "F32[5,3,3,3]"}, {}, "! conv2d needs an input [batch, channels, height, width]"},
        Case{"conv2d", {"F32[2,3,8,8]", "F32[5,3,3,3]"}, {{"stride", Ints{0, 1}}}, "! stride must be at least 1"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    AttentionAndNorm, FunctionTableTest,
    ::testing::Values(
        Case{"attention", {"F32[2,3,4,8]", "F32[2,3,2,8]", "F32[2,3,2,8]"}, {{"cache", false}}, "F32[2, 3, 4, 8]"},
        Case{"rotary", {"F32[batch,time,4,8]"}, {{"theta", -1.0}}, "! theta must be above 0"},
        Case{"layer_norm", {"F32[batch,3,4]", "F32[3,4]", "F32[3,4]"}, {{"dims", int64_t{2}}}, "F32[batch, 3, 4]"},
        Case{"layer_norm", {"F32[batch,4]"}, {}, "F32[batch, 4]"},
        Case{"layer_norm", {"F32[batch,4]", "F32[3]"}, {}, "! must be [4], the last dims"},
        Case{"layer_norm", {"F32[4]"}, {{"dims", int64_t{2}}}, "! over the last 2 dims"},
        Case{"log_softmax", {"BF16[batch,4]"}, {{"dim", int64_t{0}}}, "BF16[batch, 4]"},
        Case{"log_softmax", {"I64[4]"}, {}, "! log_softmax needs a floating dtype"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Elementwise, FunctionTableTest,
    ::testing::Values(
        Case{"neg", {"I32[batch]"}, {}, "I32[batch]"}, Case{"abs", {"BF16[2]"}, {}, "BF16[2]"},
        Case{"neg", {"BOOL[2]"}, {}, "! neg needs numbers"}, Case{"exp", {"BF16[2,time]"}, {}, "BF16[2, time]"},
        Case{"rsqrt", {"I64[2]"}, {}, "! rsqrt needs a floating dtype, F32 or BF16; given I64[2]"},
        Case{"logical_not", {"BOOL[2]"}, {}, "BOOL[2]"}, Case{"logical_not", {"F32[2]"}, {}, "! needs BOOL"},
        Case{"cast", {"BOOL[batch]"}, {{"dtype", DType::kI64}}, "I64[batch]"},
        Case{"add", {"I64[batch,1]", "I64[3]"}, {}, "I64[batch, 3]"},
        Case{"add", {"F32[2]"}, {{"scalar", 0.5}}, "F32[2]"},
        Case{"mul", {"I64[2]"}, {{"scalar", int64_t{3}}}, "I64[2]"},
        Case{"mul", {"I64[2]"}, {{"scalar", 0.5}}, "! mul: scalar 0.5 is no value of I64"},
        Case{"mul", {"I32[2]"}, {{"scalar", 2147483648.0}}, "! is no value of I32"},
        Case{"add", {"F32[2]"}, {}, "! exactly one of 'other' and attribute 'scalar'"},
        Case{"add", {"F32[2]", "F32[2]"}, {{"scalar", 1.0}}, "! exactly one of"},
        Case{"add", {"F32[2]", "I64[2]"}, {}, "! one dtype (cast one of them); given F32[2], I64[2]"},
        Case{"add", {"BOOL[2]", "BOOL[2]"}, {}, "! add needs numbers"},
        Case{"div", {"I64[2]", "I64[2]"}, {}, "! div needs a floating dtype"},
        Case{"pow", {"F32[2]"}, {{"scalar", int64_t{2}}}, "F32[2]"},
        Case{"floor_div", {"I64[2]", "I64[2]"}, {}, "I64[2]"},
        Case{"remainder", {"I64[2]"}, {{"scalar", int64_t{0}}}, "! division by 0"},
        Case{"eq", {"BOOL[2]", "BOOL[batch,1]"}, {}, "BOOL[batch, 2]"},
        Case{"eq", {"BOOL[2]"}, {{"scalar", 1.0}}, "! a BOOL tensor has no scalar"},
        Case{"ne", {"I64[batch]"}, {{"scalar", int64_t{-100}}}, "BOOL[batch]"},
        Case{"lt", {"F32[2]", "F32[2]"}, {}, "BOOL[2]"}, Case{"ge", {"BOOL[2]", "BOOL[2]"}, {}, "! ge needs numbers"},
        Case{"logical_and", {"BOOL[2,1]", "BOOL[time]"}, {}, "BOOL[2, time]"},
        Case{"logical_or", {"BOOL[2]", "I64[2]"}, {}, "! logical_or needs BOOL"},
        Case{"where", {"BOOL[batch,1]", "I64[3]", "I64[]"}, {}, "I64[batch, 3]"},
        Case{"where", {"F32[2]", "F32[2]", "F32[2]"}, {}, "! the condition must be BOOL"},
        Case{"where", {"BOOL[2]", "F32[2]", "BF16[2]"}, {}, "! one dtype"},
        Case{"masked_fill", {"F32[batch,3]", "BOOL[3]"}, {{"value", -1e9}}, "F32[batch, 3]"},
        Case{"masked_fill", {"F32[3]", "BOOL[batch,3]"}, {{"value", 0.0}}, "! the mask must broadcast"},
        Case{"masked_fill", {"I64[3]", "BOOL[3]"}, {{"value", 0.5}}, "! is no value of I64"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Shape, FunctionTableTest,
    ::testing::Values(
        Case{"view", {"I64[batch,6]"}, {{"shape", Dims("batch,2,3")}}, "I64[batch, 2, 3]"},
        Case{"view", {"F32[batch,256]"}, {{"shape", Dims("batch,4,32")}}, "! view to [batch, 4, 32] does not keep"},
        Case{"view", {"F32[batch,256]"}, {{"shape", Dims("batch,4,32")}}, "! not of one rank's shard"},
        Case{"flatten", {"F32[batch,time,4,2]"}, {{"start_dim", int64_t{1}}}, "F32[batch, 8*time]"},
        Case{"flatten", {"F32[]"}, {}, "F32[1]"},
        Case{"flatten", {"F32[2,3,4]"}, {{"end_dim", int64_t{1}}}, "F32[6, 4]"},
        Case{"flatten", {"F32[2,3]"}, {{"start_dim", int64_t{1}}, {"end_dim", int64_t{0}}}, "! comes after"},
        Case{"squeeze", {"F32[1,batch,1]"}, {}, "F32[batch]"},
        Case{"squeeze", {"F32[1,batch,1]"}, {{"dims", Ints{-1}}}, "F32[1, batch]"},
        Case{"squeeze", {"F32[1,batch]"}, {{"dims", int64_t{1}}}, "! dim 1 has size batch, not 1"},
        Case{"unsqueeze", {"F32[batch]"}, {{"dim", int64_t{-1}}}, "F32[batch, 1]"},
        Case{"unsqueeze", {"F32[batch]"}, {{"dim", int64_t{2}}}, "! unsqueeze"},
        Case{"permute", {"F32[batch,2,3]"}, {{"dims", Ints{2, 0, -2}}}, "F32[3, batch, 2]"},
        Case{"permute", {"F32[2,3]"}, {{"dims", Ints{0, 0}}}, "! named twice"},
        Case{"permute", {"F32[2,3]"}, {{"dims", Ints{0}}}, "! every dim once"},
        Case{"expand", {"F32[1,3]"}, {{"shape", Dims("batch,2,-1")}}, "F32[batch, 2, 3]"},
        Case{"expand", {"F32[2,3]"}, {{"shape", Dims("4,3")}}, "! only a size of 1"},
        Case{"expand", {"F32[3]"}, {{"shape", Dims("-1,3")}}, "! a negative size"},
        Case{
            "cat", {"F32[batch,2]", "F32[batch,3]", "F32[batch,time]"}, {{"dim", int64_t{-1}}}, "F32[batch, time + 5]"},
        Case{"cat", {"F32[2,2]", "F32[3,3]"}, {}, "! cat: all dims but 0 must be equal"},
        Case{"cat", {"F32[2]", "I64[2]"}, {}, "! cat: all arguments must have one dtype"},
        Case{"stack", {"BOOL[batch]", "BOOL[batch]"}, {{"dim", int64_t{1}}}, "BOOL[batch, 2]"},
        Case{"stack", {"F32[2]", "F32[3]"}, {}, "! stack: all shapes must be equal"},
        Case{"split", {"F32[batch,7]"}, {{"sizes", Ints{3, 4}}, {"dim", int64_t{1}}}, "F32[batch, 3]; F32[batch, 4]"},
        Case{"split", {"F32[7]"}, {{"sizes", Ints{3, 3}}}, "! the sizes make 6, dim 0 has 7"},
        Case{"split", {"F32[batch]"}, {{"sizes", Ints{3}}}, "! dim 0 has batch"},
        Case{"chunk", {"F32[5]"}, {{"chunks", int64_t{3}}}, "F32[2]; F32[2]; F32[1]"},
        Case{"chunk", {"F32[4]"}, {{"chunks", int64_t{3}}}, "F32[2]; F32[2]"},
        Case{"chunk", {"F32[batch]"}, {{"chunks", int64_t{2}}}, "! chunk needs a fixed size"},
        Case{"slice",
             {"F32[batch,9]"},
             {{"dim", int64_t{1}}, {"start", int64_t{-5}}, {"step", int64_t{2}}},
             "F32[batch, 3]"},
        Case{"slice", {"F32[9]"}, {{"start", int64_t{4}}, {"end", int64_t{2}}}, "F32[0]"},
        Case{"slice", {"F32[9]"}, {{"start", int64_t{2}}, {"end", int64_t{100}}}, "F32[7]"},
        Case{"slice", {"F32[2,time]"}, {{"dim", int64_t{1}}, {"start", int64_t{1}}}, "F32[2, time - 1]"},
        Case{"slice", {"F32[2,time]"}, {{"dim", int64_t{1}}, {"end", int64_t{-1}}}, "F32[2, time - 1]"},
        Case{"slice", {"F32[time]"}, {{"end", int64_t{4}}}, "! slice of a free size (time)"},
        Case{"slice", {"F32[time]"}, {{"start", int64_t{-2}}}, "! slice of a free size"},
        Case{"slice", {"F32[4]"}, {{"step", int64_t{0}}}, "! step must be at least 1"},
        Case{"select", {"F32[batch,time]"}, {{"dim", int64_t{1}}, {"index", int64_t{-1}}}, "F32[batch]"},
        Case{
            "select", {"F32[3]"}, {{"dim", int64_t{0}}, {"index", int64_t{3}}}, "! index 3 is not in dim 0 of size 3"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    IndexAndReduce, FunctionTableTest,
    ::testing::Values(
        Case{"index_select", {"F32[batch,9]", "I32[4]"}, {{"dim", int64_t{-1}}}, "F32[batch, 4]"},
        Case{"index_select", {"F32[9]", "F32[4]"}, {{"dim", int64_t{0}}}, "! index [n]"},
        Case{"gather", {"BF16[batch,9]", "I64[batch,2]"}, {{"dim", int64_t{1}}}, "BF16[batch, 2]"},
        Case{"gather", {"F32[4,9]", "I64[3,20]"}, {{"dim", int64_t{1}}}, "F32[3, 20]"},
        Case{"gather", {"F32[4,9]", "I64[5,2]"}, {{"dim", int64_t{1}}}, "! must not be larger than the input in dim 0"},
        Case{"arange", {}, {{"end", Dims("time")}}, "I64[time]"},
        Case{"arange", {}, {{"end", Dims("2*time")}, {"step", int64_t{2}}, {"dtype", DType::kF32}}, "F32[time]"},
        Case{"arange", {}, {{"end", int64_t{7}}, {"start", int64_t{1}}, {"step", int64_t{3}}}, "I64[2]"},
        Case{"arange", {}, {{"end", int64_t{0}}, {"start", int64_t{5}}, {"step", int64_t{-2}}}, "I64[3]"},
        Case{"arange", {}, {{"end", int64_t{-3}}}, "I64[0]"},
        Case{"arange", {}, {{"end", Dims("time")}, {"step", int64_t{2}}}, "! a step of 2 must divide"},
        Case{"arange", {}, {{"end", Dims("2,3")}}, "! end is one size"},
        Case{"arange", {}, {{"end", int64_t{2}}, {"step", int64_t{0}}}, "! step must not be 0"},
        Case{"pick", {"F32[batch,9]", "I64[batch]"}, {{"dim", int64_t{1}}}, "F32[batch, 1]"},
        Case{"pick", {"F32[batch,9]", "I64[9]"}, {{"dim", int64_t{1}}}, "! the input without dim 1: [batch]"},
        Case{"sum", {"BOOL[batch,3]"}, {}, "I64[]"}, Case{"sum", {"I32[batch,3]"}, {{"dims", Ints{1}}}, "I32[batch]"},
        Case{"mean", {"F32[2,batch,3]"}, {{"dims", Ints{0, -1}}, {"keepdim", true}}, "F32[1, batch, 1]"},
        Case{"mean", {"I64[2]"}, {}, "! mean needs a floating dtype"},
        Case{"max", {"I64[batch,3]"}, {{"dims", int64_t{-1}}}, "I64[batch]"},
        Case{"min", {"F32[0]"}, {}, "! min of no values"},
        Case{"sum", {"F32[2]"}, {{"dims", Ints{0, -1}}}, "! named twice"},
        Case{"argmax", {"F32[batch,4]"}, {{"keepdim", true}}, "I64[batch, 1]"}, Case{"argmax", {"I64[4]"}, {}, "I64[]"},
        Case{"topk", {"F32[batch,9]"}, {{"k", int64_t{2}}}, "F32[batch, 2]; I64[batch, 2]"},
        Case{"topk", {"F32[9]"}, {{"k", int64_t{10}}}, "! k is 10, not in [1, 9]"},
        Case{"topk", {"F32[time]"}, {{"k", int64_t{1}}}, "! topk needs a fixed size"},
        Case{"max_with_index", {"BF16[3,4]"}, {{"dim", int64_t{0}}}, "BF16[4]; I64[4]"},
        Case{"min_with_index", {"F32[3,4]"}, {{"dim", int64_t{0}}, {"keepdim", true}}, "F32[1, 4]; I64[1, 4]"},
        Case{"min_with_index", {"BOOL[3]"}, {{"dim", int64_t{0}}}, "! needs numbers"},
        Case{"cross_entropy", {"BF16[batch,9]", "I64[batch]"}, {}, "F32[]"},
        Case{"cross_entropy", {"F32[9]", "I64[]"}, {{"reduction", std::string("none")}}, "F32[]"},
        Case{"cross_entropy",
             {"F32[batch,9,time]", "I32[batch,time]"},
             {{"reduction", std::string("none")}},
             "F32[batch, time]"},
        Case{"cross_entropy", {"F32[batch,time,9]", "I64[batch,time]"}, {{"dim", int64_t{-1}}}, "F32[]"},
        Case{"cross_entropy", {"F32[batch,time,9]", "I64[batch,time]"}, {}, "! without its class dim: [batch, 9]"},
        Case{"cross_entropy", {"F32[batch,9]", "F32[batch]"}, {}, "! targets of I64 or I32"},
        Case{"cross_entropy", {"F32[batch,9]", "I64[batch]"}, {{"reduction", std::string("avg")}}, "! not 'avg'"}),
    NameOf);

TEST(CrossEntropyTest, WeightsAndSmoothingAreUnimplementedByName) {
  const FunctionDef& function = *FindFunction("cross_entropy");
  const TensorType logits = Type("F32[2,9]"), target = Type("I64[2]"), weight = Type("F32[9]");
  const Attributes plain = *CheckAttributes(function, {});
  absl::Status status = function.infer(std::vector<const TensorType*>{&logits, &target, &weight}, plain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("weight"));
  const Attributes smooth = *CheckAttributes(function, {{"label_smoothing", 0.1}});
  status = function.infer(std::vector<const TensorType*>{&logits, &target, nullptr}, smooth).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("label_smoothing"));
}

// The names of issue and contract: none is missing.
TEST(FunctionNamesTest, AreTheContracts) {
  const std::set<std::string> wanted{"linear",
                                     "embedding",
                                     "conv1d",
                                     "conv2d",
                                     "matmul",
                                     "bmm",
                                     "rotary",
                                     "attention",
                                     "rms_norm",
                                     "layer_norm",
                                     "softmax",
                                     "log_softmax",
                                     "neg",
                                     "abs",
                                     "exp",
                                     "log",
                                     "sqrt",
                                     "rsqrt",
                                     "sin",
                                     "cos",
                                     "tanh",
                                     "sigmoid",
                                     "silu",
                                     "relu",
                                     "gelu",
                                     "logical_not",
                                     "cast",
                                     "add",
                                     "sub",
                                     "mul",
                                     "div",
                                     "pow",
                                     "maximum",
                                     "minimum",
                                     "floor_div",
                                     "remainder",
                                     "eq",
                                     "ne",
                                     "lt",
                                     "le",
                                     "gt",
                                     "ge",
                                     "logical_and",
                                     "logical_or",
                                     "where",
                                     "masked_fill",
                                     "reshape",
                                     "view",
                                     "flatten",
                                     "squeeze",
                                     "unsqueeze",
                                     "transpose",
                                     "permute",
                                     "expand",
                                     "cat",
                                     "stack",
                                     "split",
                                     "chunk",
                                     "slice",
                                     "select",
                                     "index_select",
                                     "gather",
                                     "arange",
                                     "pick",
                                     "sum",
                                     "mean",
                                     "max",
                                     "min",
                                     "argmax",
                                     "topk",
                                     "max_with_index",
                                     "min_with_index",
                                     "cross_entropy"};
  const std::vector<std::string> names = FunctionNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), wanted);
  EXPECT_EQ(names.size(), wanted.size());
}

}  // namespace
}  // namespace tp
