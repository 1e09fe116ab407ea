#include "tests/support/model_builders.h"

#include "absl/strings/str_cat.h"

namespace tp::testing {
namespace {

Module Linear(std::string name, int64_t in, int64_t out, bool bias) {
  return {.name = std::move(name),
          .config = LinearConfig{.in_features = in, .out_features = out, .bias = bias, .output_dtype = {}},
          .children = {},
          .param_init = {}};
}

Module Norm(std::string name, int64_t dim) {
  return {.name = std::move(name),
          .config = RMSNormConfig{.dim = dim, .eps = 1e-5},
          .children = {},
          .param_init = {{"weight", {Initializer::Kind::kUniform, 0.5, 1.5}}}};
}

Module Composite(std::string name, CompositeConfig config, std::vector<Module> children) {
  return {.name = std::move(name), .config = std::move(config), .children = std::move(children), .param_init = {}};
}

SymShape HeadsShape(int64_t heads, int64_t head_dim) {
  return {Dim::Symbol("batch"), Dim::Symbol("time"), Dim(heads), Dim(head_dim)};
}

Module AttentionModule(const DecoderSize& size) {
  const int64_t head_dim = size.hidden / size.heads;
  CompositeConfig config{
      .type_name = "Attention", .inputs = {{"x"}}, .nodes = {}, .outputs = {{"y", "y"}}, .states = {}};
  for (const char* part : {"q", "k", "v"}) {
    const std::string name = part;
    config.nodes.push_back(CallChild(name, name + "_proj", {"x"}));
    config.nodes.push_back(CallFunction(name + "_heads", "reshape", {name},
                                        {{"shape", HeadsShape(name == "q" ? size.heads : size.kv_heads, head_dim)}}));
    if (name == "v") continue;
    config.nodes.push_back(CallFunction(name + "_rotated", "rotary", {name + "_heads"}, {{"theta", 10000.0}}));
  }
  config.nodes.push_back(CallFunction("mixed", "attention", {"q_rotated", "k_rotated", "v_heads"}));
  config.nodes.push_back(CallFunction("flat", "reshape", {"mixed"},
                                      {{"shape", SymShape{Dim::Symbol("batch"), Dim::Symbol("time"), Dim(-1)}}}));
  config.nodes.push_back(CallChild("y", "o_proj", {"flat"}));
  return Composite("attn", config,
                   {Linear("q_proj", size.hidden, size.heads * head_dim, true),
                    Linear("k_proj", size.hidden, size.kv_heads * head_dim, true),
                    Linear("v_proj", size.hidden, size.kv_heads * head_dim, false),
                    Linear("o_proj", size.heads * head_dim, size.hidden, true)});
}

Module GatedMlp(const DecoderSize& size) {
  CompositeConfig config{
      .type_name = "GatedMlp",
      .inputs = {{"x"}},
      .nodes = {CallChild("gate", "w1", {"x"}), CallFunction("active", "silu", {"gate"}), CallChild("up", "w3", {"x"}),
                CallFunction("both", "mul", {"active", "up"}), CallChild("y", "w2", {"both"})},
      .outputs = {{"y", "y"}},
      .states = {}};
  return Composite(
      "mlp", config,
      {Linear("w1", size.hidden, size.intermediate, false), Linear("w2", size.intermediate, size.hidden, false),
       Linear("w3", size.hidden, size.intermediate, false)});
}

Module DecoderLayer(const std::string& name, const DecoderSize& size) {
  CompositeConfig config{
      .type_name = "DecoderLayer",
      .inputs = {{"x"}},
      .nodes = {CallChild("n1", "norm1", {"x"}), CallChild("a", "attn", {"n1"}), CallFunction("h", "add", {"x", "a"}),
                CallChild("n2", "norm2", {"h"}), CallChild("m", "mlp", {"n2"}), CallFunction("y", "add", {"h", "m"})},
      .outputs = {{"y", "y"}},
      .states = {}};
  return Composite(name, config,
                   {Norm("norm1", size.hidden), AttentionModule(size), Norm("norm2", size.hidden), GatedMlp(size)});
}

}  // namespace

GraphNode CallChild(std::string name, std::string child, std::vector<std::string> values) {
  GraphNode node;
  node.name = std::move(name);
  node.child = std::move(child);
  for (std::string& value : values) node.arguments.push_back({"", std::move(value)});
  return node;
}

GraphNode CallFunction(std::string name, std::string function, std::vector<std::string> values, Attributes attributes) {
  GraphNode node = CallChild(std::move(name), "", std::move(values));
  node.function = std::move(function);
  node.attributes = std::move(attributes);
  return node;
}

PlanEntry Colwise(std::string pattern) { return {std::move(pattern), ColwiseParallel{}, false}; }
PlanEntry Rowwise(std::string pattern) { return {std::move(pattern), RowwiseParallel{}, false}; }
PlanEntry RowwiseEmbedding(std::string pattern) {
  RowwiseParallel style;
  style.input_layouts = Placement::Replicate();
  return {std::move(pattern), style, true};
}
PlanEntry Styled(std::string pattern, Style style) { return {std::move(pattern), std::move(style), false}; }
PlanEntry PreparedInput(std::string pattern, Layout declared, Layout desired) {
  PrepareModuleInput style;
  style.input_layouts = {std::move(declared)};
  style.desired_input_layouts = {std::move(desired)};
  return Styled(std::move(pattern), std::move(style));
}
PlanEntry PreparedOutput(std::string pattern, Layout declared, Layout desired) {
  PrepareModuleOutput style;
  style.output_layouts = {std::move(declared)};
  style.desired_output_layouts = {std::move(desired)};
  return Styled(std::move(pattern), std::move(style));
}
std::vector<MeshAxis> Tp(int degree) { return {{"tp", degree}}; }

Submission MlpSubmission(int64_t width, int64_t hidden, int degree) {
  CompositeConfig config{
      .type_name = "Mlp",
      .inputs = {{"x"}},
      .nodes = {CallChild("h", "w1", {"x"}), CallFunction("r", "relu", {"h"}), CallChild("o", "w2", {"r"}),
                CallFunction("s", "add", {"x", "o"}), CallFunction("y", "softmax", {"s"}, {{"dim", int64_t{-1}}})},
      .outputs = {{"y", "y"}},
      .states = {}};
  Submission submission;
  submission.name = "mlp";
  submission.model.root = Composite("", config, {Linear("w1", width, hidden, true), Linear("w2", hidden, width, true)});
  submission.model.inputs = {{"x", DType::kF32, {Dim::Symbol("batch"), Dim(width)}}};
  submission.plan.mesh = Tp(degree);
  submission.plan.entries = {Colwise("w1"), Rowwise("w2")};
  return submission;
}

Submission TwoByTwoSubmission(int64_t features, int64_t hidden, int degree) {
  CompositeConfig config{
      .type_name = "TwoByTwo",
      .inputs = {{"a"}, {"b"}},
      .nodes = {CallChild("l", "left", {"a"}), CallFunction("active", "relu", {"l"}), CallChild("r", "right", {"b"}),
                CallFunction("total", "add", {"active", "r"}), CallFunction("gated", "mul", {"active", "r"}),
                CallChild("product", "out", {"gated"}),
                CallFunction("best", "argmax", {"total"}, {{"dim", int64_t{-1}}})},
      .outputs = {{"total", "total"}, {"product", "product"}, {"best", "best"}},
      .states = {}};
  Submission submission;
  submission.name = "two";
  submission.model.root = Composite("", config,
                                    {Linear("left", features, hidden, true), Linear("right", features, hidden, true),
                                     Linear("out", hidden, features, true)});
  submission.model.inputs = {{"a", DType::kF32, {Dim::Symbol("batch"), Dim(features)}},
                             {"b", DType::kF32, {Dim::Symbol("batch"), Dim(features)}}};
  submission.plan.mesh = Tp(degree);
  submission.plan.entries = {Colwise("left"), Colwise("right"), Rowwise("out")};
  return submission;
}

Submission DecoderSubmission(const DecoderSize& size, int degree) {
  CompositeConfig config{.type_name = "Decoder",
                         .inputs = {{"ids"}},
                         .nodes = {CallChild("h", "embed", {"ids"})},
                         .outputs = {{"logits", "logits"}},
                         .states = {}};
  Module layers{.name = "layers", .config = ModuleListConfig{}, .children = {}, .param_init = {}};
  std::string hidden = "h";
  for (int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = absl::StrCat("h", layer);
    config.nodes.push_back(CallChild(name, absl::StrCat("layers.", layer), {hidden}));
    layers.children.push_back(DecoderLayer(absl::StrCat(layer), size));
    hidden = name;
  }
  config.nodes.push_back(CallChild("n", "norm", {hidden}));
  config.nodes.push_back(CallChild("logits", "head", {"n"}));
  Module embed{.name = "embed",
               .config = EmbeddingConfig{.num_embeddings = size.vocabulary, .embedding_dim = size.hidden},
               .children = {},
               .param_init = {}};
  Module head = Linear("head", size.hidden, size.vocabulary, false);
  std::get<LinearConfig>(head.config).output_dtype = DType::kF32;
  Submission submission;
  submission.name = "decoder";
  submission.model.root = Composite("", config, {embed, layers, Norm("norm", size.hidden), head});
  submission.model.inputs = {{"ids", DType::kI64, {Dim::Symbol("batch"), Dim::Symbol("time")}}};
  submission.model.symbol_limits = {{"time", size.max_positions}};
  submission.model.generation = GenerationConfig{.ids_input = "ids",
                                                 .logits_output = "logits",
                                                 .vocab_size = size.vocabulary,
                                                 .max_positions = size.max_positions,
                                                 .bos_token_id = {},
                                                 .eos_token_ids = {},
                                                 .tokenizer = ""};
  submission.plan.mesh = Tp(degree);
  submission.plan.entries = {
      RowwiseEmbedding("embed"),       Colwise("layers.*.attn.q_proj"), Colwise("layers.*.attn.k_proj"),
      Colwise("layers.*.attn.v_proj"), Rowwise("layers.*.attn.o_proj"), Colwise("layers.*.mlp.w1"),
      Rowwise("layers.*.mlp.w2"),      Colwise("layers.*.mlp.w3"),      Colwise("head")};
  return submission;
}

Submission SequenceDecoderSubmission(const DecoderSize& size, int degree) {
  Submission submission = DecoderSubmission(size, degree);
  std::vector<PlanEntry>& entries = submission.plan.entries;
  for (PlanEntry& entry : entries) {
    if (auto* rowwise = std::get_if<RowwiseParallel>(&entry.style)) rowwise->output_layouts = Placement::Shard(1);
  }
  for (const char* norm : {"layers.*.norm1", "layers.*.norm2", "norm"}) {
    entries.push_back(Styled(norm, SequenceParallel{}));
  }
  for (const char* gathered : {"layers.*.attn", "layers.*.mlp"}) {
    entries.push_back(PreparedInput(gathered, Placement::Shard(1), Placement::Replicate()));
  }
  return submission;
}

}  // namespace tp::testing
