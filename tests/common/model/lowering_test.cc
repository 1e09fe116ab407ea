// What calls become in programs: functions that are made of others, and the forward of leaf kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/flatten.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::HasSubstr;
using tp::testing::CallChild;
using tp::testing::CallFunction;

const Dim kBatch = Dim::Symbol("batch");
const Dim kTime = Dim::Symbol("time");

// A model of one graph.
ModelDef Graph(std::vector<ModelInput> inputs, std::vector<GraphNode> nodes, std::vector<GraphOutput> outputs,
               std::vector<Module> children = {}) {
  ModelDef model;
  CompositeConfig config{
      .type_name = "Net", .inputs = {}, .nodes = std::move(nodes), .outputs = std::move(outputs), .states = {}};
  for (const ModelInput& input : inputs) config.inputs.push_back({input.name});
  model.root.config = std::move(config);
  model.root.children = std::move(children);
  model.inputs = std::move(inputs);
  return model;
}

// "add(x, w1.weight) reshape(..)": the functions of the model in order.
std::string Functions(const FlatModel& flat) {
  std::vector<std::string> names;
  for (const FlatNode& node : flat.nodes) {
    if (node.kind == FlatNode::Kind::kFunction) names.push_back(node.function);
  }
  return absl::StrJoin(names, " ");
}

std::string FunctionsOf(const ModelDef& model, DType dtype = DType::kF32) {
  absl::StatusOr<FlatModel> flat = FlattenModel(model, dtype);
  if (!flat.ok()) return std::string(flat.status().message());
  return Functions(*flat);
}

const FlatNode* Find(const FlatModel& flat, const std::string& function) {
  for (const FlatNode& node : flat.nodes) {
    if (node.function == function) return &node;
  }
  return nullptr;
}

std::string OneCall(const std::string& function, const Attributes& attributes, SymShape shape) {
  ModelDef model =
      Graph({{"x", DType::kF32, std::move(shape)}}, {CallFunction("y", function, {"x"}, attributes)}, {{"y", "y"}});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  if (!flat.ok()) return std::string(flat.status().message());
  return absl::StrCat(Functions(*flat), " ", SymShapeText(flat->values[flat->outputs[0].second].type.shape));
}

TEST(LoweringTest, WhatKeepsTheOrderOfElementsIsReshape) {
  EXPECT_EQ(OneCall("view", {{"shape", SymShape{kBatch, Dim(-1)}}}, {kBatch, 2, 3}), "reshape [batch, 6]");
  EXPECT_EQ(OneCall("flatten", {}, {kBatch, 2, 3}), "reshape [6*batch]");
  EXPECT_EQ(OneCall("squeeze", {}, {kBatch, 1}), "reshape [batch]");
  EXPECT_EQ(OneCall("unsqueeze", {{"dim", int64_t{0}}}, {kBatch}), "reshape [1, batch]");
  EXPECT_THAT(OneCall("view", {{"shape", SymShape{kBatch, Dim(5)}}}, {kBatch, 6}),
              HasSubstr("not of one rank's shard"));
  EXPECT_THAT(OneCall("expand", {{"shape", SymShape{kBatch, Dim::Symbol("batsh")}}}, {kBatch, 1}),
              HasSubstr("no input of the model has the size 'batsh'; nearest: batch"));
}

TEST(LoweringTest, ExpandNamesEverySize) {
  const ModelDef model =
      Graph({{"x", DType::kF32, {1, kTime}}},
            {CallFunction("y", "expand", {"x"}, {{"shape", SymShape{Dim(3), Dim(-1)}}})}, {{"y", "y"}});
  const FlatModel flat = *FlattenModel(model, DType::kF32);
  EXPECT_EQ(std::get<SymShape>(Find(flat, "expand")->attributes.at("shape")), (SymShape{3, kTime}));
}

TEST(LoweringTest, ChunkIsSplitAndStackIsCat) {
  const ModelDef model = Graph({{"x", DType::kF32, {kBatch, 5}}},
                               {CallFunction("c", "chunk", {"x"}, {{"chunks", int64_t{2}}, {"dim", int64_t{-1}}}),
                                CallFunction("s", "stack", {"x", "x"}, {{"dim", int64_t{-1}}})},
                               {{"a", "c.0"}, {"b", "c.1"}, {"s", "s"}});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(Functions(*flat), "split reshape reshape cat");
  const FlatNode& split = *Find(*flat, "split");
  EXPECT_EQ(std::get<std::vector<int64_t>>(split.attributes.at("sizes")), (std::vector<int64_t>{3, 2}));
  ASSERT_EQ(split.outputs.size(), 2u);
  EXPECT_EQ(flat->values[flat->outputs[1].second].type.shape, (SymShape{kBatch, 2}));
  EXPECT_EQ(flat->values[flat->outputs[2].second].type.shape, (SymShape{kBatch, 5, 2}));
}

TEST(LoweringTest, BmmIsMatmul) {
  const ModelDef model = Graph({{"a", DType::kF32, {kBatch, 2, 3}}, {"b", DType::kF32, {kBatch, 3, 4}}},
                               {CallFunction("y", "bmm", {"a", "b"})}, {{"y", "y"}});
  EXPECT_EQ(FunctionsOf(model), "matmul");
}

ModelDef Loss(SymShape logits, SymShape targets, Attributes attributes) {
  return Graph({{"x", DType::kF32, std::move(logits)}, {"t", DType::kI64, std::move(targets)}},
               {CallFunction("loss", "cross_entropy", {"x", "t"}, std::move(attributes))}, {{"loss", "loss"}});
}

TEST(LoweringTest, CrossEntropyIsMadeOfReductionsAndPick) {
  const ModelDef mean = Loss({kBatch, 9}, {kBatch}, {});
  EXPECT_EQ(FunctionsOf(mean), "max sub exp sum log pick sub reshape eq masked_fill sum ne cast sum div");
  // Logits of BF16 are widened first.
  EXPECT_EQ(FunctionsOf(mean, DType::kBF16).substr(0, 18), "cast cast max sub ");
  const ModelDef sum = Loss({kBatch, 9}, {kBatch}, {{"reduction", std::string("sum")}, {"ignore_index", int64_t{7}}});
  const FlatModel flat = *FlattenModel(sum, DType::kF32);
  EXPECT_EQ(Functions(flat), "max sub exp sum log pick sub reshape eq masked_fill sum");
  EXPECT_EQ(std::get<double>(Find(flat, "eq")->attributes.at("scalar")), 7);
  EXPECT_EQ(std::get<int64_t>(Find(flat, "pick")->attributes.at("ignore_index")), 7);
  EXPECT_EQ(flat.values[flat.outputs[0].second].type, (TensorType{DType::kF32, {}}));
}

TEST(LoweringTest, CrossEntropyOfEveryRank) {
  const Attributes none{{"reduction", std::string("none")}};
  for (const auto& [logits, targets, dim] :
       std::vector<std::tuple<SymShape, SymShape, int64_t>>{{{9}, {}, 1},
                                                            {{kBatch, 9}, {kBatch}, 1},
                                                            {{kBatch, 9, kTime}, {kBatch, kTime}, 1},
                                                            {{kBatch, kTime, 9}, {kBatch, kTime}, -1}}) {
    Attributes attributes = none;
    attributes["dim"] = dim;
    const ModelDef model = Loss(logits, targets, attributes);
    absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
    ASSERT_TRUE(flat.ok()) << flat.status();
    EXPECT_EQ(flat->values[flat->outputs[0].second].type, (TensorType{DType::kF32, targets}));
  }
  const absl::Status smoothed =
      FlattenModel(Loss({kBatch, 9}, {kBatch}, {{"label_smoothing", 0.1}}), DType::kF32).status();
  EXPECT_EQ(smoothed.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(smoothed.message()),
              HasSubstr("root: node 'loss': cross_entropy: attribute 'label_smoothing'"));
}

ModelDef Leaf(ModuleConfig config, SymShape shape) {
  ModelDef model;
  model.root.config = std::move(config);
  model.inputs = {{"input", DType::kF32, std::move(shape)}};
  return model;
}

TEST(LeafTest, NewKindsCallTheirFunctions) {
  EXPECT_EQ(FunctionsOf(Leaf(DropoutConfig{}, {kBatch, 4})), "");
  EXPECT_EQ(FunctionsOf(Leaf(ActivationConfig{"log_softmax", {}}, {kBatch, 4})), "log_softmax");
  EXPECT_EQ(FunctionsOf(Leaf(ActivationConfig{"tanh", {}}, {kBatch, 4})), "tanh");
  EXPECT_THAT(FunctionsOf(Leaf(ActivationConfig{"tan", {}}, {kBatch, 4})), HasSubstr("nearest: tanh"));

  const ModelDef norm = Leaf(LayerNormConfig{.normalized_shape = {3, 4}, .eps = 1e-3, .bias = false}, {kBatch, 3, 4});
  FlatModel flat = *FlattenModel(norm, DType::kF32);
  const FlatNode& layer_norm = *Find(flat, "layer_norm");
  EXPECT_EQ(layer_norm.inputs[1], flat.state_values.at("weight"));
  EXPECT_EQ(layer_norm.inputs[2], -1);
  EXPECT_EQ(std::get<int64_t>(layer_norm.attributes.at("dims")), 2);
  EXPECT_EQ(std::get<double>(layer_norm.attributes.at("eps")), 1e-3);

  const ModelDef conv = Leaf(ConvConfig{.spatial_dims = 1,
                                        .in_channels = 4,
                                        .out_channels = 6,
                                        .kernel_size = {3},
                                        .stride = {},
                                        .padding = {1},
                                        .dilation = {}},
                             {kBatch, 4, kTime});
  flat = *FlattenModel(conv, DType::kF32);
  EXPECT_EQ(std::get<std::vector<int64_t>>(Find(flat, "conv1d")->attributes.at("stride")), (std::vector<int64_t>{1}));
  EXPECT_EQ(flat.values[flat.outputs[0].second].type.shape, (SymShape{kBatch, 6, kTime}));
}

TEST(LeafTest, AttentionCutsHeadsAndTurnsThem) {
  Module attention{.name = "mix",
                   .config = AttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 8, .rope_theta = 500},
                   .children = {},
                   .param_init = {}};
  ModelDef model = Graph({{"q", DType::kF32, {kBatch, kTime, 32}}, {"kv", DType::kF32, {kBatch, kTime, 16}}},
                         {CallChild("y", "mix", {"q", "kv", "kv"})}, {{"y", "y"}}, {attention});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(Functions(*flat), "reshape rotary reshape rotary reshape attention reshape");
  EXPECT_EQ(std::get<double>(Find(*flat, "rotary")->attributes.at("theta")), 500);
  EXPECT_TRUE(std::get<bool>(Find(*flat, "attention")->attributes.at("cache")));
  EXPECT_EQ(flat->modules[1].argument_names, (std::vector<std::string>{"query", "key", "value"}));
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.shape, (SymShape{kBatch, kTime, 32}));

  std::get<AttentionConfig>(model.root.children[0].config) = {
      .heads = 4, .kv_heads = 2, .head_dim = 8, .causal = false, .cache = false};
  flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(Functions(*flat), "reshape reshape reshape attention reshape");
  EXPECT_FALSE(std::get<bool>(Find(*flat, "attention")->attributes.at("causal")));
  std::get<AttentionConfig>(model.root.children[0].config).kv_heads = 4;
  EXPECT_THAT(FunctionsOf(model), HasSubstr("root.mix: Attention: key must be [batch, time, 4 * 8]"));
}

}  // namespace
}  // namespace tp
