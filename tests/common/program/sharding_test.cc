// Declarative shardings in plans: what they place, claim and move, what they refuse, and that nothing changes a value
// (SEMANTICS 5, 7 and 8).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/program/compile.h"
#include "common/program/memory.h"
#include "tests/support/model_builders.h"
#include "tests/support/simulator.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pointwise;
using Shardings = std::map<std::string, NamedPlacements>;
using Tensors = std::map<std::string, SimTensor>;

const Placement kR = Placement::Replicate(), kS0 = Placement::Shard(0), kS1 = Placement::Shard(1),
                kLast = Placement::Shard(-1), kP = Placement::Partial();

ShardingConfig Sharding(Shardings states, Shardings in_src = {}, Shardings in_dst = {}, Shardings out_src = {},
                        Shardings out_dst = {}) {
  ShardingConfig sharding;
  sharding.state_shardings = std::move(states);
  sharding.in_src_shardings = std::move(in_src);
  sharding.in_dst_shardings = std::move(in_dst);
  sharding.out_src_shardings = std::move(out_src);
  sharding.out_dst_shardings = std::move(out_dst);
  return sharding;
}
NamedPlacements OnTp(Placement placement) { return {{"tp", std::move(placement)}}; }

Module Leaf(std::string name, ModuleConfig config) {
  Module module;
  module.name = std::move(name);
  module.config = std::move(config);
  return module;
}
Module Linear(std::string name, int64_t in, int64_t out, bool bias = true) {
  LinearConfig config;
  config.in_features = in;
  config.out_features = out;
  config.bias = bias;
  return Leaf(std::move(name), config);
}
// A composite of one input "x" and one output.
Module Graph(std::string type_name, std::vector<GraphNode> nodes, std::string output, std::vector<Module> children) {
  CompositeConfig config;
  config.type_name = std::move(type_name);
  config.inputs = {{"x"}};
  config.nodes = std::move(nodes);
  config.outputs = {{"y", std::move(output)}};
  Module module = Leaf("", config);
  module.children = std::move(children);
  return module;
}
Submission Of(Module root, SymShape shape, std::vector<MeshAxis> mesh = Tp(2)) {
  Submission submission;
  submission.name = "m";
  submission.model.root = std::move(root);
  submission.model.inputs = {{"x", DType::kF32, std::move(shape)}};
  submission.plan.mesh = std::move(mesh);
  return submission;
}
// x [rows, in] -> fc(x) [rows, out].
Submission OneLinear(int64_t in, int64_t out, ShardingConfig sharding, bool bias = true) {
  Module fc = Linear("fc", in, out, bias);
  fc.sharding = std::move(sharding);
  return Of(Graph("One", {CallChild("y", "fc", {"x"})}, "y", {fc}), {Dim::Symbol("batch"), Dim(in)});
}

CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}
std::string Refusal(const Submission& submission, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = CompileForward(submission).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}
std::string StateAt(const CompiledModel& model, const std::string& path) {
  for (const PlacedState& placed : model.states) {
    if (placed.state.path == path) return PlacementsText(model.mesh, placed.placements);
  }
  return "none";
}
const PlacedModule& ModuleOf(const CompiledModel& model, const std::string& path) {
  for (const PlacedModule& module : model.modules) {
    if (module.path == path) return module;
  }
  return model.modules.front();
}
std::vector<std::string> OpsOf(const CompiledModel& model, const Bindings& bindings) {
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(model.program, bindings);
  EXPECT_TRUE(records.ok()) << records.status();
  std::vector<std::string> ops;
  for (const CollectiveRecord& record : *records) ops.push_back(record.module + " " + record.op);
  return ops;
}
SimTensor Simulated(const CompiledModel& model, const Tensors& states, const Tensors& inputs,
                    const std::string& name = "y") {
  EXPECT_TRUE(ValidateProgram(model.program).ok()) << ValidateProgram(model.program);
  absl::StatusOr<SimulationResult> result = Simulate(model.program, states, inputs);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->outputs.at(name) : SimTensor{};
}
SimTensor Wave(const Shape& shape) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(std::cos(0.37 * static_cast<double>(i)));
  return tensor;
}
SimTensor Arange(const Shape& shape, double step = 1) {
  SimTensor tensor{shape, {}};
  for (int64_t i = 0; i < ElementCount(shape); ++i) tensor.values.push_back(step * static_cast<double>(i));
  return tensor;
}
MATCHER_P(Close, tolerance, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= tolerance; }

// The values of `plain` on one rank for every mesh of `sharded`.
void ExpectEqual(const Submission& plain, const Submission& sharded, const std::vector<std::vector<MeshAxis>>& meshes,
                 const Tensors& inputs, const std::string& name) {
  Submission one = plain;
  one.plan.entries.clear();
  one.plan.mesh = Tp(1);
  const CompiledModel whole = Compile(one);
  const SimTensor want = Simulated(whole, InitialStates(whole, 5), inputs, name);
  for (const std::vector<MeshAxis>& mesh : meshes) {
    Submission each = sharded;
    each.plan.mesh = mesh;
    const CompiledModel model = Compile(each);
    const SimTensor got = Simulated(model, InitialStates(model, 5), inputs, name);
    ASSERT_EQ(got.shape, want.shape);
    EXPECT_THAT(got.values, Pointwise(Close(1e-9), want.values)) << mesh.back().size;
  }
}

// SEMANTICS 8, case 1.
TEST(ShardingTest, RowsOfAWeight) {
  const Submission submission =
      OneLinear(8, 4, Sharding({{"weight", OnTp(kS0)}}, {}, {{"input", OnTp(kR)}}), /*bias=*/false);
  const CompiledModel model = Compile(submission);
  EXPECT_EQ(StateAt(model, "fc.weight"), "tp=S(0)");
  const DTensorSpec& spec = model.program.values[model.program.outputs[0].value].spec;
  EXPECT_EQ(spec.placements, (Placements{kS1}));
  const SimTensor y =
      Simulated(model, {{"fc.weight", Arange({4, 8}, 0.1)}}, {{"x", {{2, 8}, std::vector<double>(16, 1)}}});
  ASSERT_EQ(y.shape, (Shape{2, 4}));
  for (const auto& [rank, want] : std::map<int, std::vector<double>>{{0, {2.8, 9.2}}, {1, {15.6, 22.0}}}) {
    const SimTensor block = LocalBlock(y, spec.placements, model.mesh, std::vector<int>{rank});
    EXPECT_EQ(block.shape, (Shape{2, 2}));
    EXPECT_THAT(block.values, Pointwise(Close(1e-9), {want[0], want[1], want[0], want[1]}));
  }
  EXPECT_THAT(OpsOf(model, {{"batch", 2}}), IsEmpty());
}

// SEMANTICS 8, case 2; a Linear's weight is w transposed.
TEST(ShardingTest, TwoAxes) {
  Submission submission = OneLinear(4, 4,
                                    Sharding({{"weight", OnTp(kS0)}, {"bias", OnTp(kS0)}}, {},
                                             {{"input", {{"dp", kS0}}}}, {{"output", {{"dp", kS0}, {"tp", kLast}}}}));
  submission.plan.mesh = {{"dp", 2}, {"tp", 2}};
  const CompiledModel model = Compile(submission);
  SimTensor weight{{4, 4}, {}};
  for (int out = 0; out < 4; ++out) {
    for (int in = 0; in < 4; ++in) weight.values.push_back(4 * in + out);
  }
  const SimTensor y =
      Simulated(model, {{"fc.weight", weight}, {"fc.bias", {{4}, {0, 1, 2, 3}}}}, {{"x", Arange({4, 4})}});
  const DTensorSpec& spec = model.program.values[model.program.outputs[0].value].spec;
  EXPECT_EQ(PlacementsText(model.mesh, spec.placements), "dp=S(0),tp=S(1)");
  const std::vector<std::vector<double>> want{
      {56, 63, 152, 175}, {70, 77, 198, 221}, {248, 287, 344, 399}, {326, 365, 454, 509}};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(LocalBlock(y, spec.placements, model.mesh, model.mesh.CoordinateOf(rank)).values, want[rank]);
  }
  EXPECT_THAT(model.warnings, IsEmpty());
}

// SEMANTICS 8, case 4: the lookup of a cut vocabulary is a sum over ranks.
TEST(ShardingTest, CutVocabulary) {
  EmbeddingConfig config;
  config.num_embeddings = 6;
  config.embedding_dim = 4;
  Module embed = Leaf("embed", config);
  embed.sharding =
      Sharding({{"weight", OnTp(kS0)}}, {}, {{"input", OnTp(kR)}}, {{"output", OnTp(kP)}}, {{"output", OnTp(kR)}});
  Submission submission = Of(Graph("Lookup", {CallChild("y", "embed", {"x"})}, "y", {embed}),
                             {Dim::Symbol("batch"), Dim::Symbol("columns")});
  submission.model.inputs[0].dtype = DType::kI64;
  const CompiledModel model = Compile(submission);
  const SimTensor y = Simulated(model, {{"embed.weight", Arange({6, 4})}}, {{"x", {{2, 2}, {1, 3, 4, 0}}}});
  EXPECT_EQ(y.shape, (Shape{2, 2, 4}));
  EXPECT_THAT(y.values, ElementsAre(4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19, 0, 1, 2, 3));
  EXPECT_THAT(OpsOf(model, {{"batch", 2}, {"columns", 2}}), ElementsAre("embed all_reduce"));
}

// A Linear that only has its weight placed: the rules do the rest.
TEST(ShardingTest, StatesAlonePropagate) {
  for (const Placement& placement : {kS0, kS1, Placement::StridedShard(0, 2), Placement::InterleavedShard(0, {2, 1})}) {
    const Submission sharded = OneLinear(6, 9, Sharding({{"weight", OnTp(placement)}}));
    ExpectEqual(OneLinear(6, 9, {}), sharded, {Tp(2), Tp(3), Tp(4)}, {{"x", Wave({5, 6})}}, "y");
  }
}

TEST(ShardingTest, AsAnEntryOfThePlanOrOfTheModule) {
  const ShardingConfig rows = Sharding({{"weight", OnTp(kS0)}, {"bias", OnTp(kS0)}}, {}, {{"input", OnTp(kR)}});
  const ShardingConfig columns =
      Sharding({{"weight", OnTp(kS1)}}, {{"input", OnTp(kLast)}}, {}, {{"output", OnTp(kP)}}, {{"output", OnTp(kR)}});
  Submission entries = MlpSubmission(4, 6, 2), own = entries, outer = entries;
  entries.plan.entries = {Styled("w1", rows), Styled("w2", columns)};
  own.plan.entries.clear();
  own.model.root.children[0].sharding = rows;
  own.model.root.children[1].sharding = columns;
  outer.plan.entries = {
      Styled("", Sharding({{"w1.weight", OnTp(kS0)}, {"w1.bias", OnTp(kS0)}, {"w2.weight", OnTp(kS1)}}))};
  const CompiledModel styled = Compile(MlpSubmission(4, 6, 2));
  for (const Submission& each : {entries, own, outer}) {
    const CompiledModel model = Compile(each);
    for (const PlacedState& state : styled.states) {
      EXPECT_EQ(StateAt(model, state.state.path), PlacementsText(model.mesh, state.placements));
    }
    EXPECT_THAT(OpsOf(model, {{"batch", 3}}), ElementsAre(HasSubstr("all_reduce")));
    ExpectEqual(MlpSubmission(4, 6, 1), each, {Tp(2), Tp(3), Tp(4)}, {{"x", Wave({3, 4})}}, "y");
  }
  EXPECT_EQ(ModuleOf(Compile(own), "w2").style,
            "ShardingConfig(state_shardings={'weight': {'tp': Shard(dim=1)}}, in_src_shardings={'input': {'tp': "
            "Shard(dim=-1)}}, out_src_shardings={'output': {'tp': Partial(sum)}}, out_dst_shardings={'output': {'tp': "
            "Replicate()}}, local_map=False)");
}

TEST(ShardingTest, SizesAndShapesOfOneAxisAreChecked) {
  Submission submission = OneLinear(4, 6, Sharding({{"weight", OnTp(Placement::Shard(2))}}));
  submission.plan.mesh = Tp(1);
  EXPECT_THAT(Refusal(submission), HasSubstr("sharding of fc: state_shardings['weight']: "));
  submission = OneLinear(4, 6, Sharding({{"weight", OnTp(Placement::InterleavedShard(0, {5, 2}))}}));
  EXPECT_THAT(Refusal(submission), HasSubstr("sharding of fc: state_shardings['weight']: "));
  submission = OneLinear(4, 6, Sharding({{"weight", OnTp(kP)}}));
  EXPECT_THAT(Refusal(submission), HasSubstr("state_shardings['weight']: P(sum) on axis 'tp': a state is not a sum"));
}

TEST(ShardingTest, UnknownNamesComeWithTheNearest) {
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({{"wieght", OnTp(kS0)}}))),
              HasSubstr("sharding of fc: state_shardings: Linear has no state 'wieght'; nearest: weight or bias"));
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({}, {{"inptu", OnTp(kS0)}}))),
              HasSubstr("in_src_shardings: Linear has no argument 'inptu'; nearest: input"));
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({}, {}, {{"x", OnTp(kS0)}}))),
              HasSubstr("in_dst_shardings: Linear has no argument 'x'; nearest: input"));
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({}, {}, {}, {{"0", OnTp(kS0)}}))),
              HasSubstr("out_src_shardings: Linear has no output '0'; nearest: output"));
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({}, {}, {}, {}, {{"y", OnTp(kS0)}}))),
              HasSubstr("out_dst_shardings: Linear has no output 'y'; nearest: output"));
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({{"weight", {{"cp", kS0}, {"ep", kR}}}}))),
              HasSubstr("state_shardings['weight']: axes not in mesh: {cp, ep}"));
  EXPECT_THAT(Refusal(OneLinear(4, 6, Sharding({}, {}, {{"input", {{"cp", kS0}}}}))),
              HasSubstr("in_dst_shardings['input']: axes not in mesh: {cp}"));
  Submission entry = OneLinear(4, 6, {});
  entry.model.root.children[0].sharding.reset();
  entry.plan.entries = {Styled("", Sharding({{"fc.wight", OnTp(kS0)}}))};
  EXPECT_THAT(Refusal(entry), HasSubstr("plan.entries[0] '': the root module: state_shardings: One has no state "
                                        "'fc.wight'; nearest: fc.weight or fc.bias"));
  entry.plan.entries = {Styled("fx", Sharding({}))};
  EXPECT_THAT(Refusal(entry), HasSubstr("plan.entries[0] 'fx': matches no module; nearest: fc"));
}

// The chain: what one module hands on against what the next one says.
TEST(ShardingTest, ClaimsAreCheckedAgainstTheRealPlacement) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {
      Styled("w1", Sharding({{"weight", OnTp(kS0)}, {"bias", OnTp(kS0)}}, {}, {}, {}, {{"output", OnTp(kS0)}})),
      Styled("w2", Sharding({{"weight", OnTp(kS1)}}, {{"input", OnTp(kLast)}}))};
  EXPECT_THAT(Refusal(submission), HasSubstr("w2: in_src_shardings['input'] of 'w2' says S(1), the input is S(0)"));
  submission.plan.entries.pop_back();
  submission.model.root.children[1].sharding = Sharding({}, {}, {}, {{"output", OnTp(kS1)}});
  EXPECT_THAT(Refusal(submission), HasSubstr("w2: out_src_shardings['output'] says S(1), the output is S(0)"));
  // An axis that is not named is Replicate, in a claim too.
  submission.model.root.children[1].sharding = Sharding({}, {{"input", {}}});
  EXPECT_THAT(Refusal(submission), HasSubstr("w2: in_src_shardings['input'] says R, the input is S(0)"));
  // Without in_src the value is moved from where it is.
  submission.model.root.children[1].sharding = Sharding({}, {}, {{"input", {}}});
  ExpectEqual(MlpSubmission(4, 6, 1), submission, {Tp(2), Tp(3)}, {{"x", Wave({3, 4})}}, "y");
}

TEST(ShardingTest, RequestsAreDeliveredWhereTheFirstConsumerSays) {
  auto input = [](const Submission& submission) {
    const CompiledModel model = Compile(submission);
    return PlacementsText(model.mesh, model.program.values[model.program.operands[0].value].spec.placements);
  };
  EXPECT_EQ(input(OneLinear(4, 6, Sharding({}, {{"input", OnTp(kS0)}}, {{"input", OnTp(kR)}}))), "tp=S(0)");
  EXPECT_EQ(input(OneLinear(4, 6, Sharding({}, {}, {{"input", OnTp(kS1)}}))), "tp=S(1)");
  EXPECT_EQ(input(OneLinear(4, 6, Sharding({{"weight", OnTp(kS1)}}))), "tp=R");
}

TEST(ShardingTest, AGatheredBatchIsWarnedOf) {
  Submission submission = OneLinear(4, 6, Sharding({{"weight", OnTp(kS0)}}, {}, {{"input", OnTp(kR)}}));
  submission.plan.mesh = {{"dp", 2}, {"tp", 2}};
  submission.plan.batch_axes = {"dp"};
  EXPECT_THAT(Compile(submission).warnings,
              ElementsAre("sharding of fc: fc: in_dst_shardings['input'] does not name the batch axis 'dp': the batch "
                          "is gathered over it"));
  submission.model.root.children[0].sharding->in_dst_shardings["input"]["dp"] = kS0;
  EXPECT_THAT(Compile(submission).warnings, IsEmpty());
}

// A plan without styles needs no axis for them.
TEST(ShardingTest, ShardingsNeedNoAxisOfStyles) {
  Submission submission = OneLinear(4, 6, {});
  submission.model.root.children[0].sharding.reset();
  submission.plan.mesh = {{"a", 2}, {"b", 2}};
  submission.plan.entries = {Styled("fc", Sharding({{"weight", {{"a", kS0}, {"b", kS1}}}}))};
  EXPECT_EQ(StateAt(Compile(submission), "fc.weight"), "a=S(0),b=S(1)");
  ExpectEqual(OneLinear(4, 6, {}), submission, {{{"a", 2}, {"b", 2}}, {{"a", 3}, {"b", 1}}}, {{"x", Wave({3, 4})}},
              "y");
  submission.plan.entries.push_back(Colwise("fc"));
  EXPECT_THAT(Refusal(submission), HasSubstr("plan.axis: "));
}

TEST(ShardingTest, OuterBeforeInner) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {Styled("w1", Sharding({{"weight", OnTp(kS0)}})),
                             Styled("", Sharding({{"w1.weight", OnTp(Placement::Shard(-2))}}))};
  EXPECT_EQ(StateAt(Compile(submission), "w1.weight"), "tp=S(0)");
  std::get<ShardingConfig>(submission.plan.entries[1].style).state_shardings["w1.weight"] = OnTp(kS1);
  EXPECT_EQ(Refusal(submission, absl::StatusCode::kFailedPrecondition),
            "plan.entries[0] 'w1': w1.weight is already a DTensor with placements tp=S(1) (plan.entries[1] ''), but "
            "sharding_config expects tp=S(0)");
  // Something invalid beside it: INVALID_ARGUMENT with both texts.
  submission.plan.entries.push_back(Styled("w2", Sharding({{"weigth", OnTp(kS0)}})));
  EXPECT_THAT(Refusal(submission), AllOf(HasSubstr("has no state 'weigth'"), HasSubstr("is already a DTensor")));
}

TEST(ShardingTest, OneShardingAndOneStyleForAState) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {Colwise("w1"), Styled("", Sharding({{"w1.bias", OnTp(kS0)}}))};
  EXPECT_THAT(Refusal(submission),
              HasSubstr("two entries place 'w1.bias': plan.entries[0] 'w1' and plan.entries[1] ''"));
  submission.plan.entries = {Styled("", SequenceParallel{}), Styled("w2", Sharding({{"weight", OnTp(kR)}}))};
  EXPECT_THAT(Refusal(submission),
              HasSubstr("two entries place 'w2.weight': plan.entries[0] '' and plan.entries[1] 'w2'"));
  submission.plan.entries = {Styled("w*", Sharding({})), Styled("w1", Sharding({}))};
  EXPECT_THAT(Refusal(submission), HasSubstr("two shardings of w1: plan.entries[0] 'w*' and plan.entries[1] 'w1'"));
  submission.plan.entries.pop_back();
  submission.model.root.children[1].sharding = ShardingConfig{};
  EXPECT_THAT(Refusal(submission), HasSubstr("two shardings of w2: sharding of w2 and plan.entries[0] 'w*'"));
}

TEST(ShardingTest, BesideStyles) {
  // A sharding moves values of a module whose weights a style cuts, and Prepare* moves those of a sharded one.
  Submission submission = MlpSubmission(4, 6, 2);
  submission.plan.entries = {Colwise("w1"), Styled("w1", Sharding({}, {}, {}, {{"output", OnTp(kS1)}})),
                             Styled("w2", Sharding({{"weight", OnTp(kS1)}})), PreparedInput("w2", kS1, kS1),
                             PreparedOutput("w2", kP, kS0)};
  const CompiledModel model = Compile(submission);
  EXPECT_THAT(OpsOf(model, {{"batch", 3}})[0], "w2 reduce_scatter");
  ExpectEqual(MlpSubmission(4, 6, 1), submission, {Tp(2), Tp(3)}, {{"x", Wave({3, 4})}}, "y");
}

// ModuleList, ModuleDict and Sequential: paths reach through them, and a sharding may stand on any level.
TEST(ShardingTest, NestedContainers) {
  Module list = Leaf("layers", ModuleListConfig{}), dict = Leaf("heads", ModuleDictConfig{}),
         chain = Leaf("chain", SequentialConfig{});
  list.children = {Linear("0", 4, 6), Linear("1", 6, 4)};
  dict.children = {Linear("a", 4, 5)};
  ActivationConfig relu;
  relu.function = "relu";
  chain.children = {Linear("0", 5, 7), Leaf("1", relu), Linear("2", 7, 3)};
  const std::vector<GraphNode> nodes{CallChild("h", "layers.0", {"x"}), CallChild("i", "layers.1", {"h"}),
                                     CallChild("j", "heads.a", {"i"}), CallChild("k", "chain", {"j"})};
  const Submission plain = Of(Graph("Net", nodes, "k", {list, dict, chain}), {Dim::Symbol("batch"), Dim(4)});
  Submission sharded = plain;
  Module& root = sharded.model.root;
  root.sharding = Sharding({{"heads.a.bias", OnTp(kS0)}, {"layers.1.weight", OnTp(kS1)}});
  root.children[0].sharding = Sharding({{"0.weight", OnTp(kS0)}, {"1.weight", OnTp(kS1)}});
  root.children[1].sharding = Sharding({{"a.weight", OnTp(kS0)}});
  root.children[2].sharding =
      Sharding({{"2.weight", OnTp(kS1)}}, {}, {{"input", OnTp(kR)}}, {{"output", OnTp(kP)}}, {{"output", OnTp(kS0)}});
  sharded.plan.entries = {Styled("chain.0", Sharding({{"weight", OnTp(kS0)}}))};
  const CompiledModel model = Compile(sharded);
  EXPECT_EQ(StateAt(model, "layers.0.weight"), "tp=S(0)");
  EXPECT_EQ(StateAt(model, "layers.1.weight"), "tp=S(1)");
  EXPECT_EQ(StateAt(model, "heads.a.weight"), "tp=S(0)");
  EXPECT_EQ(StateAt(model, "heads.a.bias"), "tp=S(0)");
  EXPECT_EQ(StateAt(model, "chain.2.weight"), "tp=S(1)");
  EXPECT_EQ(StateAt(model, "chain.0.weight"), "tp=S(0)");
  EXPECT_EQ(StateAt(model, "chain.0.bias"), "tp=R");
  ExpectEqual(plain, sharded, {Tp(2), Tp(3), Tp(4)}, {{"x", Wave({3, 4})}}, "y");
  // The outer sharding of a container and the inner one of its child.
  root.children[0].children[1].sharding = Sharding({{"weight", OnTp(kR)}});
  EXPECT_THAT(
      Refusal(sharded, absl::StatusCode::kFailedPrecondition),
      HasSubstr("sharding of layers.1: layers.1.weight is already a DTensor with placements tp=S(1) (sharding of "
                "the root module), but sharding_config expects tp=R"));
  root.children[0].children[1].sharding.reset();
  root.children[0].sharding->in_dst_shardings["input"] = OnTp(kR);
  EXPECT_THAT(Refusal(sharded), HasSubstr("in_dst_shardings: ModuleList has no argument 'input'; nearest: none"));
}

TEST(ShardingTest, BuffersAreStatesToo) {
  Module scaled = Graph("Scaled", {CallFunction("s", "mul", {"x", "self.scale"})}, "s", {});
  StateDef scale;
  scale.name = "scale";
  scale.shape = {4};
  scale.buffer = true;
  scale.persistent = false;
  std::get<CompositeConfig>(scaled.config).states = {scale};
  scaled.name = "scaled";
  scaled.param_init["scale"] = {Initializer::Kind::kUniform, 0.5, 1.5};
  const Submission plain =
      Of(Graph("Root", {CallChild("y", "scaled", {"x"})}, "y", {scaled}), {Dim::Symbol("batch"), Dim(4)});
  Submission sharded = plain;
  sharded.model.root.sharding = Sharding({{"scaled.scale", OnTp(kS0)}});
  const CompiledModel model = Compile(sharded);
  EXPECT_EQ(StateAt(model, "scaled.scale"), "tp=S(0)");
  EXPECT_FALSE(model.states[0].state.persistent);
  ExpectEqual(plain, sharded, {Tp(2), Tp(3)}, {{"x", Wave({3, 4})}}, "y");
}

// Tuple outputs are "0", "1"; maps have their keys; an omitted argument is skipped.
TEST(ShardingTest, NamesOfOutputsAndOmittedArguments) {
  CompositeConfig pair;
  pair.type_name = "Pair";
  pair.inputs = {{"x", false}, {"mask", true}};
  pair.nodes = {CallFunction("a", "relu", {"x"}), CallFunction("b", "silu", {"x"})};
  pair.outputs = {{"left", "a"}, {"right", "b"}};
  for (OutputStructure structure : {OutputStructure::kTuple, OutputStructure::kMap}) {
    pair.structure = structure;
    const bool map = structure == OutputStructure::kMap;
    if (!map) {
      pair.outputs[0].name = "0";
      pair.outputs[1].name = "1";
    } else {
      pair.outputs[0].name = "left";
      pair.outputs[1].name = "right";
    }
    GraphNode call = CallChild("pair", "pair", {"x"});
    call.outputs = {"first", "second"};
    Submission submission =
        Of(Graph("Root", {call, CallFunction("y", "mul", {"first", "second"})}, "y", {Leaf("pair", pair)}),
           {Dim::Symbol("batch"), Dim(4)});
    const Submission plain = submission;
    submission.model.root.children[0].sharding =
        Sharding({}, {{"mask", OnTp(kS0)}}, {{"x", OnTp(kS0)}, {"mask", OnTp(kS1)}}, {},
                 {{map ? "left" : "0", OnTp(kS1)}, {map ? "right" : "1", OnTp(kR)}});
    const CompiledModel model = Compile(submission);
    EXPECT_THAT(ModuleOf(model, "pair").outputs, ElementsAre(HasSubstr("tp=S(1)"), HasSubstr("tp=R")));
    ExpectEqual(plain, submission, {Tp(2), Tp(3)}, {{"x", Wave({3, 4})}}, "y");
    submission.model.root.children[0].sharding->out_src_shardings["output"] = OnTp(kS0);
    EXPECT_THAT(Refusal(submission), HasSubstr("out_src_shardings: Pair has no output 'output'; nearest: "));
  }
}

TEST(ShardingTest, LiteralsAreLeftAlone) {
  CompositeConfig block;
  block.type_name = "Block";
  block.inputs = {{"flag", true}, {"x", false}};
  block.nodes = {CallFunction("r", "relu", {"x"})};
  block.outputs = {{"output", "r"}};
  GraphNode call = CallChild("y", "block", {});
  Argument literal, value;
  literal.literal = true;
  value.value = "x";
  call.arguments = {literal, value};
  Submission submission = Of(Graph("Root", {call}, "y", {Leaf("block", block)}), {Dim::Symbol("batch"), Dim(4)});
  const Submission plain = submission;
  submission.plan.entries = {Styled("block", Sharding({}, {}, {{"flag", OnTp(kS0)}, {"x", OnTp(kS0)}}))};
  ExpectEqual(plain, submission, {Tp(2)}, {{"x", Wave({3, 4})}}, "y");
  const std::vector<std::pair<Attribute, std::string>> kinds{{true, "bool"},
                                                             {int64_t{3}, "int"},
                                                             {1.5, "float"},
                                                             {std::string("text"), "str"},
                                                             {std::vector<int64_t>{1, 2}, "list"}};
  for (const auto& [given, name] : kinds) {
    submission = plain;
    std::get<CompositeConfig>(submission.model.root.config).nodes[0].arguments[0].literal = given;
    submission.plan.entries = {Styled("block", SequenceParallel{})};
    EXPECT_THAT(Refusal(submission),
                HasSubstr("block: expecting input of SequenceParallel to be a tensor or DTensor, but got " + name));
  }
}

TEST(ShardingTest, TiedStatesHaveOnePlacement) {
  Submission submission = DecoderSubmission({.layers = 1}, 4);
  submission.plan.entries = {Styled("head", Sharding({{"weight", OnTp(kS0)}}))};
  WeightSource alias;
  alias.kind = WeightSource::Kind::kAlias;
  alias.path = "embed.weight";
  submission.weights["head.weight"] = alias;
  EXPECT_EQ(StateAt(Compile(submission), "embed.weight"), "tp=S(0)");
  submission.plan.entries.push_back(Styled("embed", Sharding({{"weight", OnTp(kS1)}})));
  EXPECT_THAT(Refusal(submission), HasSubstr("tied states 'head.weight' and 'embed.weight' want different placements: "
                                             "tp=S(0) and tp=S(1)"));
}

// SEMANTICS 4 and 8, case 10: whole heads, whoever cuts the projections.
TEST(ShardingTest, GroupedHeads) {
  const ShardingConfig rows = Sharding({{"weight", OnTp(kS0)}, {"bias", OnTp(kS0)}}, {}, {}, {{"output", OnTp(kLast)}},
                                       {{"output", OnTp(kLast)}});
  ShardingConfig no_bias = rows;
  no_bias.state_shardings.erase("bias");
  Submission submission = DecoderSubmission({.layers = 1, .vocabulary = 21}, 8);
  submission.plan.entries = {Styled("layers.*.attn.[qk]_proj", rows), Styled("layers.*.attn.v_proj", no_bias),
                             Styled("layers.*.attn.o_proj", Sharding({{"weight", OnTp(kS1)}}))};
  const CompiledModel model = Compile(submission);
  EXPECT_EQ(StateAt(model, "layers.0.attn.q_proj.weight"), "tp=S(0)");
  for (const char* path : {"k_proj.weight", "k_proj.bias", "v_proj.weight"}) {
    EXPECT_EQ(StateAt(model, std::string("layers.0.attn.") + path), "tp=GS(0,4)") << path;
  }
  EXPECT_EQ(model.program.caches[0].heads_placements, (Placements{Placement::GroupShard(0, 4)}));
  EXPECT_THAT(OpsOf(model, {{"batch", 1}, {"time", 4}}), ElementsAre("layers.0 all_reduce"));
  SimTensor ids{{1, 5}, {3, 20, 17, 0, 9}};
  ExpectEqual(DecoderSubmission({.layers = 1, .vocabulary = 21}, 1), submission,
              {Tp(2), Tp(4), Tp(8), {{"dp", 2}, {"tp", 8}}}, {{"ids", ids}}, "logits");
  submission.plan.mesh = Tp(3);
  EXPECT_THAT(Refusal(submission), HasSubstr("8 query heads and 4 key-value heads can be cut over 1, 2, 4 or 8 ranks, "
                                             "not over 3"));
  // Heads cut over two axes: right, at the price of a gather.
  for (PlanEntry& entry : submission.plan.entries) {
    auto& sharding = std::get<ShardingConfig>(entry.style);
    for (auto& [path, named] : sharding.state_shardings) named["dp"] = named["tp"];
    sharding.out_src_shardings.clear();
    sharding.out_dst_shardings.clear();
  }
  ExpectEqual(DecoderSubmission({.layers = 1, .vocabulary = 21}, 1), submission,
              {{{"dp", 2}, {"tp", 4}}, {{"dp", 8}, {"tp", 2}}}, {{"ids", ids}}, "logits");
}

}  // namespace
}  // namespace tp::testing
