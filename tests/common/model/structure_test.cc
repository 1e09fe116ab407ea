// Lists, tuples and maps of values, several outputs, literals and omitted arguments in graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/flatten.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tp::testing::CallChild;
using tp::testing::CallFunction;

const Dim kBatch = Dim::Symbol("batch");

Module Composite(std::string name, CompositeConfig config) {
  return {.name = std::move(name), .config = std::move(config), .children = {}, .param_init = {}};
}

// x F32 [batch, 6] into `graph`.
ModelDef Model(CompositeConfig graph, std::vector<Module> children = {}) {
  ModelDef model;
  graph.inputs = {{"x"}};
  model.root.config = std::move(graph);
  model.root.children = std::move(children);
  model.inputs = {{"x", DType::kF32, {kBatch, 6}}};
  return model;
}

std::string ErrorOf(const ModelDef& model) {
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  EXPECT_EQ(flat.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(flat.status().message());
}

GraphNode Split(std::string name) {
  return CallFunction(std::move(name), "split", {"x"}, {{"sizes", std::vector<int64_t>{1, 2, 3}}, {"dim", int64_t{1}}});
}

std::vector<std::string> OutputNames(const FlatModel& flat) {
  std::vector<std::string> names;
  for (const auto& [name, value] : flat.outputs) names.push_back(name);
  return names;
}

const FlatNode* Enter(const FlatModel& flat, const std::string& path) {
  for (const FlatNode& node : flat.nodes) {
    if (node.kind == FlatNode::Kind::kModuleInput && node.module_path == path) return &node;
  }
  return nullptr;
}

TEST(StructureTest, AListOfValuesPassesThemAll) {
  const ModelDef model = Model({.type_name = "Net",
                                .inputs = {},
                                .nodes = {Split("h"), CallFunction("y", "cat", {"h"}, {{"dim", int64_t{1}}})},
                                .outputs = {{"y", "y"}, {"parts", "h"}},
                                .states = {}});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_THAT(OutputNames(*flat), ElementsAre("y", "parts.0", "parts.1", "parts.2"));
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.shape, (SymShape{kBatch, 6}));
  EXPECT_EQ(flat->values[flat->outputs[3].second].type.shape, (SymShape{kBatch, 3}));
  EXPECT_EQ(flat->modules[0].structure, OutputStructure::kTuple);
}

TEST(StructureTest, OrderIsThatOfMakingNotOfNames) {
  const std::vector<int64_t> sizes(12, 1);
  ModelDef model = Model({.type_name = "Net",
                          .inputs = {},
                          .nodes = {CallFunction("h", "split", {"x"}, {{"sizes", sizes}, {"dim", int64_t{1}}})},
                          .outputs = {{"", "h"}},
                          .states = {}});
  model.inputs[0].shape[1] = Dim(12);
  const absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(OutputNames(*flat)[2], "2");
  EXPECT_EQ(OutputNames(*flat)[11], "11");
}

// total = xs.0 + xs.1; rest = xs.1
CompositeConfig Pair() {
  return {.type_name = "Pair",
          .inputs = {{"xs.0"}, {"xs.1"}, {"bias", true}},
          .nodes = {CallFunction("total", "add", {"xs.0", "xs.1"})},
          .outputs = {{"total", "total"}, {"rest", "xs.1"}},
          .structure = OutputStructure::kMap,
          .states = {}};
}

TEST(StructureTest, ListsAndMapsGoThroughChildren) {
  GraphNode call = CallChild("p", "pair", {});
  call.arguments = {{"xs", "h"}};
  CompositeConfig graph{
      .type_name = "Net",
      .inputs = {},
      .nodes = {CallFunction("h", "split", {"x"}, {{"sizes", std::vector<int64_t>{3, 3}}, {"dim", int64_t{1}}}), call},
      .outputs = {{"sum", "p.total"}, {"all", "p"}},
      .structure = OutputStructure::kMap,
      .states = {}};
  ModelDef model = Model(graph, {Composite("pair", Pair())});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_THAT(OutputNames(*flat), ElementsAre("sum", "all.total", "all.rest"));
  EXPECT_THAT(flat->modules[1].output_names, ElementsAre("total", "rest"));
  EXPECT_EQ(flat->modules[1].structure, OutputStructure::kMap);
  EXPECT_EQ(Enter(*flat, "pair")->positional, 0);
  EXPECT_EQ(Enter(*flat, "pair")->inputs[2], -1);
  // By position: both values of the list.
  std::get<CompositeConfig>(model.root.config).nodes[1].arguments = {{"", "h"}, {"", "x"}};
  flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(Enter(*flat, "pair")->positional, 3);

  std::get<CompositeConfig>(model.root.config).nodes[1].arguments = {{"xs", "x"}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("argument 'xs' of 'pair' takes a list or map; 'x' is one value"));
  std::get<CompositeConfig>(model.root.config).nodes[1].arguments = {{"xs.0", "x"}, {"xs.1", "h"}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("argument 'xs.1' of 'pair' takes one value; 'h' holds 2"));
  std::get<CompositeConfig>(model.root.config).nodes[1].arguments = {{"xs", "h"}, {"xs.0", "x"}};
  EXPECT_THAT(ErrorOf(model), HasSubstr("argument 'xs.0' of 'pair' is given twice"));
}

TEST(StructureTest, OutputsMayBeNamedByTheNode) {
  GraphNode top = CallFunction("", "topk", {"x"}, {{"k", int64_t{2}}});
  top.outputs = {"best", "where"};
  const ModelDef model =
      Model({.type_name = "Net", .inputs = {}, .nodes = {top}, .outputs = {{"", "where"}}, .states = {}});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_THAT(OutputNames(*flat), ElementsAre("output"));
  EXPECT_EQ(flat->values[flat->outputs[0].second].type, (TensorType{DType::kI64, {kBatch, 2}}));
}

TEST(StructureTest, NamesThatHideEachOtherAreRefused) {
  GraphNode single = CallFunction("h.1", "relu", {"x"});
  const ModelDef model = Model({.type_name = "Net",
                                .inputs = {},
                                .nodes = {CallFunction("h", "relu", {"x"}), single},
                                .outputs = {{"y", "h"}},
                                .states = {}});
  EXPECT_THAT(ErrorOf(model), HasSubstr("two values have the name 'h'"));
}

// y = sum(x, dims = along, keepdim = keep) unless `keep` is left out.
CompositeConfig Total() {
  GraphNode sum = CallFunction("y", "sum", {"x"}, {{"dims", int64_t{0}}});
  sum.attribute_inputs = {{"dims", "along"}, {"keepdim", "keep"}};
  return {.type_name = "Total",
          .inputs = {{"x"}, {"along", true}, {"keep", true}},
          .nodes = {sum},
          .outputs = {{"y", "y"}},
          .states = {}};
}

TEST(LiteralTest, LiteralsPassUntouchedToAttributes) {
  CompositeConfig middle{.type_name = "Middle",
                         .inputs = {{"x"}, {"axis"}},
                         .nodes = {CallChild("y", "total", {"x", "axis"})},
                         .outputs = {{"y", "y"}},
                         .states = {}};
  Module inner = Composite("middle", middle);
  inner.children = {Composite("total", Total())};
  GraphNode call = CallChild("y", "middle", {"x"});
  call.arguments.push_back({.name = "axis", .value = "", .literal = Attribute(int64_t{1})});
  ModelDef model =
      Model({.type_name = "Net", .inputs = {}, .nodes = {call}, .outputs = {{"y", "y"}}, .states = {}}, {inner});
  absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.shape, (SymShape{kBatch}));
  const FlatNode& enter = *Enter(*flat, "middle.total");
  EXPECT_THAT(enter.inputs, ElementsAre(::testing::Ge(0), -1, -1));
  EXPECT_EQ(enter.literals, (std::map<int, Attribute>{{1, Attribute(int64_t{1})}}));

  // Left out, the node's own attribute stands.
  std::get<CompositeConfig>(model.root.children[0].config).nodes[0].arguments.pop_back();
  flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.shape, (SymShape{6}));
}

TEST(LiteralTest, TensorsAndLiteralsAreNotMixedUp) {
  ModelDef model = Model({.type_name = "Net",
                          .inputs = {},
                          .nodes = {CallChild("y", "total", {"x", "x"})},
                          .outputs = {{"y", "y"}},
                          .states = {}},
                         {Composite("total", Total())});
  EXPECT_THAT(ErrorOf(model), HasSubstr("root.total: node 'y': attribute 'dims' of sum can't be a tensor ('along')"));
  GraphNode add = CallFunction("y", "add", {"x"});
  add.arguments.push_back({.name = "", .value = "", .literal = Attribute(2.0)});
  model = Model({.type_name = "Net", .inputs = {}, .nodes = {add}, .outputs = {{"y", "y"}}, .states = {}});
  EXPECT_THAT(ErrorOf(model), HasSubstr("argument 'other' of add must be a tensor, given 2"));
  GraphNode leaf = CallChild("y", "act", {});
  leaf.arguments = {{.name = "input", .value = "", .literal = Attribute(true)}};
  model = Model({.type_name = "Net", .inputs = {}, .nodes = {leaf}, .outputs = {{"y", "y"}}, .states = {}},
                {{.name = "act", .config = ActivationConfig{"relu", {}}, .children = {}, .param_init = {}}});
  EXPECT_THAT(ErrorOf(model), HasSubstr("root.act: input of Activation must be a tensor"));
}

TEST(StructureTest, WrappedKindsFlattenAlike) {
  ModelDef model = tp::testing::MlpSubmission(4, 6, 1).model;
  const size_t nodes = FlattenModel(model, DType::kF32)->nodes.size();
  model.root.children[0].wrapped = true;
  const absl::StatusOr<FlatModel> flat = FlattenModel(model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->nodes.size(), nodes);
  EXPECT_EQ(flat->modules[1].type_name, "Module(Linear)");
  EXPECT_EQ(flat->modules[1].kind, "Linear");
  model.root.wrapped = true;
  EXPECT_THAT(ErrorOf(model), HasSubstr("only leaf kinds exist as Module(K)"));
}

}  // namespace
}  // namespace tp
