#include "common/sharding/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/layout/spec.h"

namespace tp {
namespace {

const Dim kBatch = Dim::Symbol("batch");
const Dim kTime = Dim::Symbol("time");

// One call: types from shapes and inference, placements as text ("_" = omitted). Prints the strategies, preferred
// first, as "R, S(0) -> S(1)"; " +bias" where the bias comes after.
struct Call {
  std::string function;
  std::vector<SymShape> shapes;
  std::vector<std::string> placements;
  int size = 2;
  Attributes attributes = {};
  DType dtype = DType::kF32;
  bool batch_axis = false;
};

std::vector<std::string> Strategies(const Call& call) {
  const FunctionDef* function = FindFunction(call.function);
  absl::StatusOr<Attributes> attributes = CheckAttributes(*function, call.attributes);
  EXPECT_TRUE(attributes.ok()) << attributes.status();
  std::vector<TensorType> types;
  for (size_t i = 0; i < call.shapes.size(); ++i) {
    types.push_back({call.function == "embedding" && i == 0 ? DType::kI64 : call.dtype, call.shapes[i]});
  }
  std::vector<const TensorType*> inputs;
  RuleContext context{call.function, &*attributes, {}, {}, call.size, {}, call.batch_axis};
  for (size_t i = 0; i < function->arguments.size(); ++i) {
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
    texts.push_back(text + (strategy.bias_after ? " +bias" : ""));
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
            (Texts{"S(2), S(2), S(2) -> S(2)", "R, R, R -> R"}));
  EXPECT_EQ(Strategies({"attention", {q, kv, kv}, {"S(2)", "GS(2,2)", "GS(2,2)"}, 4}),
            (Texts{"S(2), GS(2,2), GS(2,2) -> S(2)", "R, R, R -> R"}));
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
    EXPECT_EQ(got, (Texts{test.placement + " -> " + test.output, "R -> R"}));
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
            const Placement output = *ParsePlacement(got[0].substr(got[0].find("-> ") + 3));
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

TEST(RulesTest, UnknownFunctionsAreUnimplemented) {
  EXPECT_EQ(AxisStrategies({"conv2d", nullptr, {}, {}, 2, {}}).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tp
