#include "common/model/flatten.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::HasSubstr;
using tp::testing::CallChild;
using tp::testing::CallFunction;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;

std::string ErrorOf(const ModelDef& model) {
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  EXPECT_EQ(flat.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(flat.status().message());
}

ModelDef Mlp() { return MlpSubmission(4, 6, 1).model; }
CompositeConfig& Graph(ModelDef* model) { return std::get<CompositeConfig>(model->root.config); }

TEST(FlattenTest, CallsAreBracketedByMarkers) {
  const ModelDef model = Mlp();
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  std::vector<std::string> walked;
  for (const FlatNode& node : flat->nodes) {
    walked.push_back(node.kind == FlatNode::Kind::kFunction      ? node.function
                     : node.kind == FlatNode::Kind::kModuleInput ? "(" + node.module_path
                                                                 : node.module_path + ")");
  }
  EXPECT_EQ(walked, (std::vector<std::string>{"(", "(w1", "linear", "w1)", "relu", "(w2", "linear", "w2)", "add",
                                              "softmax", ")"}));
  std::vector<std::string> states;
  for (const FlatState& state : flat->states) states.push_back(state.path);
  EXPECT_EQ(states, (std::vector<std::string>{"w1.weight", "w1.bias", "w2.weight", "w2.bias"}));
  EXPECT_EQ(flat->states[0].shape, (Shape{6, 4}));
  EXPECT_EQ(flat->values[flat->outputs[0].second].type, (TensorType{DType::kF32, {Dim::Symbol("batch"), 4}}));
}

TEST(FlattenTest, FloatingInputsAreCastToTheComputeDType) {
  const ModelDef model = Mlp();
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kBF16);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->nodes[0].function, "cast");
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.dtype, DType::kBF16);
}

TEST(FlattenTest, OneModuleMayBeCalledTwice) {
  ModelDef model = Mlp();
  Graph(&model).nodes.insert(Graph(&model).nodes.begin() + 1, CallChild("again", "w1", {"x"}));
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->states.size(), 4u);
}

TEST(FlattenTest, SequentialChainsAndIdentityDoesNothing) {
  ModelDef model;
  model.root.config = SequentialConfig{};
  Module fc, act, nothing;
  fc.name = "0";
  fc.config = LinearConfig{.in_features = 3, .out_features = 2, .bias = false, .output_dtype = {}};
  act.name = "1";
  act.config = ActivationConfig{"gelu", {{"approximate", std::string("tanh")}}};
  nothing.name = "2";
  nothing.config = IdentityConfig{};
  model.root.children = {fc, act, nothing};
  model.inputs = {{"input", DType::kF32, {5, 3}}};
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->outputs[0].first, "output");
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.shape, (SymShape{5, 2}));
}

// Work that grew with the square of the nodes took minutes here.
TEST(FlattenTest, LongGraphsAndWideListsTakeNoLongerThanTheirSize) {
  constexpr int kNodes = 20000;
  ModelDef model;
  CompositeConfig graph;
  graph.inputs = {{"x"}};
  Module list{.name = "layers", .config = ModuleListConfig{}, .children = {}, .param_init = {}};
  for (int i = 0; i < kNodes; ++i) {
    const std::string from = i == 0 ? "x" : "n" + std::to_string(i - 1), to = "n" + std::to_string(i);
    if (i % 4 == 0) {
      list.children.push_back(
          {.name = std::to_string(i), .config = IdentityConfig{}, .children = {}, .param_init = {}});
      graph.nodes.push_back(CallChild(to, "layers." + std::to_string(i), {from}));
    } else {
      graph.nodes.push_back(CallFunction(to, "relu", {from}));
    }
  }
  graph.outputs = {{"y", "n" + std::to_string(kNodes - 1)}};
  model.root.config = std::move(graph);
  model.root.children.push_back(std::move(list));
  model.inputs = {{"x", DType::kF32, {Dim::Symbol("batch"), 4}}};
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_GT(flat->nodes.size(), static_cast<size_t>(kNodes));
}

TEST(FlattenTest, GenerationIsChecked) {
  ModelDef model = DecoderSubmission({}, 1).model;
  ASSERT_TRUE(FlattenModel(model, DType::kBF16).ok());
  model.generation->vocab_size = 256;
  EXPECT_THAT(ErrorOf(model), HasSubstr("generation.logits_output: must be F32[batch, time, 256]"));
  model.generation->vocab_size = 257;
  model.generation->ids_input = "idz";
  EXPECT_THAT(ErrorOf(model), HasSubstr("nearest: ids"));
}

// A step of generation holds tokens of several sequences.
TEST(FlattenTest, GenerationKeepsTokensApart) {
  const ModelDef decoder = DecoderSubmission({}, 1).model;
  // `function` on the logits or, with [batch, time, 257] kept, in their place.
  auto with = [&](std::vector<GraphNode> nodes) {
    ModelDef model = decoder;
    CompositeConfig& graph = Graph(&model);
    const std::string logits = graph.outputs[0].value;
    for (GraphNode& node : nodes) {
      for (Argument& argument : node.arguments) {
        if (argument.value == "logits") argument.value = logits;
      }
      graph.nodes.push_back(std::move(node));
    }
    graph.outputs[0].value = graph.nodes.back().name;
    return model;
  };
  const Attributes time{{"dim", int64_t{1}}}, last{{"dim", int64_t{-1}}};
  EXPECT_TRUE(FlattenModel(with({CallFunction("p", "log_softmax", {"logits"}, last)}), DType::kF32).ok());
  EXPECT_THAT(ErrorOf(with({CallFunction("p", "log_softmax", {"logits"}, time)})),
              HasSubstr("generation: log_softmax in '' mixes the tokens of a step"));
  EXPECT_THAT(ErrorOf(with({CallFunction("m", "mean", {"logits"}, {}), CallFunction("p", "sub", {"logits", "m"})})),
              HasSubstr("mean in '' mixes the tokens"));
  EXPECT_THAT(ErrorOf(with({CallFunction("t", "transpose", {"logits"}, {{"dim0", int64_t{0}}, {"dim1", int64_t{1}}}),
                            CallFunction("p", "transpose", {"t"}, {{"dim0", int64_t{0}}, {"dim1", int64_t{1}}})})),
              HasSubstr("a value of shape [time, batch, 257] leads to the logits"));
  // Beside the logits they may be mixed.
  ModelDef beside = decoder;
  Graph(&beside).nodes.push_back(CallFunction("m", "mean", {Graph(&beside).outputs[0].value}, {}));
  Graph(&beside).outputs.push_back({"m", "m"});
  EXPECT_TRUE(FlattenModel(beside, DType::kF32).ok());
}

TEST(FlattenTest, GenerationNeedsCausalAttentionWithACache) {
  ModelDef model = DecoderSubmission({}, 1).model;
  Module* attention = nullptr;
  std::vector<Module*> open{&model.root};
  while (!open.empty()) {
    Module* module = open.back();
    open.pop_back();
    if (module->name == "attn") attention = module;
    for (Module& child : module->children) open.push_back(&child);
  }
  ASSERT_NE(attention, nullptr);
  for (GraphNode& node : std::get<CompositeConfig>(attention->config).nodes) {
    if (node.function == "attention") node.attributes["causal"] = false;
  }
  EXPECT_THAT(ErrorOf(model), HasSubstr("generation: attention in 'layers.0.attn' has causal=false"));
  model.generation.reset();
  EXPECT_TRUE(FlattenModel(model, DType::kF32).ok());
}

TEST(FlattenErrorsTest, NamesAndNearestNames) {
  ModelDef model = Mlp();
  Graph(&model).nodes[0].child = "w3";
  EXPECT_THAT(ErrorOf(model),
              HasSubstr("root: node 'h': there is no child 'w3' (root has no 'w3'); nearest: w1 or w2"));
  model = Mlp();
  Graph(&model).nodes[1].function = "rely";
  EXPECT_THAT(ErrorOf(model), HasSubstr("there is no function 'rely'; nearest: relu"));
  model = Mlp();
  Graph(&model).nodes[1].arguments = {{"", "hh"}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("root: node 'r': there is no value 'hh'; nearest: h"));
  model = Mlp();
  Graph(&model).nodes[1].arguments = {{"inptu", "h"}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("nearest: input"));
  model = Mlp();
  Graph(&model).outputs[0].value = "z";
  EXPECT_THAT(ErrorOf(model), HasSubstr("root: output 'y': there is no value 'z'"));
}

TEST(FlattenErrorsTest, OrderAndCounts) {
  ModelDef model = Mlp();
  std::swap(Graph(&model).nodes[0], Graph(&model).nodes[1]);
  EXPECT_THAT(ErrorOf(model), HasSubstr("root: node 'r': value 'h' is used before it is made"));
  model = Mlp();
  Graph(&model).nodes[0].arguments.push_back({"", "x"});
  EXPECT_THAT(ErrorOf(model), HasSubstr("takes 1 arguments and gets 2"));
  model = Mlp();
  Graph(&model).nodes[3].arguments.pop_back();
  EXPECT_THAT(ErrorOf(model), HasSubstr("add takes exactly one of 'other' and attribute 'scalar'"));
  model = Mlp();
  Graph(&model).nodes[1].name = "x";
  EXPECT_THAT(ErrorOf(model), HasSubstr("two values have the name 'x'"));
  model = Mlp();
  Graph(&model).nodes[0].outputs = {"h", "h2"};
  EXPECT_THAT(ErrorOf(model), HasSubstr("names 2 outputs of 1"));
  model = Mlp();
  Graph(&model).nodes[0].function = "relu";
  EXPECT_THAT(ErrorOf(model), HasSubstr("exactly one of child and function"));
  model = Mlp();
  Graph(&model).nodes[1].attributes = {{"slope", 0.1}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("relu has no attribute 'slope'"));
}

TEST(FlattenErrorsTest, TreesAndSizes) {
  ModelDef model = Mlp();
  model.root.children[1].name = "w1";
  EXPECT_THAT(ErrorOf(model), HasSubstr("two children have the name 'w1'"));
  model = Mlp();
  model.root.children[0].name = "a.b";
  EXPECT_THAT(ErrorOf(model), HasSubstr("holds a dot"));
  model = Mlp();
  std::get<LinearConfig>(model.root.children[0].config).in_features = 0;
  EXPECT_THAT(ErrorOf(model), HasSubstr("root.w1: in_features must be at least 1, given 0"));
  model = Mlp();
  std::get<LinearConfig>(model.root.children[0].config).in_features = int64_t{1} << 61;
  EXPECT_THAT(ErrorOf(model), HasSubstr("root.w1: state 'weight'"));
  model = Mlp();
  std::get<LinearConfig>(model.root.children[0].config).in_features = 5;
  EXPECT_THAT(ErrorOf(model), HasSubstr("root.w1: linear: the input's last dim"));
  model = Mlp();
  model.root.children[0].param_init["wieght"] = {};
  EXPECT_THAT(ErrorOf(model), HasSubstr("nearest: weight or bias"));
  model = Mlp();
  model.root.children[0].config = ModuleListConfig{};
  EXPECT_THAT(ErrorOf(model), HasSubstr("takes 0 arguments"));
}

TEST(FlattenErrorsTest, InputsAndLimits) {
  ModelDef model = Mlp();
  model.inputs[0].name = "z";
  EXPECT_THAT(ErrorOf(model), HasSubstr("inputs 'z': the root module has no such input; nearest: x"));
  model = Mlp();
  model.inputs.clear();
  EXPECT_THAT(ErrorOf(model), HasSubstr("'x' has no dtype and shape"));
  model = Mlp();
  model.inputs[0].shape[0] = Dim::Symbol("batch") * Dim(2);
  EXPECT_THAT(ErrorOf(model), HasSubstr("a number or one symbol"));
  model = Mlp();
  model.symbol_limits = {{"batsh", 4}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("nearest: batch"));
}

TEST(FlattenErrorsTest, SharedModulesThatMultiplyAreRefused) {
  ModelDef model;
  Module inner;
  inner.name = "c";
  inner.config = ActivationConfig{"relu", {}};
  for (int depth = 0; depth < 40; ++depth) {
    Module outer;
    outer.name = "c";
    outer.config = CompositeConfig{.type_name = "Twice",
                                   .inputs = {{"x"}},
                                   .nodes = {CallChild("a", "c", {"x"}), CallChild("b", "c", {"a"})},
                                   .outputs = {{"b", "b"}},
                                   .states = {}};
    outer.children = {inner};
    inner = outer;
  }
  inner.name = "";
  model.root = inner;
  model.inputs = {{"x", DType::kF32, {1}}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("nodes"));
}

}  // namespace
}  // namespace tp
