// Declarative shardings on trees of modules: order, containers, styles beside them, buffers, outputs and tied states
// (SEMANTICS 7).
#include "tests/common/program/sharding_cases.h"

namespace tp::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_THAT(Refusal(submission),
              HasSubstr("8 query heads and 4 key-value heads can't be cut over 3 ranks; legal degrees: 1, 2, 4, 8"));
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
