// Every function of the function table as one rank runs it: local blocks in, local blocks out.
#include "worker/runtime/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include "common/tensor/host_tensor.h"
#include "worker/device/cpu/cpu_device.h"

namespace tp::testing {
namespace {

using ::testing::HasSubstr;
using worker::ValueView;

// One value on one rank; `values` are those of the local block.
struct Block {
  DType dtype = DType::kF32;
  Shape global;
  std::vector<double> values;
  Placements placements = {Placement::Replicate()};
  bool present = true;
};

struct Case {
  std::string name;
  std::string function;
  Attributes attributes;
  std::vector<Block> inputs;
  std::vector<Block> outputs;  // what they must be
  int rank = 0;                // of a mesh of three
};

HostTensor ToHost(DType dtype, const Shape& shape, const std::vector<double>& values) {
  return ConvertTo(MakeHostTensor<double>(shape, values), dtype);
}

// Runs the function; `got` are the outputs' local values.
absl::Status RunOperation(const Case& c, std::vector<std::vector<double>>* got) {
  const Mesh mesh = *Mesh::Create({{"tp", 3}});
  const Coordinate coordinate = {c.rank};
  auto device = *worker::CreateCpuDevice({.threads = 1});
  auto stream = device->CreateStream();
  std::vector<HostTensor> memory;
  std::vector<DTensorSpec> specs;
  std::vector<ValueView> inputs, outputs;
  const size_t count = c.inputs.size() + c.outputs.size();
  memory.reserve(count);
  specs.reserve(count);
  const auto view = [&](const Block& block, bool output) {
    ValueView value;
    value.present = block.present;
    if (!block.present) return value;
    const Shape local = LocalShape(block.global, block.placements, mesh, coordinate);
    EXPECT_EQ(ElementCount(local), static_cast<int64_t>(block.values.size())) << ShapeText(local);
    memory.push_back(ToHost(block.dtype, local, std::vector<double>(block.values.size(), 0)));
    if (!output) memory.back() = ToHost(block.dtype, local, block.values);
    specs.push_back({block.dtype, {}, block.placements});
    value.spec = &specs.back();
    value.global = &block.global;
    value.view = {block.dtype, memory.back().bytes.data(), local};
    return value;
  };
  for (const Block& block : c.inputs) inputs.push_back(view(block, false));
  for (const Block& block : c.outputs) outputs.push_back(view(block, true));
  Instruction instruction;
  instruction.function = c.function;
  instruction.attributes = c.attributes;
  const worker::Operation operation = worker::FindOperation(c.function);
  if (operation == nullptr) return absl::NotFoundError(c.function);
  const std::vector<worker::SequenceSpan> sequences = {{0, c.inputs.empty() ? 0 : c.inputs[0].global[0], 0, {}}};
  const absl::Status status =
      operation({*device, *stream, mesh, coordinate, instruction, {}, sequences, false}, inputs, outputs);
  for (size_t i = c.inputs.size(), first = memory.size() - c.outputs.size(); i < count; ++i, ++first) {
    const HostTensor wide = ConvertTo(memory[first], DType::kF64);
    got->emplace_back(wide.data<double>(), wide.data<double>() + ElementCount(wide.shape));
  }
  return status;
}

Block F32(Shape global, std::vector<double> values, Placement placement = Placement::Replicate()) {
  return {DType::kF32, std::move(global), std::move(values), {placement}};
}
Block BF16(Shape global, std::vector<double> values) { return {DType::kBF16, std::move(global), std::move(values)}; }
Block I64(Shape global, std::vector<double> values, Placement placement = Placement::Replicate()) {
  return {DType::kI64, std::move(global), std::move(values), {placement}};
}
Block I32(Shape global, std::vector<double> values) { return {DType::kI32, std::move(global), std::move(values)}; }
Block Bool(Shape global, std::vector<double> values) { return {DType::kBool, std::move(global), std::move(values)}; }
Block Omitted() {
  Block block;
  block.present = false;
  return block;
}
using Ints = std::vector<int64_t>;

std::vector<Case> Cases() {
  const double inf = INFINITY, nan = std::nan("");
  const Block x = F32({2, 3}, {1, -2, 3, 4, 5, -6});
  std::vector<Case> cases = {
      // linear.cc
      {"linear",
       "linear",
       {},
       {F32({1, 2}, {1, 2}), F32({3, 2}, {1, 0, 0, 1, 1, 1}), F32({3}, {10, 20, 30})},
       {F32({1, 3}, {11, 22, 33})}},
      {"linear_without_bias", "linear", {}, {F32({1, 2}, {1, 2}), F32({1, 2}, {3, 4}), Omitted()}, {F32({1, 1}, {11})}},
      {"embedding_of_a_block",
       "embedding",
       {},
       {I64({2}, {3, 0}), F32({6, 1}, {20, 30}, Placement::Shard(0))},
       {F32({2, 1}, {30, 0}, Placement::Partial(ReduceOp::kSum))},
       1},
      {"embedding_of_I32", "embedding", {}, {I32({1}, {1}), F32({2, 2}, {1, 2, 3, 4})}, {F32({1, 2}, {3, 4})}},
      {"conv1d",
       "conv1d",
       {{"stride", Ints{1}}, {"padding", Ints{1}}, {"dilation", Ints{1}}, {"groups", int64_t{1}}},
       {F32({1, 1, 3}, {1, 2, 3}), F32({1, 1, 3}, {1, 1, 1}), F32({1}, {10})},
       {F32({1, 1, 3}, {13, 16, 15})}},
      {"conv2d_of_one_number_each",
       "conv2d",
       {{"stride", Ints{2}}, {"padding", Ints{0}}, {"groups", int64_t{2}}},
       {F32({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), F32({2, 1, 2, 2}, {1, 1, 1, 1, 1, 0, 0, 0})},
       {F32({1, 2, 1, 1}, {10, 5})}},
      {"conv1d_of_a_rank's_groups",
       "conv1d",
       {{"stride", Ints{1}}, {"padding", Ints{0}}, {"groups", int64_t{3}}},
       {F32({1, 3, 2}, {3, 4}, Placement::Shard(1)), F32({3, 1, 1}, {2}, Placement::Shard(0))},
       {F32({1, 3, 2}, {6, 8}, Placement::Shard(1))},
       1},
      {"matmul", "matmul", {}, {F32({2, 2}, {1, 2, 3, 4}), F32({2, 1}, {5, 6})}, {F32({2, 1}, {17, 39})}},
      {"matmul_of_vectors", "matmul", {}, {F32({2}, {1, 2}), F32({2}, {3, 4})}, {F32({}, {11})}},
      {"matmul_of_a_row", "matmul", {}, {F32({2}, {1, 2}), F32({2, 2, 1}, {3, 4, 5, 6})}, {F32({2, 1}, {11, 17})}},
      {"matmul_of_a_column", "matmul", {}, {F32({2, 1, 2}, {3, 4, 5, 6}), F32({2}, {1, 2})}, {F32({2, 1}, {11, 17})}},
      {"bmm", "bmm", {}, {F32({2, 1, 1}, {2, 3}), F32({2, 1, 2}, {1, 2, 3, 4})}, {F32({2, 1, 2}, {2, 4, 9, 12})}},
      // attention.cc
      {"rotary",
       "rotary",
       {},
       {F32({1, 1, 1, 2}, {1, 0}), I64({1, 1}, {1})},
       {F32({1, 1, 1, 2}, {std::cos(1), std::sin(1)})}},
      {"attention_to_all",
       "attention",
       {{"causal", false}, {"cache", false}, {"scale", 1e-9}},
       {F32({2, 1, 1, 1}, {1, 1}), F32({2, 1, 1, 1}, {1, 1}), F32({2, 1, 1, 1}, {2, 4})},
       {F32({2, 1, 1, 1}, {3, 3})}},
      {"attention_causal",
       "attention",
       {{"cache", true}, {"cache_index", int64_t{0}}, {"scale", 1e-9}},
       {F32({2, 1, 1, 1}, {1, 1}), F32({2, 1, 1, 1}, {1, 1}), F32({2, 1, 1, 1}, {2, 4})},
       {F32({2, 1, 1, 1}, {2, 3})}},
      // norm.cc
      {"rms_norm", "rms_norm", {{"eps", 0.0}}, {F32({1, 2}, {1, 7}), F32({2}, {5, 10})}, {F32({1, 2}, {1, 14})}},
      {"layer_norm",
       "layer_norm",
       {{"eps", 0.0}},
       {F32({1, 2}, {1, 3}), F32({2}, {5, 6}), F32({2}, {1, 1})},
       {F32({1, 2}, {-4, 7})}},
      {"layer_norm_over_two_dims",
       "layer_norm",
       {{"eps", 0.0}, {"dims", int64_t{2}}},
       {F32({2, 2}, {1, 1, 3, 3}), Omitted(), F32({2, 2}, {0, 1, 2, 3})},
       {F32({2, 2}, {-1, 0, 3, 4})}},
      {"softmax", "softmax", {{"dim", int64_t{0}}}, {F32({2, 1}, {7, 7})}, {F32({2, 1}, {0.5, 0.5})}},
      {"log_softmax",
       "log_softmax",
       {},
       {F32({1, 2}, {0, std::log(3)})},
       {F32({1, 2}, {std::log(0.25), std::log(0.75)})}},
      // elementwise.cc
      {"gelu_tanh", "gelu", {{"approximate", std::string("tanh")}}, {F32({1}, {1})}, {F32({1}, {0.841192})}},
      {"gelu", "gelu", {}, {F32({1}, {1})}, {F32({1}, {0.841345})}},
      {"logical_not", "logical_not", {}, {Bool({2}, {0, 1})}, {Bool({2}, {1, 0})}},
      {"cast_to_I64", "cast", {{"dtype", DType::kI64}}, {F32({2}, {-1.7, 2.9})}, {I64({2}, {-1, 2})}},
      {"cast_to_BOOL", "cast", {{"dtype", DType::kBool}}, {I32({2}, {-3, 0})}, {Bool({2}, {1, 0})}},
      {"cast_of_BOOL", "cast", {{"dtype", DType::kF32}}, {Bool({2}, {1, 0})}, {F32({2}, {1, 0})}},
      {"add", "add", {}, {F32({2, 1}, {1, 2}), F32({2}, {10, 20})}, {F32({2, 2}, {11, 21, 12, 22})}},
      {"add_of_a_number", "add", {{"scalar", 0.5}}, {F32({2}, {1, 2}), Omitted()}, {F32({2}, {1.5, 2.5})}},
      {"mul_of_integers_and_a_number", "mul", {{"scalar", 3.0}}, {I32({2}, {1, -2})}, {I32({2}, {3, -6})}},
      {"floor_div", "floor_div", {}, {I64({2}, {-7, 7}), I64({}, {2})}, {I64({2}, {-4, 3})}},
      {"remainder", "remainder", {{"scalar", 3.0}}, {F32({2}, {-1, 4})}, {F32({2}, {2, 1})}},
      {"ne", "ne", {{"scalar", -100.0}}, {I64({2}, {5, -100})}, {Bool({2}, {1, 0})}},
      {"where", "where", {}, {Bool({2}, {1, 0}), F32({}, {7}), F32({2}, {1, 2})}, {F32({2}, {7, 2})}},
      {"masked_fill", "masked_fill", {{"value", -inf}}, {BF16({2}, {1, 2}), Bool({2}, {0, 1})}, {BF16({2}, {1, -inf})}},
      {"add_once_here", "add_once", {{"axes", Ints{0}}}, {F32({1}, {1}), F32({1}, {10})}, {F32({1}, {11})}},
      {"add_once_elsewhere", "add_once", {{"axes", Ints{0}}}, {F32({1}, {1}), F32({1}, {10})}, {F32({1}, {1})}, 2},
      // shape.cc
      {"reshape", "reshape", {}, {x}, {F32({3, 2}, x.values)}},
      {"transpose",
       "transpose",
       {{"dim0", int64_t{0}}, {"dim1", int64_t{-1}}},
       {x},
       {F32({3, 2}, {1, 4, -2, 5, 3, -6})}},
      {"permute",
       "permute",
       {{"dims", Ints{2, 0, -2}}},
       {F32({1, 2, 3}, {1, 2, 3, 4, 5, 6})},
       {F32({3, 1, 2}, {1, 4, 2, 5, 3, 6})}},
      {"expand", "expand", {}, {F32({2, 1}, {1, 2})}, {F32({2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2})}},
      {"expand_to_a_block", "expand", {}, {F32({1}, {5})}, {F32({7}, {5, 5, 5}, Placement::Shard(0))}, 1},
      {"cat",
       "cat",
       {{"dim", int64_t{-1}}},
       {F32({2, 1}, {1, 2}), F32({2, 0}, {}), F32({2, 2}, {3, 4, 5, 6})},
       {F32({2, 3}, {1, 3, 4, 2, 5, 6})}},
      {"split",
       "split",
       {{"dim", int64_t{1}}},
       {x},
       {F32({2, 1}, {1, 4}), F32({2, 0}, {}), F32({2, 2}, {-2, 3, 5, -6})}},
      {"split_of_interleaved_parts",
       "split",
       {},
       {F32({6}, {1, 4}, Placement::InterleavedShard(0, {1, 1}))},
       {F32({3}, {1}, Placement::Shard(0)), F32({3}, {4}, Placement::Shard(0))},
       0},
      {"slice",
       "slice",
       {{"dim", int64_t{1}}, {"start", int64_t{-3}}, {"step", int64_t{2}}},
       {x},
       {F32({2, 2}, {1, 3, 4, -6})}},
      {"slice_of_nothing", "slice", {{"dim", int64_t{1}}, {"start", int64_t{3}}}, {x}, {F32({2, 0}, {})}},
      {"select", "select", {{"dim", int64_t{1}}, {"index", int64_t{-1}}}, {x}, {F32({2}, {3, -6})}},
      // index.cc
      {"index_select", "index_select", {{"dim", int64_t{1}}}, {x, I64({2}, {2, 2})}, {F32({2, 2}, {3, 3, -6, -6})}},
      {"index_select_of_a_block",
       "index_select",
       {{"dim", int64_t{0}}},
       {F32({5}, {3}, Placement::Shard(0)), I32({3}, {4, 0, 3})},
       {F32({3}, {3, 0, 0}, Placement::Partial(ReduceOp::kSum))},
       2},
      {"gather", "gather", {{"dim", int64_t{1}}}, {x, I64({1, 2}, {2, 0})}, {F32({1, 2}, {3, 1})}},
      {"pick",
       "pick",
       {{"dim", int64_t{1}}, {"ignore_index", int64_t{-1}}},
       {x, I64({2}, {-1, 2})},
       {F32({2, 1}, {0, -6})}},
      {"pick_of_a_rank_with_classes",
       "pick",
       {{"dim", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
       {F32({3, 4}, {1, 2, 3, 4, 5, 6}, Placement::Shard(1)), I64({3}, {2, 0, 3})},
       {F32({3, 1}, {1, 0, 6}, Placement::Partial(ReduceOp::kSum))},
       1},
      {"pick_of_a_rank_without",
       "pick",
       {{"dim", int64_t{-1}}, {"ignore_index", int64_t{-100}}},
       {F32({3, 4}, {}, Placement::Shard(1)), I64({3}, {2, 0, -100})},
       {F32({3, 1}, {0, 0, 0}, Placement::Partial(ReduceOp::kSum))},
       2},
      {"arange", "arange", {{"start", int64_t{2}}, {"step", int64_t{3}}}, {}, {I64({4}, {2, 5, 8, 11})}},
      {"arange_of_a_block", "arange", {{"start", int64_t{2}}}, {}, {I64({4}, {4, 5}, Placement::Shard(0))}, 1},
      {"arange_of_two_pieces", "arange", {}, {}, {I64({6}, {1, 4}, Placement::InterleavedShard(0, {1, 1}))}, 1},
      {"arange_of_nothing", "arange", {}, {}, {I64({2}, {}, Placement::Shard(0))}, 2},
      {"select_rows", "select_rows", {}, {F32({1, 3, 1}, {1, 2, 3}), I64({2}, {2, 0})}, {F32({1, 2, 1}, {3, 1})}},
      // reduce.cc
      {"sum_of_all", "sum", {}, {x}, {F32({}, {5})}},
      {"sum_of_BOOL", "sum", {{"dims", Ints{-1}}}, {Bool({2, 2}, {1, 1, 0, 1})}, {I64({2}, {2, 1})}},
      {"sum_of_no_rows",
       "sum",
       {{"dims", Ints{0}}},
       {F32({2, 2}, {}, Placement::Shard(0))},
       {F32({2}, {0, 0}, Placement::Partial(ReduceOp::kSum))},
       2},
      {"mean_keeps_the_dim",
       "mean",
       {{"dims", Ints{1}}, {"keepdim", true}},
       {F32({1, 4}, {1, 2, 3, 6})},
       {F32({1, 1}, {3})}},
      {"mean_of_a_block",
       "mean",
       {{"dims", Ints{0}}},
       {F32({5}, {7}, Placement::Shard(0))},
       {F32({}, {1.4}, Placement::Partial(ReduceOp::kSum))},
       2},
      {"max", "max", {{"dims", Ints{1}}}, {x}, {F32({2}, {3, 5})}},
      {"max_of_no_rows",
       "max",
       {{"dims", Ints{0}}},
       {F32({2, 1}, {}, Placement::Shard(0))},
       {F32({1}, {-inf}, Placement::Partial(ReduceOp::kMax))},
       2},
      {"min_of_no_rows",
       "min",
       {{"dims", Ints{0}}},
       {F32({2, 1}, {}, Placement::Shard(0))},
       {F32({1}, {inf}, Placement::Partial(ReduceOp::kMin))},
       2},
      {"min_with_NaN", "min", {}, {F32({3}, {1, nan, 2})}, {F32({}, {nan})}},
      {"argmax", "argmax", {}, {F32({2, 3}, {1, 3, 3, nan, 5, nan})}, {I64({2}, {1, 0})}},
      {"topk", "topk", {{"k", int64_t{2}}}, {x}, {F32({2, 2}, {3, 1, 5, 4}), I64({2, 2}, {2, 0, 1, 0})}},
      {"max_with_index", "max_with_index", {{"dim", int64_t{0}}}, {x}, {F32({3}, {4, 5, 3}), I64({3}, {1, 1, 0})}},
      {"min_with_index", "min_with_index", {{"dim", int64_t{1}}}, {x}, {F32({2}, {-2, -6}), I64({2}, {1, 2})}},
  };
  const std::vector<std::pair<std::string, double>> unary = {{"neg", -0.5},           {"abs", 0.5},
                                                             {"exp", std::exp(0.5)},  {"log", std::log(0.5)},
                                                             {"sqrt", std::sqrt(.5)}, {"rsqrt", std::sqrt(2)},
                                                             {"sin", std::sin(0.5)},  {"cos", std::cos(0.5)},
                                                             {"tanh", std::tanh(.5)}, {"sigmoid", 0.622459},
                                                             {"silu", 0.3112297},     {"relu", 0.5}};
  for (const auto& [function, value] : unary) {
    cases.push_back({function, function, {}, {F32({1}, {0.5})}, {F32({1}, {value})}});
  }
  const std::vector<std::pair<std::string, double>> binary = {{"sub", 6},  {"mul", 16},    {"div", 4},
                                                              {"pow", 64}, {"maximum", 8}, {"minimum", 2}};
  for (const auto& [function, value] : binary) {
    cases.push_back({function, function, {}, {F32({1}, {8}), F32({1}, {2})}, {F32({1}, {value})}});
  }
  const std::vector<std::pair<std::string, std::vector<double>>> comparisons = {
      {"eq", {0, 1, 0}}, {"lt", {1, 0, 0}}, {"le", {1, 1, 0}}, {"gt", {0, 0, 1}}, {"ge", {0, 1, 1}}};
  for (const auto& [function, want] : comparisons) {
    cases.push_back({function, function, {}, {I64({3}, {1, 2, 3}), I64({1}, {2})}, {Bool({3}, want)}});
  }
  cases.push_back({"logical_and", "logical_and", {}, {Bool({2}, {0, 1}), Bool({1}, {1})}, {Bool({2}, {0, 1})}});
  cases.push_back({"logical_or", "logical_or", {}, {Bool({2}, {0, 1}), Bool({1}, {0})}, {Bool({2}, {0, 1})}});
  return cases;
}

class OperationCase : public ::testing::TestWithParam<Case> {};

TEST_P(OperationCase, GivesTheLocalBlocks) {
  std::vector<std::vector<double>> got;
  ASSERT_EQ(RunOperation(GetParam(), &got), absl::OkStatus());
  for (size_t o = 0; o < got.size(); ++o) {
    const std::vector<double>& want = GetParam().outputs[o].values;
    ASSERT_EQ(got[o].size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isfinite(want[i])) {
        EXPECT_NEAR(got[o][i], want[i], 1e-5) << "output " << o << " element " << i;
      } else {
        EXPECT_EQ(std::isnan(got[o][i]), std::isnan(want[i])) << got[o][i];
        if (std::isinf(want[i])) {
          EXPECT_EQ(got[o][i], want[i]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, OperationCase, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& tested) {
                           std::string name = tested.param.name;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

TEST(Operations, RefuseIndicesOutsideTheGlobalSize) {
  std::vector<std::vector<double>> got;
  const absl::Status status = RunOperation({"",
                                            "pick",
                                            {{"dim", int64_t{1}}},
                                            {F32({2, 4}, {1, 2, 3, 4}, Placement::Shard(1)), I64({2}, {0, 4})},
                                            {F32({2, 1}, {0, 0}, Placement::Partial(ReduceOp::kSum))}},
                                           &got);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("index 4 at position 1 outside [0, 4)"));
  EXPECT_EQ(RunOperation({"", "select", {{"index", int64_t{2}}}, {F32({2}, {1, 2})}, {F32({}, {0})}}, &got).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Operations, UnimplementedNamesTheDType) {
  std::vector<std::vector<double>> got;
  const absl::Status status = RunOperation({"", "exp", {}, {I64({1}, {1})}, {I64({1}, {0})}}, &got);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("I64"));
  EXPECT_EQ(worker::FindOperation("no_such_function"), nullptr);
}

}  // namespace
}  // namespace tp::testing
