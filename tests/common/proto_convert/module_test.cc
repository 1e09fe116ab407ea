// Modules both ways: every kind and field, kinds by name, shardings, and what is refused with its field.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

v1::Module Parse(const std::string& text) {
  v1::Module proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return proto;
}

Module FromText(const std::string& text) {
  absl::StatusOr<Module> module = ModuleFromProto(Parse(text), "m");
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *module : Module{};
}

std::string ErrorOf(const std::string& text) {
  const absl::Status status = ModuleFromProto(Parse(text), "m").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

// Each is written as it comes back: nothing is lost.
class RoundTripTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RoundTripTest, KeepsEveryField) {
  const v1::Module proto = Parse(GetParam());
  absl::StatusOr<Module> module = ModuleFromProto(proto, "m");
  ASSERT_TRUE(module.ok()) << module.status();
  v1::Module back;
  ModuleToProto(*module, &back);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(proto, back)) << back.DebugString();
}

INSTANTIATE_TEST_SUITE_P(
    Modules, RoundTripTest,
    ::testing::Values(
        "name: 'n' layer_norm { normalized_shape: [3, 4] eps: 0.001 no_bias: true }",
        "layer_norm { normalized_shape: 4 eps: 0.001 no_affine: true }",
        "conv1d { in_channels: 4 out_channels: 6 kernel_size: 3 stride: 2 padding: 1 dilation: 2 groups: 2 no_bias: "
        "true }",
        "conv2d { in_channels: 4 out_channels: 6 kernel_size: [3, 2] stride: [1, 2] padding: [0, 1] dilation: [1, 1] "
        "groups: 1 }",
        "dropout { p: 0.25 }", "dropout { p: 0 }",
        "attention { heads: 8 kv_heads: 2 head_dim: 16 not_causal: true rope_theta: 5e5 scale: 0.5 no_cache: true }",
        "linear { in_features: 3 out_features: 2 } wrapped: true", "sequential {} children { name: '0' identity {} }",
        R"(composite {
             type_name: "Net"
             inputs { name: "xs.0" } inputs { name: "flag" optional: true }
             nodes { name: "h" function: "split" arguments { value: "xs.0" }
                     attributes { key: "sizes" value { integers { values: [1, 2] } } }
                     attribute_inputs { key: "dim" value: "flag" } outputs: ["a", "b"] }
             nodes { name: "y" child: "c" arguments { name: "k" literal { number: 0.5 } } }
             outputs { name: "0" value: "a" } outputs { name: "1" value: "y" }
             states { name: "ids" shape: 3 buffer: true not_persistent: true dtype: I64 }
             states { name: "w" shape: 3 frozen: true }
             structure: OUTPUT_STRUCTURE_LIST
           })",
        R"(linear { in_features: 3 out_features: 2 no_bias: true }
           sharding {
             state_shardings { key: "weight" value { axes { key: "tp" value { shard { dim: 0 } } } } }
             in_src_shardings { key: "input" value { axes { key: "dp" value { replicate {} } } } }
             in_dst_shardings { key: "input" value { axes { key: "tp" value { partial { op: OP_MAX } } } } }
             out_src_shardings { key: "output" value { axes { key: "tp" value { strided_shard { dim: 1 split_factor: 2 } } } } }
             out_dst_shardings { key: "output" value {} }
             local_map: true
           })"));

TEST(ModuleTest, DefaultsAreFilledIn) {
  const ConvConfig conv =
      std::get<ConvConfig>(FromText("conv2d { in_channels: 1 out_channels: 2 kernel_size: 5 }").config);
  EXPECT_EQ(conv.kernel_size, (std::vector<int64_t>{5, 5}));
  EXPECT_EQ(conv.stride, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(conv.padding, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(conv.groups, 1);
  EXPECT_TRUE(conv.bias);
  EXPECT_EQ(std::get<LayerNormConfig>(FromText("layer_norm { normalized_shape: 4 }").config).eps, 1e-5);
  EXPECT_EQ(std::get<DropoutConfig>(FromText("dropout {}").config).p, 0.5);
  const auto attention = std::get<AttentionConfig>(FromText("attention { heads: 4 head_dim: 8 }").config);
  EXPECT_EQ(attention.kv_heads, 4);
  EXPECT_TRUE(attention.causal && attention.cache);
}

TEST(ModuleTest, NamedKindsBecomeTheirConfigurations) {
  const Module linear = FromText(R"pb(
    named {
      kind: "Module(Linear)"
      config {
        key: "in_features"
        value { integer: 4 }
      }
      config {
        key: "out_features"
        value { integer: 8 }
      }
      config {
        key: "bias"
        value { flag: false }
      }
    })pb");
  EXPECT_TRUE(linear.wrapped);
  EXPECT_EQ(std::get<LinearConfig>(linear.config).in_features, 4);
  EXPECT_FALSE(std::get<LinearConfig>(linear.config).bias);
  const Module dict = FromText("named { kind: 'ModuleDict' } children { name: 'a' identity {} }");
  EXPECT_TRUE(std::holds_alternative<ModuleDictConfig>(dict.config));
  EXPECT_EQ(dict.children.size(), 1u);
}

TEST(ModuleTest, RefusalsNameTheField) {
  EXPECT_EQ(ErrorOf("named { kind: 'ParameterDict' } children { name: 'a' identity {} }"),
            "m.named: Unknown container kind: ParameterDict");
  EXPECT_THAT(ErrorOf("named { kind: 'Conv3d' }"),
              HasSubstr("m.named: there is no kind 'Conv3d'; nearest: Conv1d, Conv2d"));
  EXPECT_THAT(ErrorOf("named { kind: 'Linear' }"), HasSubstr("m.named: Linear needs attribute 'in_features'"));
  EXPECT_THAT(ErrorOf("conv1d { in_channels: 1 out_channels: 1 kernel_size: [3, 3] }"),
              HasSubstr("m.conv1d: kernel_size"));
  EXPECT_THAT(ErrorOf("conv1d { in_channels: 1 out_channels: 1 }"), HasSubstr("kernel_size"));
  EXPECT_THAT(ErrorOf("conv1d { in_channels: 0 out_channels: 1 kernel_size: 1 }"),
              HasSubstr("m.conv1d.in_channels: is 0"));
  EXPECT_THAT(ErrorOf("layer_norm {}"), HasSubstr("m.layer_norm.normalized_shape"));
  EXPECT_THAT(ErrorOf("layer_norm { normalized_shape: [2, 0] }"), HasSubstr("normalized_shape[1]: is 0"));
  EXPECT_THAT(ErrorOf("layer_norm { normalized_shape: 2 eps: -1 }"), HasSubstr("m.layer_norm.eps"));
  EXPECT_THAT(ErrorOf("dropout { p: 2 }"), HasSubstr("m.dropout.p: is 2"));
  EXPECT_THAT(ErrorOf("attention { heads: 4 }"), HasSubstr("m.attention.head_dim: is 0"));
  EXPECT_THAT(
      ErrorOf("composite { nodes { name: 'a' function: 'relu' arguments { value: 'x' literal { flag: true } } } }"),
      HasSubstr("m.composite.nodes[0].arguments[0]: value and literal exclude each other"));
  EXPECT_THAT(ErrorOf("identity {} sharding { state_shardings { key: 'w' value { axes { key: 'tp' value {} } } } }"),
              HasSubstr("m.sharding.state_shardings['w'].axes['tp']"));
}

}  // namespace
}  // namespace tp
