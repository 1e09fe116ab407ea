#include "common/model/kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/flatten.h"
#include "common/model/initializer.h"
#include "common/model/validate.h"

namespace tp {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

std::string ErrorOf(const std::string& kind, const Attributes& fields, bool has_children = false) {
  const absl::StatusOr<NamedConfig> config = ConfigOfKind(kind, fields, has_children);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(KindsTest, FieldsOfEachKindAreRead) {
  const Attributes sizes{{"in_features", int64_t{4}}, {"out_features", int64_t{8}}, {"bias", false}};
  const NamedConfig linear = *ConfigOfKind("Linear", sizes, false);
  EXPECT_FALSE(linear.wrapped);
  EXPECT_EQ(std::get<LinearConfig>(linear.config).out_features, 8);
  EXPECT_FALSE(std::get<LinearConfig>(linear.config).bias);
  const NamedConfig wrapped = *ConfigOfKind("Module(Linear)", sizes, false);
  EXPECT_TRUE(wrapped.wrapped);
  EXPECT_EQ(std::get<LinearConfig>(wrapped.config).in_features, 4);

  const Attributes conv_fields{{"in_channels", int64_t{4}},
                               {"out_channels", int64_t{6}},
                               {"kernel_size", int64_t{3}},
                               {"padding", Ints{1, 2}},
                               {"groups", int64_t{2}}};
  const ConvConfig conv = std::get<ConvConfig>(ConfigOfKind("Conv2d", conv_fields, false)->config);
  EXPECT_EQ(conv.spatial_dims, 2);
  EXPECT_EQ(conv.kernel_size, (Ints{3, 3}));
  EXPECT_EQ(conv.stride, (Ints{1, 1}));
  EXPECT_EQ(conv.padding, (Ints{1, 2}));
  EXPECT_EQ(conv.groups, 2);
  EXPECT_THAT(ErrorOf("Conv1d", conv_fields), HasSubstr("padding needs one number, given 2"));

  const NamedConfig attention =
      *ConfigOfKind("Attention", {{"heads", int64_t{4}}, {"head_dim", int64_t{8}}, {"causal", false}}, false);
  EXPECT_EQ(std::get<AttentionConfig>(attention.config).kv_heads, 4);
  EXPECT_FALSE(std::get<AttentionConfig>(attention.config).causal);
  const NamedConfig norm = *ConfigOfKind("LayerNorm", {{"normalized_shape", int64_t{5}}}, false);
  EXPECT_EQ(std::get<LayerNormConfig>(norm.config).normalized_shape, (Shape{5}));
  const NamedConfig gelu = *ConfigOfKind("GELU", {{"approximate", std::string("tanh")}}, false);
  EXPECT_EQ(std::get<ActivationConfig>(gelu.config).function, "gelu");
  EXPECT_TRUE(std::holds_alternative<SequentialConfig>(ConfigOfKind("Sequential", {}, true)->config));
  EXPECT_EQ(std::get<DropoutConfig>(ConfigOfKind("Module(Dropout)", {{"p", 0.25}}, false)->config).p, 0.25);
}

TEST(KindsTest, UnknownKindsAndFieldsAreNamed) {
  EXPECT_EQ(ErrorOf("ParameterList", {}, true), "Unknown container kind: ParameterList");
  EXPECT_THAT(ErrorOf("Linaer", {}), HasSubstr("there is no kind 'Linaer'; nearest: Linear"));
  EXPECT_THAT(ErrorOf("Module(Linaer)", {}), HasSubstr("nearest: Linear"));
  EXPECT_EQ(ErrorOf("Module(Sequential)", {}, true), "Unknown container kind: Module(Sequential)");
  EXPECT_THAT(ErrorOf("Linear", {{"in_features", int64_t{1}}}), HasSubstr("Linear needs attribute 'out_features'"));
  EXPECT_THAT(ErrorOf("Dropout", {{"q", 0.5}}), HasSubstr("Dropout has no attribute 'q'; nearest: p"));
}

TEST(KindsTest, WrappedKindsDifferInNameOnly) {
  Module module{.name = "fc",
                .config = LinearConfig{.in_features = 3, .out_features = 2, .output_dtype = {}},
                .children = {},
                .param_init = {}};
  EXPECT_EQ(TypeNameOf(module), "Linear");
  module.wrapped = true;
  EXPECT_EQ(TypeNameOf(module), "Module(Linear)");
  EXPECT_EQ(KindOf(module), "Linear");
  module.config = ConvConfig{.spatial_dims = 1, .kernel_size = {}, .stride = {}, .padding = {}, .dilation = {}};
  EXPECT_EQ(TypeNameOf(module), "Module(Conv1d)");
}

std::vector<FlatState> States(ModuleConfig config) {
  const Module module{.name = "m", .config = std::move(config), .children = {}, .param_init = {}};
  absl::StatusOr<std::vector<FlatState>> states = StatesOf(module, "m", DType::kBF16);
  EXPECT_TRUE(states.ok()) << states.status();
  return *states;
}

TEST(KindsTest, StatesAndDefaultInitializersOfNewKinds) {
  const std::vector<FlatState> conv = States(ConvConfig{.spatial_dims = 2,
                                                        .in_channels = 4,
                                                        .out_channels = 6,
                                                        .kernel_size = {3, 2},
                                                        .stride = {},
                                                        .padding = {},
                                                        .dilation = {},
                                                        .groups = 2});
  ASSERT_EQ(conv.size(), 2u);
  EXPECT_EQ(conv[0].shape, (Shape{6, 2, 3, 2}));
  EXPECT_EQ(conv[1].shape, (Shape{6}));
  // fan in = 4 / 2 * 3 * 2.
  EXPECT_EQ(conv[0].initializer.kind, Initializer::Kind::kUniform);
  EXPECT_DOUBLE_EQ(conv[0].initializer.b, 1 / std::sqrt(12.0));
  EXPECT_DOUBLE_EQ(conv[1].initializer.a, -1 / std::sqrt(12.0));
  const std::vector<FlatState> norm = States(LayerNormConfig{.normalized_shape = {3, 4}});
  ASSERT_EQ(norm.size(), 2u);
  EXPECT_EQ(norm[1].shape, (Shape{3, 4}));
  EXPECT_EQ(norm[0].initializer.kind, Initializer::Kind::kOnes);
  EXPECT_EQ(norm[1].initializer.kind, Initializer::Kind::kZeros);
  EXPECT_TRUE(States(DropoutConfig{}).empty());
  EXPECT_TRUE(States(AttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 8}).empty());
}

std::string StateError(ModuleConfig config) {
  const Module module{.name = "m", .config = std::move(config), .children = {}, .param_init = {}};
  return std::string(StatesOf(module, "m", DType::kF32).status().message());
}

TEST(KindsTest, AllWrongAttributesAreTold) {
  for (const std::string kind : {"Linear", "Module(Linear)"}) {
    EXPECT_EQ(
        ConfigOfKind(kind, {{"in_featurs", int64_t{4}}, {"out_features", std::string("x")}}, false).status().message(),
        "Linear has no attribute 'in_featurs'; nearest: in_features, out_features or bias; Linear needs "
        "attribute 'in_features'; attribute 'out_features' of Linear is an integer, given a text \"x\"");
  }
}

TEST(KindsTest, BadConfigurationsNameTheField) {
  EXPECT_THAT(StateError(AttentionConfig{.heads = 4, .kv_heads = 3, .head_dim = 8}),
              HasSubstr("root.m: heads (4) must be a multiple of kv_heads (3)"));
  EXPECT_THAT(StateError(DropoutConfig{.p = 1.5}), HasSubstr("p is 1.5"));
  EXPECT_THAT(StateError(LayerNormConfig{.normalized_shape = {}}), HasSubstr("normalized_shape must not be empty"));
  EXPECT_THAT(StateError(ConvConfig{.spatial_dims = 1,
                                    .in_channels = 4,
                                    .out_channels = 6,
                                    .kernel_size = {3},
                                    .stride = {},
                                    .padding = {},
                                    .dilation = {},
                                    .groups = 4}),
              HasSubstr("groups (4) must divide"));
  EXPECT_THAT(StateError(ConvConfig{.spatial_dims = 2,
                                    .in_channels = 4,
                                    .out_channels = 6,
                                    .kernel_size = {},
                                    .stride = {},
                                    .padding = {},
                                    .dilation = {}}),
              HasSubstr("kernel_size"));
}

TEST(KindsTest, IntegerAndBoolStatesKeepTheirTypes) {
  CompositeConfig config{
      .type_name = "Net",
      .inputs = {},
      .nodes = {},
      .outputs = {},
      .states = {{.name = "ids", .shape = {3}, .buffer = true, .dtype = DType::kI64},
                 {.name = "mask", .shape = {3}, .buffer = true, .persistent = false, .dtype = DType::kBool},
                 {.name = "w", .shape = {3}, .dtype = {}}}};
  const std::vector<FlatState> states = States(config);
  EXPECT_EQ(states[0].dtype, DType::kI64);
  EXPECT_EQ(states[1].dtype, DType::kBool);
  EXPECT_FALSE(states[1].persistent);
  EXPECT_EQ(states[2].dtype, DType::kBF16);
  EXPECT_FALSE(states[0].has_initializer);
}

}  // namespace
}  // namespace tp
