#include <gmock/gmock.h>

#include "common/proto_convert/model.h"
#include "common/proto_convert/submission_file.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One of everything, with the values that the tests expect.
constexpr char kText[] = R"pb(
  name: "m-1"
  model {
    root {
      composite {
        type_name: "Net"
        inputs { name: "x" }
        inputs { name: "mask" optional: true }
        nodes {
          name: "h"
          child: "fc"
          arguments { value: "x" }
        }
        nodes {
          name: "a"
          function: "reshape"
          arguments { name: "input" value: "h" }
          attributes {
            key: "shape"
            value { dims { values: "2*batch" values: "8" } }
          }
          outputs: "a0"
        }
        outputs { name: "y" value: "a" }
        states { name: "scale" shape: 4 buffer: true not_persistent: true dtype: F16 }
      }
      children {
        name: "fc"
        linear { in_features: 3 out_features: 8 no_bias: true output_dtype: F32 }
      }
      children {
        name: "emb"
        embedding { num_embeddings: 257 embedding_dim: 4 }
      }
      children {
        name: "norm"
        rms_norm { dim: 4 }
      }
      children {
        name: "act"
        activation {
          function: "gelu"
          attributes {
            key: "approximate"
            value { text: "tanh" }
          }
        }
      }
      children {
        name: "seq"
        sequential {}
        children {
          name: "0"
          identity {}
        }
      }
      children {
        name: "list"
        module_list {}
      }
      children {
        name: "dict"
        module_dict {}
      }
      param_init {
        key: "scale"
        value { arange { start: 2 } }
      }
    }
    inputs {
      name: "x"
      type { dtype: F32 shape: "batch" shape: "3" }
    }
    symbol_limits { key: "batch" value: 64 }
    generation {
      ids_input: "ids"
      logits_output: "logits"
      vocab_size: 257
      max_positions: 512
      bos_token_id: 256
      eos_token_ids: 256
      tokenizer: "bytes"
    }
  }
  plan {
    mesh { axes { name: "tp" size: 2 } }
    axis: "tp"
    entries {
      pattern: "fc"
      colwise_parallel {}
    }
    entries {
      pattern: "layers.*.o"
      rowwise_parallel {
        input_layouts { replicate {} }
        output_layouts { shard { dim: 1 } }
        use_local_output: false
      }
    }
    entries {
      pattern: "norm"
      sequence_parallel { sequence_dim: 2 }
    }
    allow_unmatched: true
    batch_axes: "dp"
  }
  weights {
    key: "fc.weight"
    value {
      slice {
        of { file { path: "w.safetensors" tensor: "t" } }
        dim: 1
        start: 2
        length: 3
      }
    }
  }
  weights {
    key: "emb.weight"
    value {
      concat {
        dim: 1
        parts { alias: "fc.weight" }
        parts {
          transpose {
            of { initializer { normal {} } }
            permutation: [ 1, 0 ]
          }
        }
      }
    }
  }
  weights_file: "/abs/all.safetensors"
  compute_dtype: BF16
  seed: 7
)pb";

Submission Parse(std::string_view bytes, SubmissionFormat format = SubmissionFormat::kText) {
  absl::StatusOr<Submission> submission = ParseSubmission(bytes, format);
  EXPECT_TRUE(submission.ok()) << submission.status();
  return submission.ok() ? *submission : Submission();
}

TEST(SubmissionConvert, ReadsEveryField) {
  Submission s = Parse(kText);
  EXPECT_EQ(s.name, "m-1");
  EXPECT_EQ(s.compute_dtype, DType::kBF16);
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.weights_file, "/abs/all.safetensors");

  const auto& root = std::get<CompositeConfig>(s.model.root.config);
  EXPECT_EQ(root.type_name, "Net");
  ASSERT_EQ(root.inputs.size(), 2u);
  EXPECT_FALSE(root.inputs[0].optional);
  EXPECT_TRUE(root.inputs[1].optional);
  ASSERT_EQ(root.nodes.size(), 2u);
  EXPECT_EQ(root.nodes[0].child, "fc");
  EXPECT_EQ(root.nodes[1].function, "reshape");
  EXPECT_EQ(root.nodes[1].arguments[0].name, "input");
  EXPECT_EQ(SymShapeText(std::get<SymShape>(root.nodes[1].attributes.at("shape"))), "[2*batch, 8]");
  EXPECT_THAT(root.nodes[1].outputs, ElementsAre("a0"));
  EXPECT_TRUE(root.states[0].buffer);
  EXPECT_FALSE(root.states[0].persistent);
  EXPECT_TRUE(root.states[0].requires_grad);
  EXPECT_EQ(root.states[0].dtype, DType::kF16);
  EXPECT_EQ(s.model.root.param_init.at("scale"), (Initializer{Initializer::Kind::kArange, 2, 1}));

  ASSERT_EQ(s.model.root.children.size(), 7u);
  const auto& linear = std::get<LinearConfig>(s.model.root.children[0].config);
  EXPECT_EQ(linear.in_features, 3);
  EXPECT_EQ(linear.out_features, 8);
  EXPECT_FALSE(linear.bias);
  EXPECT_EQ(linear.output_dtype, DType::kF32);
  EXPECT_EQ(std::get<EmbeddingConfig>(s.model.root.children[1].config).num_embeddings, 257);
  EXPECT_EQ(std::get<RMSNormConfig>(s.model.root.children[2].config).eps, 1e-6);
  EXPECT_EQ(
      std::get<std::string>(std::get<ActivationConfig>(s.model.root.children[3].config).attributes.at("approximate")),
      "tanh");
  EXPECT_TRUE(std::holds_alternative<SequentialConfig>(s.model.root.children[4].config));
  EXPECT_TRUE(std::holds_alternative<IdentityConfig>(s.model.root.children[4].children[0].config));

  EXPECT_EQ(s.model.symbol_limits.at("batch"), 64);
  EXPECT_EQ(s.model.generation->bos_token_id, 256);
  EXPECT_THAT(s.model.generation->eos_token_ids, ElementsAre(256));

  EXPECT_THAT(s.plan.mesh, ElementsAre(MeshAxis{"tp", 2}));
  const auto& colwise = std::get<ColwiseParallel>(s.plan.entries[0].style);
  EXPECT_EQ(colwise.input_layouts, Placement::Replicate());
  EXPECT_EQ(colwise.output_layouts, Placement::Shard(-1));
  EXPECT_TRUE(colwise.use_local_output);
  EXPECT_FALSE(s.plan.entries[0].input_layouts_written);
  const auto& rowwise = std::get<RowwiseParallel>(s.plan.entries[1].style);
  EXPECT_EQ(rowwise.input_layouts, Placement::Replicate());
  EXPECT_EQ(rowwise.output_layouts, Placement::Shard(1));
  EXPECT_FALSE(rowwise.use_local_output);
  EXPECT_TRUE(s.plan.entries[1].input_layouts_written);
  EXPECT_EQ(std::get<SequenceParallel>(s.plan.entries[2].style), SequenceParallel{.sequence_dim = 2});
  EXPECT_TRUE(s.plan.allow_unmatched);
  EXPECT_THAT(s.plan.batch_axes, ElementsAre("dp"));

  const WeightSource& slice = s.weights.at("fc.weight");
  EXPECT_EQ(slice.kind, WeightSource::Kind::kSlice);
  EXPECT_EQ(slice.dim, 1);
  EXPECT_EQ(slice.start, 2);
  EXPECT_EQ(slice.length, 3);
  EXPECT_EQ(slice.parts[0].path, "w.safetensors");
  const WeightSource& concat = s.weights.at("emb.weight");
  EXPECT_EQ(concat.parts[0].kind, WeightSource::Kind::kAlias);
  EXPECT_THAT(concat.parts[1].permutation, ElementsAre(1, 0));
  EXPECT_EQ(concat.parts[1].parts[0].initializer, (Initializer{Initializer::Kind::kNormal, 0, 1}));
}

TEST(SubmissionConvert, AllFormsHoldTheSame) {
  Submission s = Parse(kText);
  std::string binary = SerializeSubmission(s, SubmissionFormat::kBinary);
  EXPECT_EQ(binary, SerializeSubmission(s, SubmissionFormat::kBinary));
  for (SubmissionFormat format : {SubmissionFormat::kBinary, SubmissionFormat::kText, SubmissionFormat::kJson}) {
    Submission back = Parse(SerializeSubmission(s, format), format);
    EXPECT_EQ(SerializeSubmission(back, SubmissionFormat::kBinary), binary) << static_cast<int>(format);
  }
}

TEST(SubmissionConvert, WeightPathsAreThoseOfTheFilesFolder) {
  Submission s = Parse(kText);
  ResolveWeightPaths("/models/a", &s);
  EXPECT_EQ(s.weights_file, "/abs/all.safetensors");
  EXPECT_EQ(s.weights.at("fc.weight").parts[0].path, "/models/a/w.safetensors");
  EXPECT_EQ(s.weights.at("emb.weight").parts[0].path, "fc.weight");
}

struct BadSubmission {
  std::string name;
  SubmissionFormat format;
  std::string bytes;
  std::string error;
};

class SubmissionRefusal : public ::testing::TestWithParam<BadSubmission> {};

TEST_P(SubmissionRefusal, SaysWhere) {
  absl::StatusOr<Submission> submission = ParseSubmission(GetParam().bytes, GetParam().format);
  ASSERT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument) << submission.status();
  EXPECT_THAT(std::string(submission.status().message()), HasSubstr(GetParam().error));
}

std::string Root(const std::string& config) { return "model { root { " + config + " } }"; }

INSTANTIATE_TEST_SUITE_P(
    All, SubmissionRefusal,
    ::testing::Values(
        BadSubmission{"TextField", SubmissionFormat::kText, "name: \"a\"\nmodell { }", "line 2, column 8"},
        BadSubmission{"TextFieldName", SubmissionFormat::kText, "model { rot {} }", "rot"},
        BadSubmission{"JsonField", SubmissionFormat::kJson, R"({"model": {"rot": {}}})", "rot"},
        BadSubmission{"JsonSyntax", SubmissionFormat::kJson, R"({"model": )", ""},
        BadSubmission{"JsonEnum", SubmissionFormat::kJson, R"({"compute_dtype": "F33"})", "F33"},
        BadSubmission{"Binary", SubmissionFormat::kBinary, "\xff\xff\xff", "not a serialized"},
        // Field 100 (varint), at the top and within `model`.
        BadSubmission{"BinaryField", SubmissionFormat::kBinary, std::string("\xa0\x06\x01", 3),
                      "submission: unknown field number 100"},
        BadSubmission{"BinaryNested", SubmissionFormat::kBinary, std::string("\x12\x03\xa0\x06\x01", 5),
                      "model: unknown field number 100"},
        BadSubmission{"NoModel", SubmissionFormat::kText, "name: \"a\"", "model: is required"},
        BadSubmission{"NoRoot", SubmissionFormat::kText, "model {}", "model.root: is required"},
        BadSubmission{"NoConfig", SubmissionFormat::kText, Root("children { name: 'a' }"), "has no configuration"},
        BadSubmission{"Size", SubmissionFormat::kText, Root("sequential {} children { linear { in_features: 3 } }"),
                      "model.root.children[0].linear.out_features: is 0"},
        BadSubmission{"Overflow", SubmissionFormat::kText,
                      Root("linear { in_features: 4611686018427387904 out_features: 4 }"), "model.root.linear"},
        BadSubmission{"Node", SubmissionFormat::kText, Root("composite { nodes { name: 'h' } }"),
                      "model.root.composite.nodes[0]: node 'h' must name"},
        BadSubmission{"Init", SubmissionFormat::kText, Root("identity {} param_init { key: 'w' value {} }"),
                      "model.root.param_init['w']"},
        BadSubmission{"Style", SubmissionFormat::kText, Root("identity {}") + "plan { entries { pattern: 'a' } }",
                      "plan.entries[0]: entry 'a' has no style"},
        BadSubmission{"Axis", SubmissionFormat::kText,
                      Root("identity {}") + "plan { mesh { axes { name: 'tp' size: -1 } } }", "plan.mesh"},
        BadSubmission{"ComputeDtype", SubmissionFormat::kText, Root("identity {}") + "compute_dtype: I64",
                      "compute_dtype: is I64"},
        BadSubmission{"Source", SubmissionFormat::kText,
                      Root("identity {}") + "weights { key: 'w' value { slice { start: -1 "
                                            "of { alias: 'x' } } } }",
                      "weights['w'].slice"},
        BadSubmission{"Name", SubmissionFormat::kText, "name: \"a b\" " + Root("identity {}"),
                      "name: 'a b' is no name"}),
    [](const auto& info) { return info.param.name; });

TEST(SubmissionFormat, IsTheEndingOfThePath) {
  EXPECT_EQ(SubmissionFormatOf("a/plan.pb").value(), SubmissionFormat::kBinary);
  EXPECT_EQ(SubmissionFormatOf("plan.textproto").value(), SubmissionFormat::kText);
  EXPECT_EQ(SubmissionFormatOf("plan.json").value(), SubmissionFormat::kJson);
  EXPECT_EQ(SubmissionFormatOf("plan.yaml").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SubmissionFormat, SizeIsLimited) {
  std::string bytes(kMaxSubmissionBytes + 1, ' ');
  EXPECT_EQ(ParseSubmission(bytes, SubmissionFormat::kText).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(InitializerTest, EveryKindRoundTripsAndDefaultsAreFilledIn) {
  using Kind = Initializer::Kind;
  for (const Kind kind : {Kind::kZeros, Kind::kOnes, Kind::kConstant, Kind::kArange, Kind::kEye, Kind::kUniform,
                          Kind::kNormal, Kind::kTruncatedNormal, Kind::kKaimingUniform, Kind::kKaimingNormal,
                          Kind::kXavierUniform, Kind::kXavierNormal}) {
    Initializer initializer{kind, 0, 0};
    if (kind == Kind::kConstant) initializer.a = 2.5;
    if (kind == Kind::kArange || kind == Kind::kUniform || kind == Kind::kNormal || kind == Kind::kTruncatedNormal) {
      initializer.a = -1;
      initializer.b = 3;
    }
    v1::Initializer proto;
    InitializerToProto(initializer, &proto);
    const absl::StatusOr<Initializer> back = InitializerFromProto(proto, "f");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, initializer);
  }
  v1::Initializer proto;
  proto.mutable_truncated_normal();
  EXPECT_EQ(*InitializerFromProto(proto, "f"), (Initializer{Kind::kTruncatedNormal, 0, 1}));
  proto.mutable_truncated_normal()->set_std(-1);
  EXPECT_EQ(InitializerFromProto(proto, "f").status().code(), absl::StatusCode::kInvalidArgument);
}

// The library's own lines on stderr say less than the status, and come between a command's.
TEST(SubmissionFileTest, WhatIsWrongIsInTheStatusOnly) {
  ::testing::internal::CaptureStderr();
  const std::string bytes = "name: \"a\\377\"";
  EXPECT_EQ(ParseSubmission(bytes, SubmissionFormat::kText).status().message(),
            "a name or path in the submission is not UTF-8");
  const std::string field = std::string("\x0a\x01\xff", 3);  // name, of one byte
  EXPECT_EQ(ParseSubmission(field, SubmissionFormat::kBinary).status().message(),
            "not a serialized tp.v1.Submission, or one with a string that is not UTF-8");
  EXPECT_THAT(std::string(ParseSubmission("name: ]", SubmissionFormat::kText).status().message()),
              HasSubstr("line 1, column 7"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// What is wrong in different places of a message is told together.
TEST(SubmissionProblems, AllOfAMessageAtOnce) {
  const absl::StatusOr<Submission> parsed = ParseSubmission(R"pb(
                                                              model {
                                                                root {
                                                                  composite { nodes { name: "n" } }
                                                                  children {
                                                                    name: "a"
                                                                    linear { in_features: 0 out_features: -3 }
                                                                  }
                                                                  children {
                                                                    name: "b"
                                                                    linear { in_features: 1 out_features: 0 }
                                                                  }
                                                                }
                                                                generation { vocab_size: -5 max_positions: 0 }
                                                              }
                                                              plan {
                                                                mesh { axes { name: "tp" size: 0 } }
                                                                entries { pattern: "a" }
                                                                entries {
                                                                  pattern: "b"
                                                                  colwise_parallel { src_data_rank: -7 }
                                                                }
                                                              }
                                                              weights {
                                                                key: "a.weight"
                                                                value { file {} }
                                                              }
                                                              weights {
                                                                key: "b.weight"
                                                                value { file {} }
                                                              }
                                                            )pb",
                                                            SubmissionFormat::kText);
  ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string text(parsed.status().message());
  for (const char* part :
       {"model.root.children[0].linear.in_features: is 0", "model.root.children[0].linear.out_features: is -3",
        "model.root.children[1].linear.out_features: is 0", "model.generation.vocab_size: is -5",
        "model.generation.max_positions: is 0", "plan.mesh", "plan.entries[0]", "weights['a.weight']"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(part));
  }
}

}  // namespace
}  // namespace tp
