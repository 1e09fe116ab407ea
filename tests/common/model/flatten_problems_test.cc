// All problems of a definition are told at once, and none that follows from another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/flatten.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tp::testing::CallChild;
using tp::testing::CallFunction;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;

std::string ErrorOf(const ModelDef& model) {
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  EXPECT_EQ(flat.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(flat.status().message());
}

CompositeConfig& Graph(ModelDef* model) { return std::get<CompositeConfig>(model->root.config); }

// A model of one graph over x [batch, 4], whose child "inner" relays its one input through `inner`.
ModelDef Model(std::vector<GraphNode> nodes, std::vector<GraphNode> inner = {CallFunction("y", "relu", {"x"})}) {
  ModelDef model;
  Module child;
  child.name = "inner";
  child.config = CompositeConfig{
      .type_name = "Inner", .inputs = {{"x"}}, .nodes = std::move(inner), .outputs = {{"y", "y"}}, .states = {}};
  const std::string last = nodes.back().name;
  model.root.config = CompositeConfig{
      .type_name = "Outer", .inputs = {{"x"}}, .nodes = std::move(nodes), .outputs = {{"y", last}}, .states = {}};
  model.root.children = {child};
  model.inputs = {{"x", DType::kF32, {Dim::Symbol("batch"), 4}}};
  return model;
}

TEST(FlattenProblemsTest, EveryIndependentNodeIsTold) {
  const std::string error = ErrorOf(Model({CallFunction("a", "rely", {"x"}), CallFunction("b", "relu", {"xx"}),
                                           CallFunction("c", "relu", {"x"}, {{"slope", 0.1}}),
                                           CallChild("d", "iner", {"x"}), CallFunction("e", "relu", {"x", "x"}),
                                           CallFunction("f", "relu", {"a"}), CallFunction("y", "add", {"f", "b"})}));
  EXPECT_EQ(error,
            "root: node 'a': there is no function 'rely'; nearest: relu, gelu or eq; "
            "root: node 'b': there is no value 'xx'; nearest: x; "
            "root: node 'c': relu has no attribute 'slope'; nearest: none; "
            "root: node 'd': there is no child 'iner' (root has no 'iner'); nearest: inner; "
            "root: node 'e': relu takes 1 arguments and gets 2");
}

TEST(FlattenProblemsTest, OneNodeTellsAllOfItsOwn) {
  GraphNode node = CallFunction("y", "softmax", {}, {{"dimm", int64_t{1}}});
  node.arguments = {{"inptu", "xx"}};
  EXPECT_EQ(ErrorOf(Model({node})),
            "root: node 'y': there is no value 'xx'; nearest: x; "
            "root: node 'y': softmax has no argument 'inptu'; nearest: input; "
            "root: node 'y': softmax has no attribute 'dimm'; nearest: dim");
}

TEST(FlattenProblemsTest, InsideChildrenToo) {
  const std::string error =
      ErrorOf(Model({CallFunction("a", "rely", {"x"}), CallChild("y", "inner", {"a"})},
                    {CallFunction("h", "sigmoidd", {"x"}), CallFunction("y", "relu", {"h"}, {{"s", int64_t{1}}})}));
  EXPECT_THAT(error, HasSubstr("root: node 'a': there is no function 'rely'"));
  EXPECT_THAT(error, HasSubstr("root.inner: node 'h': there is no function 'sigmoidd'"));
  EXPECT_THAT(error, HasSubstr("root.inner: node 'y': relu has no attribute 's'"));
}

// A node that takes a wrong node's values has a wrong type or none: it says nothing of it.
TEST(FlattenProblemsTest, ConsequencesAreLeftOut) {
  GraphNode split = CallFunction("s", "splitt", {"x"});
  EXPECT_EQ(ErrorOf(Model({split, CallFunction("a", "relu", {"s.0"}), CallFunction("b", "cat", {"s"}),
                           CallChild("c", "inner", {"b"}), CallFunction("y", "matmul", {"c", "a"})})),
            "root: node 's': there is no function 'splitt'; nearest: split, select or slice");
  ModelDef mlp = MlpSubmission(4, 6, 1).model;
  std::get<LinearConfig>(mlp.root.children[0].config).in_features = 0;
  EXPECT_EQ(ErrorOf(mlp), "root.w1: in_features must be at least 1, given 0");
  mlp = MlpSubmission(4, 6, 1).model;
  mlp.inputs[0].name = "z";
  EXPECT_EQ(ErrorOf(mlp), "inputs 'z': the root module has no such input; nearest: x");
}

TEST(FlattenProblemsTest, TreesInputsAndGraphsTogether) {
  ModelDef model = MlpSubmission(4, 6, 1).model;
  std::get<LinearConfig>(model.root.children[0].config) = {
      .in_features = 0, .out_features = -1, .bias = true, .output_dtype = {}};
  model.root.children[1].param_init["wieght"] = {};
  model.symbol_limits = {{"batsh", 4}};
  Graph(&model).nodes[1].function = "rely";
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("root.w1: in_features must be at least 1, given 0"),
                                    HasSubstr("root.w1: out_features must be at least 1, given -1"),
                                    HasSubstr("root.w2: param_init names 'wieght'"),
                                    HasSubstr("symbol_limits 'batsh': no input has it; nearest: batch"),
                                    HasSubstr("root: node 'r': there is no function 'rely'")));
}

TEST(FlattenProblemsTest, GenerationTellsAllFields) {
  ModelDef model = DecoderSubmission({}, 1).model;
  model.generation->ids_input = "idz";
  model.generation->logits_output = "logitz";
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("generation.ids_input: no input 'idz'; nearest: ids"),
                                    HasSubstr("generation.logits_output: no output 'logitz'")));
  model = DecoderSubmission({}, 1).model;
  model.generation->max_positions = 0;
  model.generation->eos_token_ids = {-1, 1000};
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("generation: max_positions must be at least 1, given 0"),
                                    HasSubstr("generation.eos_token_ids: -1 is not in the vocabulary of 257"),
                                    HasSubstr("generation.eos_token_ids: 1000 is not in the vocabulary of 257")));
}

// A graph that is wrong everywhere neither takes long nor fills a status.
TEST(FlattenProblemsTest, ManyProblemsAndLongNamesStayShort) {
  std::vector<GraphNode> nodes;
  for (int i = 0; i < 20000; ++i) nodes.push_back(CallFunction("n" + std::to_string(i), "rely", {"x"}));
  const std::string many = ErrorOf(Model(nodes));
  EXPECT_LT(many.size(), 1024u);
  EXPECT_THAT(many, HasSubstr("; ... and "));
  const std::string name(100000, 'a');
  const std::string shown = std::string(80, 'a') + "...";
  const std::string same = ErrorOf(Model({CallFunction(name, name, {name}, {{name, true}})}));
  EXPECT_THAT(same, HasSubstr("root: node '" + shown + "': there is no function '" + shown + "'; nearest: "));
  EXPECT_LT(same.size(), 1024u);
  GraphNode node = CallFunction("y", "softmax", {"x"}, {{name, true}});
  node.arguments[0].name = name;
  EXPECT_THAT(ErrorOf(Model({node})), AllOf(HasSubstr("has no argument '" + shown + "'"),
                                            HasSubstr("has no attribute '" + shown + "'"), Not(HasSubstr(name))));
}

}  // namespace
}  // namespace tp
