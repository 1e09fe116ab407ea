#include "common/checkpoint/hugging_face.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/checkpoint/safetensors.h"
#include "common/model/flatten.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kDemo[] = TP_SOURCE_DIR "/deploy/demo/kjv";

// A checkpoint of two layers: hidden 8, 4 query heads and 2 key-value heads of 2, inner 6, vocabulary 11.
class HuggingFace : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + std::to_string(getpid()) + "_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(folder_.begin() + ::testing::TempDir().size(), folder_.end(), '/', '_');  // parametrised tests
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    config_ = {{"architectures", "[\"LlamaForCausalLM\"]"},
               {"vocab_size", "11"},
               {"hidden_size", "8"},
               {"intermediate_size", "6"},
               {"num_hidden_layers", "2"},
               {"num_attention_heads", "4"},
               {"num_key_value_heads", "2"},
               {"head_dim", "2"},
               {"max_position_embeddings", "32"}};
    Add("model.embed_tokens.weight", {11, 8});
    for (std::string layer : {"model.layers.0.", "model.layers.1."}) {
      Add(layer + "input_layernorm.weight", {8});
      Add(layer + "post_attention_layernorm.weight", {8});
      Add(layer + "self_attn.q_proj.weight", {8, 8});
      Add(layer + "self_attn.k_proj.weight", {4, 8});
      Add(layer + "self_attn.v_proj.weight", {4, 8});
      Add(layer + "self_attn.o_proj.weight", {8, 8});
      Add(layer + "mlp.gate_proj.weight", {6, 8});
      Add(layer + "mlp.up_proj.weight", {6, 8});
      Add(layer + "mlp.down_proj.weight", {8, 6});
    }
    Add("model.norm.weight", {8});
    Add("lm_head.weight", {11, 8});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Add(const std::string& name, Shape shape) {
    tensors_[name] = HostTensor{DType::kBF16, shape, std::string(2 * ElementCount(shape), '\0')};
  }
  void WriteText(const std::string& name, const std::string& text) { std::ofstream(folder_ + "/" + name) << text; }
  void WriteConfig() {
    std::string text;
    for (const auto& [field, value] : config_) text += (text.empty() ? "{\"" : ",\"") + field + "\":" + value;
    WriteText("config.json", text + "}");
  }
  absl::StatusOr<Submission> Import(const ImportOptions& options = {}) { return ImportHuggingFace(folder_, options); }
  absl::StatusOr<Submission> WriteAndImport() {
    WriteConfig();
    absl::Status status = WriteSafetensors(folder_ + "/model.safetensors", tensors_);
    if (!status.ok()) return status;
    return Import();
  }
  // The import must fail with `code` and all of `parts` in its text.
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& parts) {
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  std::string folder_;
  std::map<std::string, std::string> config_;
  std::map<std::string, HostTensor> tensors_;
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnbuilt = absl::StatusCode::kUnimplemented;
constexpr auto kNotFound = absl::StatusCode::kNotFound;

TEST_F(HuggingFace, DemoBecomesAnOrdinaryModel) {
  ImportOptions options;
  options.degree = 2;
  absl::StatusOr<Submission> submission = ImportHuggingFace(kDemo, options);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->name, "kjv");
  EXPECT_EQ(submission->compute_dtype, DType::kF32);
  const GenerationConfig& generation = *submission->model.generation;
  EXPECT_EQ(generation.vocab_size, 257);
  EXPECT_EQ(generation.max_positions, 512);
  EXPECT_EQ(generation.bos_token_id, 256);
  EXPECT_THAT(generation.eos_token_ids, ElementsAre(10));
  EXPECT_EQ(generation.tokenizer, "bytes");
  EXPECT_EQ(submission->model.symbol_limits.at("time"), 512);
  EXPECT_EQ(submission->plan.mesh, (std::vector<MeshAxis>{{"tp", 2}}));

  absl::StatusOr<FlatModel> flat = FlattenModel(submission->model, submission->compute_dtype);
  ASSERT_TRUE(flat.ok()) << flat.status();
  // Every state of the model is exactly one tensor of the file, under its own name and with its shape.
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(std::string(kDemo) + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(flat->states.size(), 39u);
  EXPECT_EQ(file->header().tensors.size(), 39u);
  for (const FlatState& state : flat->states) {
    ASSERT_EQ(file->header().tensors.count(state.path), 1u) << state.path;
    EXPECT_EQ(file->header().tensors.at(state.path).shape, state.shape) << state.path;
    const WeightSource& source = submission->weights.at(state.path);
    EXPECT_EQ(source.kind, WeightSource::Kind::kFile);
    EXPECT_EQ(source.tensor, state.path);
    EXPECT_EQ(source.path, std::string(kDemo) + "/model.safetensors");
  }
  ASSERT_EQ(flat->inputs.size(), 1u);
  EXPECT_EQ(flat->inputs[0].first, "ids");
  EXPECT_EQ(flat->values[flat->inputs[0].second].type.dtype, DType::kI64);
  ASSERT_EQ(flat->outputs.size(), 1u);
  EXPECT_EQ(flat->outputs[0].first, "logits");
  const TensorType& logits = flat->values[flat->outputs[0].second].type;
  EXPECT_EQ(logits.dtype, DType::kF32);
  EXPECT_EQ(SymShapeText(logits.shape), "[batch, time, 257]");
}

TEST_F(HuggingFace, LogitsStayF32InABF16Model) {
  ImportOptions options;
  options.compute_dtype = DType::kBF16;
  absl::StatusOr<Submission> submission = ImportHuggingFace(kDemo, options);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->compute_dtype, DType::kBF16);
  absl::StatusOr<FlatModel> flat = FlattenModel(submission->model, DType::kBF16);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->values[flat->outputs[0].second].type.dtype, DType::kF32);
}

TEST_F(HuggingFace, StandardPlanCutsEachKindAsItShould) {
  absl::StatusOr<Submission> submission = ImportHuggingFace(kDemo, {});
  ASSERT_TRUE(submission.ok()) << submission.status();
  std::map<std::string, std::string> styles;
  for (const PlanEntry& entry : submission->plan.entries) {
    styles[entry.pattern] = StyleName(entry.style);
    EXPECT_FALSE(entry.input_layouts_written);
  }
  const std::map<std::string, std::string> expected = {{"model.embed_tokens", "RowwiseParallel"},
                                                       {"model.layers.*.self_attn.q_proj", "ColwiseParallel"},
                                                       {"model.layers.*.self_attn.k_proj", "ColwiseParallel"},
                                                       {"model.layers.*.self_attn.v_proj", "ColwiseParallel"},
                                                       {"model.layers.*.self_attn.o_proj", "RowwiseParallel"},
                                                       {"model.layers.*.mlp.gate_proj", "ColwiseParallel"},
                                                       {"model.layers.*.mlp.up_proj", "ColwiseParallel"},
                                                       {"model.layers.*.mlp.down_proj", "RowwiseParallel"},
                                                       {"lm_head", "ColwiseParallel"}};
  EXPECT_EQ(styles, expected);
}

TEST_F(HuggingFace, SequenceParallelPlanCutsTheSequenceBetweenTheWeights) {
  ImportOptions options;
  options.sequence_parallel = true;
  absl::StatusOr<Submission> submission = ImportHuggingFace(kDemo, options);
  ASSERT_TRUE(submission.ok()) << submission.status();
  const std::string colwise =
      "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), use_local_output=True)";
  const std::string rowwise =
      "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Shard(dim=1),), use_local_output=True)";
  const std::string sequence = "SequenceParallel(sequence_dim=1, use_local_output=False)";
  const std::string gathered =
      "PrepareModuleInput(input_layouts=(Shard(dim=1),), desired_input_layouts=(Replicate(),), "
      "input_kwarg_layouts={}, desired_input_kwarg_layouts={}, use_local_output=False)";
  std::map<std::string, std::string> styles;
  for (const PlanEntry& entry : submission->plan.entries) styles[entry.pattern] = StyleText(entry.style);
  const std::map<std::string, std::string> expected = {{"model.embed_tokens", rowwise},
                                                       {"model.layers.*.input_layernorm", sequence},
                                                       {"model.layers.*.self_attn", gathered},
                                                       {"model.layers.*.self_attn.q_proj", colwise},
                                                       {"model.layers.*.self_attn.k_proj", colwise},
                                                       {"model.layers.*.self_attn.v_proj", colwise},
                                                       {"model.layers.*.self_attn.o_proj", rowwise},
                                                       {"model.layers.*.post_attention_layernorm", sequence},
                                                       {"model.layers.*.mlp", gathered},
                                                       {"model.layers.*.mlp.gate_proj", colwise},
                                                       {"model.layers.*.mlp.up_proj", colwise},
                                                       {"model.layers.*.mlp.down_proj", rowwise},
                                                       {"model.norm", sequence},
                                                       {"lm_head", colwise}};
  EXPECT_EQ(styles, expected);
}

TEST_F(HuggingFace, RelativeFoldersGiveAbsolutePaths) {
  WriteConfig();
  ASSERT_TRUE(WriteSafetensors(folder_ + "/model.safetensors", tensors_).ok());
  const std::string relative = std::filesystem::relative(folder_).string() + "/";
  absl::StatusOr<Submission> submission = ImportHuggingFace(relative, {});
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->weights.at("lm_head.weight").path, folder_ + "/model.safetensors");
  EXPECT_EQ(submission->model.generation->tokenizer, "");
  EXPECT_EQ(submission->model.generation->bos_token_id, std::nullopt);
}

TEST_F(HuggingFace, OptionalFieldsHaveHuggingFacesDefaults) {
  config_.erase("head_dim");
  config_.erase("num_key_value_heads");
  config_["rope_scaling"] = "null";
  config_["eos_token_id"] = "[2, 3]";
  for (std::string layer : {"model.layers.0.", "model.layers.1."}) {
    Add(layer + "self_attn.k_proj.weight", {8, 8});
    Add(layer + "self_attn.v_proj.weight", {8, 8});
    Add(layer + "self_attn.rotary_emb.inv_freq", {1});  // old files have it; it is computed
  }
  absl::StatusOr<Submission> submission = WriteAndImport();
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_THAT(submission->model.generation->eos_token_ids, ElementsAre(2, 3));
  EXPECT_TRUE(FlattenModel(submission->model, DType::kF32).ok());
}

TEST_F(HuggingFace, RopeThetaIsReadFromEitherPlace) {
  auto theta = [&]() -> double {
    absl::StatusOr<Submission> submission = WriteAndImport();
    if (!submission.ok()) return -1;
    absl::StatusOr<FlatModel> flat = FlattenModel(submission->model, DType::kF32);
    if (!flat.ok()) return -2;
    for (const FlatNode& node : flat->nodes) {
      if (node.function == "rotary") return std::get<double>(node.attributes.at("theta"));
    }
    return -3;
  };
  EXPECT_EQ(theta(), 10000.0);
  config_["rope_theta"] = "500000";
  EXPECT_EQ(theta(), 500000.0);
  config_.erase("rope_theta");
  config_["rope_parameters"] = R"({"rope_type": "default", "rope_theta": 1234.5})";
  EXPECT_EQ(theta(), 1234.5);
}

TEST_F(HuggingFace, BiasesAreTakenWhereConfigSaysSo) {
  config_["attention_bias"] = "true";
  config_["mlp_bias"] = "true";
  for (std::string layer : {"model.layers.0.", "model.layers.1."}) {
    Add(layer + "self_attn.q_proj.bias", {8});
    Add(layer + "self_attn.k_proj.bias", {4});
    Add(layer + "self_attn.v_proj.bias", {4});
    Add(layer + "self_attn.o_proj.bias", {8});
    Add(layer + "mlp.gate_proj.bias", {6});
    Add(layer + "mlp.up_proj.bias", {6});
    Add(layer + "mlp.down_proj.bias", {8});
  }
  absl::StatusOr<Submission> submission = WriteAndImport();
  ASSERT_TRUE(submission.ok()) << submission.status();
  absl::StatusOr<FlatModel> flat = FlattenModel(submission->model, DType::kF32);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->states.size(), tensors_.size());
  // Without the flags the same files would lose their biases: refused.
  config_["attention_bias"] = "false";
  ExpectRefused(WriteAndImport().status(), kInvalid, {"model.layers.0.self_attn.k_proj.bias", "model.safetensors"});
}

TEST_F(HuggingFace, TiedHeadIsAnAliasAndNeedsNoTensor) {
  config_["tie_word_embeddings"] = "true";
  tensors_.erase("lm_head.weight");
  absl::StatusOr<Submission> submission = WriteAndImport();
  ASSERT_TRUE(submission.ok()) << submission.status();
  const WeightSource& head = submission->weights.at("lm_head.weight");
  EXPECT_EQ(head.kind, WeightSource::Kind::kAlias);
  EXPECT_EQ(head.path, "model.embed_tokens.weight");
  EXPECT_EQ(submission->weights.at("model.embed_tokens.weight").kind, WeightSource::Kind::kFile);
}

TEST_F(HuggingFace, ActivationsBecomeFunctions) {
  for (std::string name : {"silu", "gelu", "relu"}) {
    config_["hidden_act"] = "\"" + name + "\"";
    absl::StatusOr<Submission> submission = WriteAndImport();
    ASSERT_TRUE(submission.ok()) << submission.status();
    absl::StatusOr<FlatModel> flat = FlattenModel(submission->model, DType::kF32);
    ASSERT_TRUE(flat.ok()) << flat.status();
    int found = 0;
    for (const FlatNode& node : flat->nodes) found += node.function == name;
    EXPECT_EQ(found, 2) << name;
  }
}

TEST_F(HuggingFace, NamesFitAModelsName) {
  WriteConfig();
  ASSERT_TRUE(WriteSafetensors(folder_ + "/model.safetensors", tensors_).ok());
  const std::string odd = folder_ + "/_my model";
  std::filesystem::create_directories(odd);
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(folder_ + "/" + file, odd + "/" + file);
  }
  absl::StatusOr<Submission> submission = ImportHuggingFace(odd, {});
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->name, "model_my-model");
  ImportOptions options;
  options.name = "given";
  EXPECT_EQ(ImportHuggingFace(odd, options)->name, "given");
}

TEST_F(HuggingFace, MissingFoldersAndFilesAreNotFound) {
  ExpectRefused(ImportHuggingFace(folder_ + "/absent", {}).status(), kNotFound,
                {folder_ + "/absent", "does not exist"});
  ExpectRefused(Import().status(), kNotFound, {folder_, "config.json"});
  WriteConfig();
  ExpectRefused(Import().status(), kNotFound, {folder_, "model.safetensors", "model.safetensors.index.json"});
  ExpectRefused(ImportHuggingFace(folder_ + "/config.json", {}).status(), kInvalid, {"is not a folder"});
}

TEST_F(HuggingFace, MalformedJsonNamesTheFile) {
  for (std::string text : {"", "{", "{\"a\":1,}", "[1]", "{\"a\":1,\"a\":2}", "\xff"}) {
    WriteText("config.json", text);
    ExpectRefused(Import().status(), kInvalid, {folder_ + "/config.json"});
  }
}

TEST_F(HuggingFace, MissingFieldsAreNamed) {
  const std::map<std::string, std::string> whole = config_;
  for (std::string field : {"architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "max_position_embeddings"}) {
    config_ = whole;
    config_.erase(field);
    ExpectRefused(WriteAndImport().status(), kInvalid, {folder_ + "/config.json", field, "is missing"});
  }
}

struct BadField {
  std::string name;
  std::string field;
  std::string value;
  absl::StatusCode code;
  std::string message;
};
class HuggingFaceField : public HuggingFace, public ::testing::WithParamInterface<BadField> {};

TEST_P(HuggingFaceField, IsRefusedByName) {
  config_[GetParam().field] = GetParam().value;
  ExpectRefused(WriteAndImport().status(), GetParam().code,
                {folder_ + "/config.json", GetParam().field, GetParam().message});
}

INSTANTIATE_TEST_SUITE_P(
    Cases, HuggingFaceField,
    ::testing::Values(
        BadField{"Architecture", "architectures", "[\"GPT2LMHeadModel\"]", kUnbuilt,
                 "\"GPT2LMHeadModel\" is not built; known is LlamaForCausalLM"},
        BadField{"NoArchitecture", "architectures", "[]", kInvalid, "list of one name"},
        BadField{"ZeroVocabulary", "vocab_size", "0", kInvalid, "not 0"},
        BadField{"NegativeHidden", "hidden_size", "-8", kInvalid, "not -8"},
        BadField{"TextHidden", "hidden_size", "\"8\"", kInvalid, "whole number"},
        BadField{"FractionLayers", "num_hidden_layers", "2.5", kInvalid, "whole number"},
        BadField{"ManyLayers", "num_hidden_layers", "1000000000000", kInvalid, "from 1 to 10000"},
        BadField{"HugeInner", "intermediate_size", "9223372036854775807", kInvalid, "whole number"},
        BadField{"KeyValueHeads", "num_key_value_heads", "3", kInvalid, "3 does not divide num_attention_heads 4"},
        BadField{"OddHeadDim", "head_dim", "3", kInvalid, "must be even"},
        BadField{"NegativeEps", "rms_norm_eps", "-1e-5", kInvalid, "above 0"},
        BadField{"TextTheta", "rope_theta", "\"big\"", kInvalid, "above 0"},
        BadField{"ScaledRope", "rope_scaling", R"({"rope_type":"llama3","factor":8})", kUnbuilt,
                 "\"llama3\" is not built"},
        BadField{"OldScaledRope", "rope_scaling", R"({"type":"linear","factor":2})", kUnbuilt,
                 "\"linear\" is not built"},
        BadField{"RopeWithoutType", "rope_scaling", R"({"factor":2})", kInvalid, "no rope_type"},
        BadField{"Quantised", "quantization_config", R"({"quant_method":"awq"})", kUnbuilt, "quantised weights"},
        BadField{"Activation", "hidden_act", "\"tanh\"", kUnbuilt, "\"tanh\" is not built; known are silu, gelu, relu"},
        BadField{"TextFlag", "attention_bias", "\"yes\"", kInvalid, "true or false"},
        BadField{"BeginToken", "bos_token_id", "11", kInvalid, "from 0 to 10"},
        BadField{"EndToken", "eos_token_id", "[2, -1]", kInvalid, "from 0 to 10"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST_F(HuggingFace, TensorsMustBeThereWithTheConfigsShape) {
  HostTensor norm = tensors_.at("model.norm.weight");
  tensors_.erase("model.norm.weight");
  ExpectRefused(WriteAndImport().status(), kNotFound, {folder_, "\"model.norm.weight\""});
  Add("model.norm.weight", {9});
  ExpectRefused(WriteAndImport().status(), kInvalid, {"model.safetensors", "\"model.norm.weight\" is [9]", "[8]"});
  tensors_["model.norm.weight"] = HostTensor{DType::kI32, {8}, std::string(32, '\0')};
  ExpectRefused(WriteAndImport().status(), kInvalid, {"\"model.norm.weight\" is I32"});
  tensors_["model.norm.weight"] = norm;
  EXPECT_TRUE(WriteAndImport().ok());
}

TEST_F(HuggingFace, OptionsAreChecked) {
  WriteConfig();
  ASSERT_TRUE(WriteSafetensors(folder_ + "/model.safetensors", tensors_).ok());
  ImportOptions options;
  options.degree = 0;
  ExpectRefused(Import(options).status(), kInvalid, {"at least 1"});
  options.degree = 1;
  options.plan = "auto";  // found by the caller (auto_plan.h), not by the importer
  ExpectRefused(Import(options).status(), kInvalid, {"\"auto\""});
  options.plan = "fast";
  ExpectRefused(Import(options).status(), kInvalid, {"\"fast\""});
  options.plan = "standard";
  options.compute_dtype = DType::kF64;
  ExpectRefused(Import(options).status(), kInvalid, {"F64"});
}

}  // namespace
}  // namespace tp
