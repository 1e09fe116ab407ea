// The numbers of SEMANTICS 4 and 8 (cases 2, 6, 11, 12) and the cases from the field (6, 7, 9, 10, 15, 16) about
// operators, compiled and simulated; what is expected is written here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/operator_cases.h"

namespace tp::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using Values = std::vector<double>;

Values Range(int64_t count, double factor = 1) {
  Values values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  for (double& value : values) value *= factor;
  return values;
}

struct Input {
  DType dtype;
  Shape shape;
  Values values;
  std::string placements;  // on the mesh, as "tp=S(0)"
};

// A graph on a mesh: its outputs and what it costs.
struct Answer {
  std::map<std::string, SimTensor> outputs;
  std::map<std::string, std::string> layouts;  // of outputs
  std::vector<std::string> ops;                // collectives in order
  std::vector<std::string> calls;              // functions with their first output's layout, as "mul tp=P(sum)"
};

Answer Evaluate(const std::vector<MeshAxis>& axes, const std::vector<Input>& inputs, std::vector<GraphNode> nodes,
                const std::vector<std::string>& outputs) {
  const Mesh mesh = *Mesh::Create(axes);
  CompositeConfig config;
  config.nodes = std::move(nodes);
  for (const std::string& name : outputs) config.outputs.push_back({name, name});
  std::vector<ModelInput> declared;
  std::vector<Placements> placements;
  std::map<std::string, SimTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    declared.push_back({name, inputs[i].dtype, ToSymShape(inputs[i].shape)});
    placements.push_back(*ParsePlacements(mesh, inputs[i].placements));
    values[name] = {inputs[i].shape, inputs[i].values};
  }
  Answer answer;
  absl::StatusOr<CompiledModel> compiled = CompileForward(ForcedSubmission(config, declared, axes, placements));
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return answer;
  const ForwardProgram& program = compiled->program;
  absl::StatusOr<SimulationResult> result = Simulate(program, {}, values);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return answer;
  answer.outputs = result->outputs;
  for (const NamedValue& output : program.outputs) {
    answer.layouts[output.name] = PlacementsText(mesh, program.values[output.value].spec.placements);
  }
  const auto records = CollectivesOf(program, {});
  for (const CollectiveRecord& record : *records) answer.ops.push_back(record.op);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.function == "redistribute") continue;
    const DTensorSpec& spec = program.values[instruction.outputs[0]].spec;
    answer.calls.push_back(instruction.function + " " + PlacementsText(mesh, spec.placements));
  }
  return answer;
}

GraphNode Call(std::string name, std::string function, std::vector<std::string> values, Attributes attributes = {}) {
  return CallFunction(std::move(name), std::move(function), std::move(values), std::move(attributes));
}

TEST(WorkedOperatorTest, Case2ProductPlusBiasOnTwoAxes) {
  const std::vector<MeshAxis> axes{{"dp", 2}, {"tp", 2}};
  const Answer answer = Evaluate(axes,
                                 {{DType::kF32, {4, 4}, Range(16), "dp=S(0)"},
                                  {DType::kF32, {4, 4}, Range(16), "tp=S(1)"},
                                  {DType::kF32, {4}, Range(4), "tp=S(0)"}},
                                 {Call("p", "matmul", {"a", "b"}), Call("y", "add", {"p", "c"})}, {"y"});
  EXPECT_EQ(answer.layouts.at("y"), "dp=S(0),tp=S(1)");
  EXPECT_THAT(answer.ops, IsEmpty());
  const Mesh mesh = *Mesh::Create(axes);
  const Placements cut{Placement::Shard(0), Placement::Shard(1)};
  const std::vector<Values> wanted{{56, 63, 152, 175}, {70, 77, 198, 221}, {248, 287, 344, 399}, {326, 365, 454, 509}};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(LocalBlock(answer.outputs.at("y"), cut, mesh, mesh.CoordinateOf(rank)).values, wanted[rank]);
  }
}

TEST(WorkedOperatorTest, BiasIsAddedOnce) {
  const Answer answer = Evaluate(Tp(2),
                                 {{DType::kF32, {1, 4}, {1, 1, 1, 1}, "tp=S(1)"},
                                  {DType::kF32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, "tp=S(1)"},
                                  {DType::kF32, {2}, {10, 20}, ""}},
                                 {Call("y", "linear", {"a", "b", "c"})}, {"y"});
  EXPECT_EQ(answer.outputs.at("y").values, (Values{20, 46}));
  EXPECT_THAT(answer.ops, ElementsAre("all_reduce"));
}

// The same for channels, whose bias lies along dim 1.
TEST(WorkedOperatorTest, BiasOfCutChannelsIsAddedOnce) {
  const Answer answer = Evaluate(Tp(2),
                                 {{DType::kF32, {1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, "tp=S(1)"},
                                  {DType::kF32, {2, 4, 1}, {1, 1, 1, 1, 1, 0, 0, -1}, "tp=S(1)"},
                                  {DType::kF32, {2}, {100, 200}, ""}},
                                 {Call("y", "conv1d", {"a", "b", "c"})}, {"y"});
  EXPECT_EQ(answer.outputs.at("y").values, (Values{116, 120, 194, 194}));
  EXPECT_THAT(answer.ops, ElementsAre("all_reduce"));
}

TEST(WorkedOperatorTest, Case11AndField16FusedPartsSplitWithoutMessages) {
  // Rows [8 q | 2 k | 2 v] of a fused weight; the product with x = 1 gives the row numbers.
  const Answer answer =
      Evaluate(Tp(2), {{DType::kF32, {1, 1}, {1}, ""}, {DType::kF32, {12, 1}, Range(12), "tp=IS(0,[8,2,2])"}},
               {Call("y", "linear", {"a", "b"}),
                [] {
                  GraphNode node =
                      Call("parts", "split", {"y"}, {{"sizes", std::vector<int64_t>{8, 2, 2}}, {"dim", int64_t{-1}}});
                  node.outputs = {"q", "k", "v"};
                  return node;
                }()},
               {"q", "k", "v", "y"});
  EXPECT_THAT(answer.ops, IsEmpty());
  EXPECT_EQ(answer.layouts.at("y"), "tp=IS(1,[8,2,2])");
  for (const char* name : {"q", "k", "v"}) EXPECT_EQ(answer.layouts.at(name), "tp=S(1)");
  EXPECT_EQ(answer.outputs.at("q").values, (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(answer.outputs.at("k").values, (Values{8, 9}));
  EXPECT_EQ(answer.outputs.at("v").values, (Values{10, 11}));
  // Parts in another ratio than the cut's: gathered, and right.
  const Answer other = Evaluate(
      Tp(2), {{DType::kF32, {1, 8}, Range(8), "tp=IS(1,2)"}}, {[] {
        GraphNode node = Call("parts", "split", {"a"}, {{"sizes", std::vector<int64_t>{2, 6}}, {"dim", int64_t{1}}});
        node.outputs = {"g", "u"};
        return node;
      }()},
      {"g", "u"});
  EXPECT_THAT(other.ops, ElementsAre("all_gather"));
  EXPECT_EQ(other.outputs.at("u").values, (Values{2, 3, 4, 5, 6, 7}));
}

TEST(WorkedOperatorTest, Case12TermsOfIntegersAndExtremes) {
  const Attributes by_one{{"scalar", 1.0}};
  const Answer five = Evaluate(Tp(3), {{DType::kI64, {}, {5}, "tp=P(sum)"}}, {Call("y", "mul", {"a"}, by_one)}, {"y"});
  EXPECT_EQ(five.outputs.at("y").values, (Values{5}));
  EXPECT_THAT(five.calls, ElementsAre("mul tp=P(sum)"));
  const Answer least =
      Evaluate(Tp(2), {{DType::kF32, {}, {5}, "tp=P(max)"}}, {Call("y", "mul", {"a"}, {{"scalar", -1.0}})}, {"y"});
  EXPECT_EQ(least.outputs.at("y").values, (Values{-5}));
  EXPECT_THAT(least.calls, ElementsAre("mul tp=R"));
  const Answer one = Evaluate(Tp(2), {{DType::kF32, {}, {1.2}, "tp=P(sum)"}},
                              {Call("y", "cast", {"a"}, {{"dtype", DType::kI64}})}, {"y"});
  EXPECT_EQ(one.outputs.at("y").values, (Values{1}));
  EXPECT_THAT(one.calls, ElementsAre("cast tp=R"));
}

TEST(FieldOperatorTest, Case6FiveClassesOnFourRanks) {
  const Values x{0.5, -1, 2, 0, 1};
  const Answer answer =
      Evaluate(Tp(4), {{DType::kF32, {1, 5}, x, "tp=S(1)"}},
               {Call("p", "softmax", {"a"}), Call("best", "argmax", {"a"}), Call("l", "log_softmax", {"a"})},
               {"p", "best", "l"});
  const Values p{0.12562702, 0.02803118, 0.56302123, 0.07619664, 0.20712394};
  const Values l{-2.07443794, -3.57443794, -0.57443794, -2.57443794, -1.57443794};
  EXPECT_THAT(answer.outputs.at("p").values, Pointwise(DoubleNear(1e-6), p));
  EXPECT_THAT(answer.outputs.at("l").values, Pointwise(DoubleNear(1e-6), l));
  EXPECT_EQ(answer.outputs.at("best").values, (Values{2}));
}

TEST(FieldOperatorTest, Case7MeanDividesByTheGlobalCount) {
  for (int64_t rows : {3, 1}) {
    const Answer answer =
        Evaluate(Tp(2), {{DType::kF32, {rows, 4}, Range(rows * 4), "tp=S(0)"}}, {Call("y", "mean", {"a"})}, {"y"});
    EXPECT_EQ(answer.outputs.at("y").values, (Values{rows == 3 ? 5.5 : 1.5}));
    EXPECT_THAT(answer.ops, ElementsAre("all_reduce"));
  }
}

TEST(FieldOperatorTest, Case9TermsThroughArithmetic) {
  const Input terms{DType::kF32, {}, {45}, "tp=P(sum)"};
  const Answer plus = Evaluate(Tp(2), {terms}, {Call("y", "add", {"a"}, {{"scalar", 10.0}})}, {"y"});
  EXPECT_EQ(plus.outputs.at("y").values, (Values{55}));
  EXPECT_THAT(plus.calls, ElementsAre("add tp=R"));
  const Answer with = Evaluate(Tp(2), {terms, {DType::kF32, {}, {10}, ""}}, {Call("y", "add", {"a", "b"})}, {"y"});
  EXPECT_EQ(with.outputs.at("y").values, (Values{55}));
  const Answer twice = Evaluate(Tp(2), {terms}, {Call("y", "mul", {"a"}, {{"scalar", 2.0}})}, {"y"});
  EXPECT_EQ(twice.outputs.at("y").values, (Values{90}));
  EXPECT_THAT(twice.calls, ElementsAre("mul tp=P(sum)"));
  const Answer both = Evaluate(Tp(2), {terms, terms}, {Call("y", "sub", {"a", "b"}), Call("z", "neg", {"y"})}, {"z"});
  EXPECT_EQ(both.outputs.at("z").values, (Values{0}));
  EXPECT_THAT(both.calls, ElementsAre("sub tp=P(sum)", "neg tp=P(sum)"));
}

TEST(FieldOperatorTest, Case10ArgmaxIsGlobalAndTiesGoToTheLowest) {
  for (const Values& x : {Values{10, 5, 3, 8}, Values{7, 1, 7, 2}}) {
    const Answer answer = Evaluate(Tp(2), {{DType::kF32, {4}, x, "tp=S(0)"}}, {Call("y", "argmax", {"a"})}, {"y"});
    EXPECT_EQ(answer.outputs.at("y").values, (Values{0}));
  }
}

TEST(FieldOperatorTest, Case15ViewAcrossACut) {
  const Answer answer = Evaluate(Tp(4), {{DType::kF32, {12, 8}, Range(96), "tp=S(1)"}},
                                 {Call("y", "view", {"a"}, {{"shape", SymShape{16, 6}}})}, {"y"});
  EXPECT_EQ(answer.outputs.at("y").shape, (Shape{16, 6}));
  EXPECT_EQ(answer.outputs.at("y").values, Range(96));
}

}  // namespace
}  // namespace tp::testing
