// Declarative shardings in plans: what they place, claim and move, what they refuse, and that nothing changes a value
// (SEMANTICS 5, 7 and 8).
#include "tests/common/program/sharding_cases.h"

namespace tp::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

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

}  // namespace
}  // namespace tp::testing
