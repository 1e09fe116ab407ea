#include "common/sharding/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/layout/spec.h"

namespace tp {
namespace {

const Dim kBatch = Dim::Symbol("batch");
const Dim kTime = Dim::Symbol("time");

// One call: types from shapes and inference, placements as text ("_" = omitted). Prints the strategies, preferred
// first, as "R, S(0) -> S(1)"; " +bias" where the bias comes after, " alone" where no other axis may cut the same dim.
struct Call {
  std::string function;
  std::vector<SymShape> shapes;
  std::vector<std::string> placements;
  int size = 2;
  Attributes attributes = {};
  DType dtype = DType::kF32;
  bool batch_axis = false;
  std::vector<DType> dtypes = {};  // one for each input; none: `dtype`
};

std::vector<std::string> Strategies(const Call& call) {
  const FunctionDef* function = FindFunction(call.function);
  absl::StatusOr<Attributes> attributes = CheckAttributes(*function, call.attributes);
  EXPECT_TRUE(attributes.ok()) << attributes.status();
  std::vector<TensorType> types;
  for (size_t i = 0; i < call.shapes.size(); ++i) {
    const DType dtype = i < call.dtypes.size() ? call.dtypes[i] : call.dtype;
    types.push_back({call.function == "embedding" && i == 0 ? DType::kI64 : dtype, call.shapes[i]});
  }
  std::vector<const TensorType*> inputs;
  RuleContext context{call.function, &*attributes, {}, {}, call.size, {}, call.batch_axis};
  const bool variadic = !function->arguments.empty() && function->arguments.back().variadic;
  for (size_t i = 0; i < (variadic ? types.size() : function->arguments.size()); ++i) {
    const bool omitted = i >= call.placements.size() || call.placements[i] == "_";
    inputs.push_back(omitted ? nullptr : &types[i]);
    context.current.push_back(omitted ? Placement::Replicate() : *ParsePlacement(call.placements[i]));
  }
  context.inputs = inputs;
  absl::StatusOr<std::vector<TensorType>> outputs = function->infer(inputs, *attributes);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  for (const TensorType& output : *outputs) context.outputs.push_back(&output);
  absl::StatusOr<std::vector<AxisStrategy>> strategies = AxisStrategies(context);
  EXPECT_TRUE(strategies.ok()) << strategies.status();
  std::vector<std::string> texts;
  for (const AxisStrategy& strategy : *strategies) {
    std::string text;
    for (size_t i = 0; i < strategy.inputs.size(); ++i)
      text += (i == 0 ? "" : ", ") + PlacementText(strategy.inputs[i]);
    text += " -> " + PlacementText(strategy.outputs[0]);
    for (size_t i = 1; i < strategy.outputs.size(); ++i) {
      if (strategy.outputs[i] != strategy.outputs[0]) text += ", " + PlacementText(strategy.outputs[i]);
    }
    texts.push_back(text + (strategy.bias_after ? " +bias" : "") + (strategy.alone ? " alone" : ""));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(LinearRuleTest, ColumnsRowsAndBatch) {
  const SymShape x{kBatch, kTime, 8}, w{6, 8}, b{6};
  EXPECT_EQ(Strategies({"linear", {x, w, b}, {"R", "S(0)", "S(0)"}}), (Texts{"R, S(0), S(0) -> S(2)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"linear", {x, w, b}, {"R", "GS(0,2)", "GS(0,2)"}, 4}),
            (Texts{"R, GS(0,2), GS(0,2) -> GS(2,2)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"linear", {x, w, b}, {"S(2)", "S(1)", "R"}}),
            (Texts{"S(2), S(1), R -> P(sum) +bias", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"linear", {x, w}, {"S(2)", "S(1)", "_"}}), (Texts{"S(2), S(1), R -> P(sum)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"linear", {x, w, b}, {"S(1)", "R", "R"}}), (Texts{"S(1), R, R -> S(1)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"linear", {x, w}, {"P(sum)", "R", "_"}}), (Texts{"R, R, R -> R"}));
}

TEST(EmbeddingRuleTest, VocabularyCutIsASumAndGroupsAreNot) {
  const SymShape ids{kBatch, kTime}, w{10, 4};
  EXPECT_EQ(Strategies({"embedding", {ids, w}, {"R", "S(1)"}}), (Texts{"R, S(1) -> S(2)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"embedding", {ids, w}, {"R", "S(0)"}}), (Texts{"R, S(0) -> P(sum)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"embedding", {ids, w}, {"R", "GS(0,2)"}, 4}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"embedding", {ids, w}, {"S(1)", "R"}}), (Texts{"S(1), R -> S(1)", "R, R -> R"}));
}

TEST(NormRuleTest, TheReducedDimMustBeWhole) {
  EXPECT_EQ(Strategies({"rms_norm", {{kBatch, kTime, 8}, {8}}, {"S(1)", "R"}}),
            (Texts{"S(1), R -> S(1)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"rms_norm", {{kBatch, kTime, 8}, {8}}, {"S(2)", "R"}}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"softmax", {{kBatch, 8}}, {"S(0)"}}), (Texts{"S(0) -> S(0)", "R -> R"}));
  EXPECT_EQ(Strategies({"softmax", {{kBatch, 8}}, {"S(1)"}}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"softmax", {{kBatch, 8}}, {"S(1)"}, 2, {{"dim", int64_t{0}}}}),
            (Texts{"S(1) -> S(1)", "R -> R"}));
  EXPECT_EQ(Strategies({"argmax", {{kBatch, 8, 3}}, {"S(2)"}, 2, {{"dim", int64_t{1}}}}),
            (Texts{"S(2) -> S(1)", "R -> R"}));
  EXPECT_EQ(Strategies({"argmax", {{kBatch, 8}}, {"S(1)"}}), (Texts{"R -> R"}));
}

TEST(AttentionRuleTest, HeadsAreCutTogether) {
  const SymShape q{kBatch, kTime, 8, 4}, kv{kBatch, kTime, 2, 4};
  EXPECT_EQ(Strategies({"attention", {q, kv, kv}, {"S(2)", "S(2)", "S(2)"}}),
            (Texts{"S(2), S(2), S(2) -> S(2) alone", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"attention", {q, kv, kv}, {"S(2)", "GS(2,2)", "GS(2,2)"}, 4}),
            (Texts{"S(2), GS(2,2), GS(2,2) -> S(2) alone", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"attention", {q, kv, kv}, {"S(2)", "R", "R"}, 3}), (Texts{"R, R, R -> R"}));
  EXPECT_EQ(Strategies({"attention", {q, kv, kv}, {"S(0)", "S(0)", "S(0)"}}), (Texts{"R, R, R -> R"}));
  EXPECT_EQ(Strategies({"rotary", {q}, {"S(2)"}}), (Texts{"S(2) -> S(2)", "R -> R"}));
  EXPECT_EQ(Strategies({"rotary", {q}, {"S(1)"}}), (Texts{"S(1) -> S(1)", "R -> R"}));
  EXPECT_EQ(Strategies({"rotary", {q}, {"S(3)"}}), (Texts{"R -> R"}));
}

TEST(AttentionRuleTest, SequencesStayApartOnBatchAxesOnly) {
  const SymShape q{kBatch, kTime, 8, 4}, kv{kBatch, kTime, 2, 4};
  Call call{"attention", {q, kv, kv}, {"S(0)", "S(0)", "S(0)"}};
  call.batch_axis = true;
  EXPECT_EQ(Strategies(call), (Texts{"S(0), S(0), S(0) -> S(0)", "R, R, R -> R"}));
  call.placements = {"R", "R", "R"};
  EXPECT_EQ(Strategies(call), (Texts{"R, R, R -> R"}));
}

TEST(ElementwiseRuleTest, ActivationsReduceFirst) {
  EXPECT_EQ(Strategies({"silu", {{kBatch, 8}}, {"S(1)"}}), (Texts{"S(1) -> S(1)", "R -> R"}));
  EXPECT_EQ(Strategies({"relu", {{kBatch, 8}}, {"GS(1,2)"}, 4}), (Texts{"GS(1,2) -> GS(1,2)", "R -> R"}));
  EXPECT_EQ(Strategies({"gelu", {{kBatch, 8}}, {"P(sum)"}}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"cast", {{kBatch, 8}}, {"P(sum)"}, 2, {{"dtype", DType::kBF16}}}),
            (Texts{"P(sum) -> P(sum)", "R -> R"}));
  EXPECT_EQ(Strategies({"cast", {{kBatch, 8}}, {"P(sum)"}, 2, {{"dtype", DType::kI64}}}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"cast", {{kBatch, 8}}, {"P(max)"}, 2, {{"dtype", DType::kBF16}}}), (Texts{"R -> R"}));
}

TEST(ElementwiseRuleTest, BroadcastDimsStayWhole) {
  EXPECT_EQ(Strategies({"add", {{kBatch, kTime, 8}, {8}}, {"S(2)", "R"}}), (Texts{"S(2), S(0) -> S(2)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"add", {{kBatch, kTime, 8}, {8}}, {"S(1)", "R"}}), (Texts{"S(1), R -> S(1)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"mul", {{kBatch, 1}, {kBatch, 8}}, {"S(1)", "R"}}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"mul", {{kBatch, 8}, {kBatch, 8}}, {"P(sum)", "P(sum)"}}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"sub", {{kBatch, 8}, {kBatch, 8}}, {"P(sum)", "P(sum)"}}),
            (Texts{"P(sum), P(sum) -> P(sum)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"add", {{kBatch, 8}, {kBatch, 8}}, {"P(sum)", "P(avg)"}}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"add", {{kBatch, 8}, {kBatch, 8}}, {"P(sum)", "R"}}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"add", {{kBatch, 8}, {kBatch, 8}}, {"S(0)", "S(1)"}}),
            (Texts{"S(0), S(0) -> S(0)", "S(1), S(1) -> S(1)", "R, R -> R"}));
}

struct ReshapeCase {
  SymShape from, to;
  std::string placement;
  int size;
  std::string output;  // "R" where it gathers
};
class ReshapeShapesTest : public ::testing::TestWithParam<ReshapeCase> {};

TEST_P(ReshapeShapesTest, KeepsEachElementOnItsRankOrGathers) {
  const ReshapeCase& test = GetParam();
  const Texts got = Strategies({"reshape", {test.from}, {test.placement}, test.size, {{"shape", test.to}}});
  if (test.output == "R") {
    EXPECT_EQ(got, (Texts{"R -> R"}));
  } else {
    // A cut of a dim that is split or merged is right on its own only.
    const bool alone = test.from[ParsePlacement(test.placement)->dim] != test.to[ParsePlacement(test.output)->dim];
    const bool keeps = ParsePlacement(test.output)->IsPartial();
    EXPECT_EQ(got, (Texts{test.placement + " -> " + test.output + (alone && !keeps ? " alone" : ""), "R -> R"}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ReshapeShapesTest,
    ::testing::Values(ReshapeCase{{kBatch, kTime, 256}, {kBatch, kTime, 8, 32}, "S(2)", 4, "S(2)"},
                      ReshapeCase{{kBatch, kTime, 8, 32}, {kBatch, kTime, 256}, "S(2)", 4, "S(2)"},
                      ReshapeCase{{kBatch, kTime, 8, 32}, {kBatch, kTime, 256}, "S(3)", 4, "R"},
                      ReshapeCase{{kBatch, kTime, 128}, {kBatch, kTime, 4, 32}, "GS(2,4)", 8, "GS(2,4)"},
                      ReshapeCase{{kBatch, kTime, 128}, {kBatch, kTime, 4, 32}, "S(2)", 8, "R"},
                      ReshapeCase{{kBatch, kTime, 256}, {kBatch, kTime, 8, 32}, "S(0)", 4, "S(0)"},
                      ReshapeCase{{kBatch, kTime, 256}, {kBatch * kTime, 256}, "S(2)", 4, "S(1)"},
                      ReshapeCase{{kBatch, kTime, 256}, {kBatch * kTime, 256}, "S(0)", 4, "R"},
                      ReshapeCase{{kBatch, kTime, 256}, {kBatch * kTime, 256}, "P(sum)", 4, "P(sum)"},
                      ReshapeCase{{12, 8}, {16, 6}, "S(1)", 4, "R"}, ReshapeCase{{12, 8}, {16, 6}, "S(0)", 4, "R"},
                      // 6 over 4 ranks is 2 2 2 0: as 3 x 2, ceil(3/4) = 1 whole row each.
                      ReshapeCase{{6}, {3, 2}, "S(0)", 4, "S(0)"}, ReshapeCase{{3, 2}, {6}, "S(0)", 4, "S(0)"},
                      // 10 over 4 ranks is 3 3 3 1, which cuts rows of 2.
                      ReshapeCase{{10}, {5, 2}, "S(0)", 4, "R"}, ReshapeCase{{5, 2}, {10}, "S(0)", 4, "R"},
                      ReshapeCase{{7, 3}, {7, 1, 3}, "S(1)", 2, "S(2)"}, ReshapeCase{{0, 4}, {0, 8}, "S(1)", 2, "R"}));

// Flat indices of the elements that a rank holds, in local order.
std::vector<int64_t> ElementsOf(const Shape& shape, const Placement& placement, const Mesh& mesh, int rank) {
  std::vector<int64_t> elements{0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> next;
    for (int64_t element : elements) {
      for (const Interval& run : OwnedIntervals(shape[dim], static_cast<int>(dim), {placement}, mesh, {rank})) {
        for (int64_t i = run.begin; i < run.end; ++i) next.push_back(element * shape[dim] + i);
      }
    }
    elements = next;
  }
  return elements;
}

TEST(ReshapeRuleTest, EveryKeptCutKeepsTheElements) {
  const std::vector<Shape> shapes{{12},      {3, 4},  {4, 3},  {2, 6},    {6, 2},   {2, 2, 3},
                                  {3, 2, 2}, {1, 12}, {12, 1}, {2, 1, 6}, {2, 3, 2}};
  int kept = 0;
  for (int size : {2, 3, 4, 5, 8}) {
    const Mesh mesh = *Mesh::Create({{"tp", size}});
    for (const Shape& from : shapes) {
      for (const Shape& to : shapes) {
        for (int dim = 0; dim < static_cast<int>(from.size()); ++dim) {
          for (int groups = 0; groups <= size; ++groups) {
            if (groups > 0 && size % groups != 0) continue;
            const Placement placement = groups == 0 ? Placement::Shard(dim) : Placement::GroupShard(dim, groups);
            const Texts got = Strategies(
                {"reshape", {ToSymShape(from)}, {PlacementText(placement)}, size, {{"shape", ToSymShape(to)}}});
            if (got.size() == 1) continue;
            std::string made = got[0].substr(got[0].find("-> ") + 3);
            const Placement output = *ParsePlacement(made.substr(0, made.find(' ')));
            ++kept;
            for (int rank = 0; rank < size; ++rank) {
              ASSERT_EQ(ElementsOf(from, placement, mesh, rank), ElementsOf(to, output, mesh, rank))
                  << ShapeText(from) << " to " << ShapeText(to) << " " << got[0] << " on " << size;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(kept, 500);
}

TEST(TransposeRuleTest, PlacementsFollowTheirDims) {
  const Attributes dims{{"dim0", int64_t{1}}, {"dim1", int64_t{-1}}};
  EXPECT_EQ(Strategies({"transpose", {{2, 3, 4}}, {"S(1)"}, 2, dims}), (Texts{"S(1) -> S(2)", "R -> R"}));
  EXPECT_EQ(Strategies({"transpose", {{2, 3, 4}}, {"GS(2,2)"}, 4, dims}), (Texts{"GS(2,2) -> GS(1,2)", "R -> R"}));
  EXPECT_EQ(Strategies({"transpose", {{2, 3, 4}}, {"S(0)"}, 2, dims}), (Texts{"S(0) -> S(0)", "R -> R"}));
  EXPECT_EQ(Strategies({"transpose", {{2, 3, 4}}, {"P(sum)"}, 2, dims}), (Texts{"P(sum) -> P(sum)", "R -> R"}));
}

TEST(LinearRuleTest, FusedAndStridedRowsPassThrough) {
  const SymShape x{kBatch, 8}, w{6, 8}, b{6};
  EXPECT_EQ(Strategies({"linear", {x, w, b}, {"R", "IS(0,[1,1])", "R"}}),
            (Texts{"R, IS(0,2), IS(0,2) -> IS(1,2)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"linear", {x, w, b}, {"R", "SS(0,3)", "R"}}),
            (Texts{"R, SS(0,3), SS(0,3) -> SS(1,3)", "R, R, R -> R"}));
  // Neighbours hold copies, which a sum would count twice.
  EXPECT_EQ(Strategies({"linear", {x, w}, {"R", "GS(1,2)", "_"}, 4}),
            (Texts{"S(1), S(1), R -> P(sum)", "R, R, R -> R"}));
}

TEST(ConvolutionRuleTest, BatchChannelsAndGroups) {
  const SymShape x{kBatch, 4, 9, 9}, w{6, 4, 3, 3}, b{6};
  EXPECT_EQ(Strategies({"conv2d", {x, w, b}, {"S(0)", "R", "R"}}), (Texts{"S(0), R, R -> S(0)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"conv2d", {x, w, b}, {"R", "S(0)", "R"}}), (Texts{"R, S(0), S(0) -> S(1)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"conv2d", {x, w, b}, {"S(1)", "R", "R"}}),
            (Texts{"S(1), S(1), R -> P(sum) +bias", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"conv2d", {x, w, b}, {"S(2)", "R", "R"}}), (Texts{"R, R, R -> R"}));
  const Attributes two{{"groups", int64_t{2}}};
  const SymShape grouped{6, 2, 3, 3};
  EXPECT_EQ(Strategies({"conv2d", {x, grouped, b}, {"S(1)", "R", "R"}, 2, two}),
            (Texts{"S(1), S(0), S(0) -> S(1) alone", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"conv2d", {x, grouped, b}, {"S(1)", "S(0)", "R"}, 3, two}), (Texts{"R, R, R -> R"}));
}

TEST(ProductRuleTest, BatchRowsColumnsAndInnerDim) {
  const SymShape a{kBatch, 4, 8}, b{8, 6};
  EXPECT_EQ(Strategies({"matmul", {a, b}, {"S(0)", "R"}}), (Texts{"S(0), R -> S(0)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"matmul", {a, b}, {"S(1)", "S(1)"}}),
            (Texts{"S(1), R -> S(1)", "R, S(1) -> S(2)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"matmul", {a, b}, {"S(2)", "R"}}), (Texts{"S(2), S(0) -> P(sum)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"matmul", {{1, 4, 8}, {3, 8, 6}}, {"S(0)", "S(0)"}}), (Texts{"R, S(0) -> S(0)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"matmul", {{8}, {8, 6}}, {"R", "S(1)"}}), (Texts{"R, S(1) -> S(0)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"matmul", {{4, 8}, {8}}, {"S(1)", "R"}}), (Texts{"S(1), S(0) -> P(sum)", "R, R -> R"}));
}

TEST(ElementwiseRuleTest, ScalarsAndTerms) {
  const Attributes two{{"scalar", 2.0}};
  const std::vector<SymShape> x{{kBatch, 8}};
  EXPECT_EQ(Strategies({"mul", x, {"P(avg)"}, 2, two}), (Texts{"P(avg), R -> P(avg)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"div", x, {"P(sum)"}, 2, two}), (Texts{"P(sum), R -> P(sum)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"add", x, {"P(sum)"}, 2, two}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"mul", x, {"P(max)"}, 2, two}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"neg", x, {"P(sum)"}}), (Texts{"P(sum) -> P(sum)", "R -> R"}));
  EXPECT_EQ(Strategies({"mul", x, {"P(sum)"}, 2, two, DType::kI64}), (Texts{"P(sum), R -> P(sum)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"neg", x, {"P(sum)"}, 2, {}, DType::kI64}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"floor_div", x, {"P(sum)"}, 2, two, DType::kI64}), (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"add", {{kBatch, 8}, {kBatch, 8}}, {"P(sum)", "P(sum)"}, 2, {}, DType::kI64}),
            (Texts{"R, R -> R"}));
  EXPECT_EQ(Strategies({"cast", x, {"P(sum)"}, 2, {{"dtype", DType::kI64}}, DType::kI32}),
            (Texts{"P(sum) -> P(sum)", "R -> R"}));
  EXPECT_EQ(Strategies({"cast", x, {"P(sum)"}, 2, {{"dtype", DType::kI32}}, DType::kI64}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"cast", x, {"P(sum)"}, 2, {{"dtype", DType::kF32}}, DType::kI64}), (Texts{"R -> R"}));
  EXPECT_EQ(
      Strategies(
          {"where", {{kBatch, 1}, {kBatch, 8}, {8}}, {"S(0)", "S(1)", "R"}, 2, {}, DType::kF32, false, {DType::kBool}}),
      (Texts{"S(0), S(0), R -> S(0)", "R, S(1), S(0) -> S(1)", "R, R, R -> R"}));
}

TEST(ShapeRuleTest, DimsMoveAndCutOnesGather) {
  const std::vector<SymShape> x{{4, 6, 8}};
  const Attributes dims{{"dims", std::vector<int64_t>{2, 0, 1}}};
  EXPECT_EQ(Strategies({"permute", x, {"SS(1,3)"}, 2, dims}), (Texts{"SS(1,3) -> SS(2,3)", "R -> R"}));
  EXPECT_EQ(Strategies({"expand", {{1, 6}}, {"S(1)"}, 2, {{"shape", SymShape{3, 4, 6}}}}),
            (Texts{"S(1) -> S(2)", "R -> R"}));
  EXPECT_EQ(Strategies({"expand", {{1, 6}}, {"S(0)"}, 2, {{"shape", SymShape{4, 6}}}}), (Texts{"R -> R"}));
  const Attributes last{{"dim", int64_t{-1}}, {"index", int64_t{0}}}, first{{"dim", int64_t{0}}, {"index", int64_t{0}}};
  EXPECT_EQ(Strategies({"select", x, {"S(2)"}, 2, last}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"select", x, {"S(2)"}, 2, first}), (Texts{"S(2) -> S(1)", "R -> R"}));
  EXPECT_EQ(Strategies({"slice", x, {"S(0)"}, 2, {{"start", int64_t{1}}}}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"slice", x, {"S(1)"}, 2, {{"start", int64_t{1}}}}), (Texts{"S(1) -> S(1)", "R -> R"}));
  EXPECT_EQ(Strategies({"slice", x, {"S(0)"}}), (Texts{"S(0) -> S(0)", "R -> R"}));
  EXPECT_EQ(Strategies({"cat", {{4, 6}, {2, 6}}, {"S(0)", "S(1)"}}), (Texts{"S(1), S(1) -> S(1)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"cat", {{4, 6}, {2, 6}}, {"P(max)", "P(max)"}}),
            (Texts{"P(max), P(max) -> P(max)", "R, R -> R"}));
  EXPECT_EQ(Strategies({"cat", {{4, 6}, {2, 6}}, {"P(max)", "P(min)"}}), (Texts{"R, R -> R"}));
}

TEST(ShapeRuleTest, PartsOfAnInterleavedCutComeApart) {
  const Attributes qkv{{"sizes", std::vector<int64_t>{8, 2, 2}}};
  EXPECT_EQ(Strategies({"split", {{12}}, {"IS(0,[8,2,2])"}, 2, qkv}), (Texts{"IS(0,[8,2,2]) -> S(0) alone", "R -> R"}));
  EXPECT_EQ(Strategies({"split", {{12}}, {"IS(0,[4,1,1])"}, 2, qkv}), (Texts{"IS(0,[4,1,1]) -> S(0) alone", "R -> R"}));
  EXPECT_EQ(Strategies({"split", {{12}}, {"IS(0,3)"}, 2, qkv}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"split", {{12}}, {"S(0)"}, 2, qkv}), (Texts{"R -> R"}));
  EXPECT_EQ(Strategies({"split", {{12, 4}}, {"S(1)"}, 2, qkv}), (Texts{"S(1) -> S(1)", "R -> R"}));
}

TEST(IndexRuleTest, LookupsAlongACutDim) {
  const Attributes one{{"dim", int64_t{1}}};
  auto run = [&](const char* function, SymShape index, std::vector<std::string> placements) {
    return Strategies({function,
                       {{4, 6}, std::move(index)},
                       std::move(placements),
                       2,
                       one,
                       DType::kF32,
                       false,
                       {DType::kF32, DType::kI64}});
  };
  EXPECT_EQ(run("index_select", {3}, {"S(1)", "R"}), (Texts{"R, R -> R"}));
  EXPECT_EQ(run("index_select", {3}, {"S(0)", "S(0)"}), (Texts{"S(0), R -> S(0)", "R, S(0) -> S(1)", "R, R -> R"}));
  EXPECT_EQ(run("index_select", {3}, {"P(min)", "R"}), (Texts{"P(min), R -> P(min)", "R, R -> R"}));
  EXPECT_EQ(run("gather", {4, 3}, {"S(0)", "S(1)"}), (Texts{"S(0), S(0) -> S(0)", "R, S(1) -> S(1)", "R, R -> R"}));
  EXPECT_EQ(run("gather", {2, 3}, {"S(0)", "S(0)"}), (Texts{"R, R -> R"}));
  EXPECT_EQ(run("pick", {4}, {"S(1)", "R"}), (Texts{"S(1), R -> P(sum)", "R, R -> R"}));
  EXPECT_EQ(run("pick", {4}, {"SS(1,3)", "S(0)"}), (Texts{"S(1), R -> P(sum)", "S(0), S(0) -> S(0)", "R, R -> R"}));
}

TEST(ReduceRuleTest, CutsOfReducedDimsAreTerms) {
  const Attributes over{{"dims", std::vector<int64_t>{0}}};
  const std::vector<SymShape> x{{4, 6}};
  EXPECT_EQ(Strategies({"sum", x, {"SS(0,2)"}, 2, over}), (Texts{"SS(0,2) -> P(sum)", "R -> R"}));
  EXPECT_EQ(Strategies({"mean", x, {"S(1)"}, 2}), (Texts{"S(1) -> P(sum)", "R -> R"}));
  EXPECT_EQ(Strategies({"max", x, {"S(0)"}, 2, over}), (Texts{"S(0) -> P(max)", "R -> R"}));
  EXPECT_EQ(Strategies({"min", x, {"GS(0,2)"}, 4, over}), (Texts{"S(0) -> P(min)", "R -> R"}));
  EXPECT_EQ(Strategies({"sum", x, {"S(1)"}, 2, over}), (Texts{"S(1) -> S(0)", "R -> R"}));
  EXPECT_EQ(Strategies({"sum", x, {"P(sum)"}, 2, over}), (Texts{"R -> R"}));
  const Attributes two{{"k", int64_t{2}}};
  EXPECT_EQ(Strategies({"topk", x, {"S(0)"}, 2, two}), (Texts{"S(0) -> S(0)", "R -> R"}));
  EXPECT_EQ(Strategies({"topk", x, {"S(1)"}, 2, two}), (Texts{"R -> R"}));
}

TEST(RulesTest, NoInputsMeansReplicated) {
  EXPECT_EQ(Strategies({"arange", {}, {}, 2, {{"end", SymShape{7}}}}), (Texts{" -> R"}));
}

TEST(RulesTest, UnknownFunctionsAreUnimplemented) {
  EXPECT_EQ(AxisStrategies({"warp", nullptr, {}, {}, 2, {}}).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tp
