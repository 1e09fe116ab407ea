#include "common/checkpoint/llama_model.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tp {
namespace {

Module MakeModule(const std::string& name, ModuleConfig config, std::vector<Module> children = {}) {
  Module module;
  module.name = name;
  module.config = std::move(config);
  module.children = std::move(children);
  return module;
}

Module Linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  LinearConfig linear;
  linear.in_features = in;
  linear.out_features = out;
  linear.bias = bias;
  return MakeModule(name, linear);
}

Module Norm(const std::string& name, const LlamaConfig& config) {
  return MakeModule(name, RMSNormConfig{config.hidden_size, config.norm_eps});
}

GraphNode CallChild(const std::string& name, const std::string& child, const std::string& argument) {
  GraphNode node;
  node.name = name;
  node.child = child;
  node.arguments = {{"", argument}};
  return node;
}

GraphNode CallFunction(const std::string& name, const std::string& function, const std::vector<std::string>& arguments,
                       Attributes attributes = {}) {
  GraphNode node;
  node.name = name;
  node.function = function;
  for (const std::string& argument : arguments) node.arguments.push_back({"", argument});
  node.attributes = std::move(attributes);
  return node;
}

// A graph of one input and one output.
CompositeConfig Graph(const std::string& type_name, const std::string& input, std::vector<GraphNode> nodes,
                      const std::string& output, const std::string& output_value) {
  CompositeConfig graph;
  graph.type_name = type_name;
  graph.inputs = {{input}};
  graph.nodes = std::move(nodes);
  graph.outputs = {{output, output_value}};
  return graph;
}

GraphNode Reshape(const std::string& name, const std::string& argument, std::vector<Dim> tail) {
  SymShape shape = {Dim::Symbol("batch"), Dim::Symbol("time")};
  shape.insert(shape.end(), tail.begin(), tail.end());
  return CallFunction(name, "reshape", {argument}, {{"shape", shape}});
}

Module Attention(const LlamaConfig& config) {
  const int64_t width = config.heads * config.head_dim, kv_width = config.kv_heads * config.head_dim;
  const Attributes theta = {{"theta", config.rope_theta}};
  std::vector<GraphNode> nodes = {
      CallChild("q", "q_proj", "hidden"),
      CallChild("k", "k_proj", "hidden"),
      CallChild("v", "v_proj", "hidden"),
      Reshape("q_heads", "q", {config.heads, config.head_dim}),
      Reshape("k_heads", "k", {config.kv_heads, config.head_dim}),
      Reshape("v_heads", "v", {config.kv_heads, config.head_dim}),
      CallFunction("q_rotated", "rotary", {"q_heads"}, theta),
      CallFunction("k_rotated", "rotary", {"k_heads"}, theta),
      CallFunction("attended", "attention", {"q_rotated", "k_rotated", "v_heads"}, {{"causal", true}}),
      Reshape("joined", "attended", {width}),
      CallChild("out", "o_proj", "joined"),
  };
  return MakeModule("self_attn", Graph("Attention", "hidden", std::move(nodes), "output", "out"),
                    {Linear("q_proj", config.hidden_size, width, config.attention_bias),
                     Linear("k_proj", config.hidden_size, kv_width, config.attention_bias),
                     Linear("v_proj", config.hidden_size, kv_width, config.attention_bias),
                     Linear("o_proj", width, config.hidden_size, config.attention_bias)});
}

Module Mlp(const LlamaConfig& config) {
  std::vector<GraphNode> nodes = {
      CallChild("gate", "gate_proj", "hidden"),
      CallChild("up", "up_proj", "hidden"),
      CallFunction("activated", config.activation, {"gate"}),
      CallFunction("product", "mul", {"activated", "up"}),
      CallChild("down", "down_proj", "product"),
  };
  return MakeModule("mlp", Graph("GatedMLP", "hidden", std::move(nodes), "output", "down"),
                    {Linear("gate_proj", config.hidden_size, config.intermediate_size, config.mlp_bias),
                     Linear("up_proj", config.hidden_size, config.intermediate_size, config.mlp_bias),
                     Linear("down_proj", config.intermediate_size, config.hidden_size, config.mlp_bias)});
}

Module DecoderLayer(const LlamaConfig& config, int64_t index) {
  std::vector<GraphNode> nodes = {
      CallChild("attention_input", "input_layernorm", "hidden"),
      CallChild("attention_output", "self_attn", "attention_input"),
      CallFunction("attention_sum", "add", {"hidden", "attention_output"}),
      CallChild("mlp_input", "post_attention_layernorm", "attention_sum"),
      CallChild("mlp_output", "mlp", "mlp_input"),
      CallFunction("mlp_sum", "add", {"attention_sum", "mlp_output"}),
  };
  return MakeModule(
      absl::StrCat(index), Graph("DecoderLayer", "hidden", std::move(nodes), "output", "mlp_sum"),
      {Norm("input_layernorm", config), Attention(config), Norm("post_attention_layernorm", config), Mlp(config)});
}

Module Decoder(const LlamaConfig& config) {
  std::vector<GraphNode> nodes;
  Module layers = MakeModule("layers", ModuleListConfig{});
  nodes.push_back(CallChild("embedded", "embed_tokens", "ids"));
  std::string hidden = "embedded";
  for (int64_t i = 0; i < config.layers; ++i) {
    layers.children.push_back(DecoderLayer(config, i));
    std::string next = absl::StrCat("hidden_", i);
    nodes.push_back(CallChild(next, absl::StrCat("layers.", i), hidden));
    hidden = std::move(next);
  }
  nodes.push_back(CallChild("normed", "norm", hidden));
  std::vector<Module> children;
  children.push_back(MakeModule("embed_tokens", EmbeddingConfig{config.vocab_size, config.hidden_size}));
  children.push_back(std::move(layers));
  children.push_back(Norm("norm", config));
  return MakeModule("model", Graph("Decoder", "ids", std::move(nodes), "output", "normed"), std::move(children));
}

}  // namespace

ModelDef BuildLlamaModel(const LlamaConfig& config, const std::string& tokenizer) {
  LinearConfig head{config.hidden_size, config.vocab_size, /*bias=*/false, DType::kF32};
  std::vector<Module> children;
  children.push_back(Decoder(config));
  children.push_back(MakeModule("lm_head", head));
  std::vector<GraphNode> nodes = {CallChild("hidden", "model", "ids"), CallChild("scores", "lm_head", "hidden")};
  ModelDef model;
  model.root =
      MakeModule("", Graph("CausalLanguageModel", "ids", std::move(nodes), "logits", "scores"), std::move(children));
  model.inputs = {{"ids", DType::kI64, {Dim::Symbol("batch"), Dim::Symbol("time")}}};
  model.symbol_limits = {{"time", config.max_positions}};
  GenerationConfig& generation = model.generation.emplace();
  generation.ids_input = "ids";
  generation.logits_output = "logits";
  generation.vocab_size = config.vocab_size;
  generation.max_positions = config.max_positions;
  generation.bos_token_id = config.bos_token_id;
  generation.eos_token_ids = config.eos_token_ids;
  generation.tokenizer = tokenizer;
  return model;
}

std::map<std::string, Shape> LlamaStates(const LlamaConfig& config) {
  std::map<std::string, Shape> states;
  auto linear = [&](const std::string& path, int64_t in, int64_t out, bool bias) {
    states[path + ".weight"] = {out, in};
    if (bias) states[path + ".bias"] = {out};
  };
  const int64_t hidden = config.hidden_size, width = config.heads * config.head_dim;
  const int64_t kv_width = config.kv_heads * config.head_dim, inner = config.intermediate_size;
  states["model.embed_tokens.weight"] = {config.vocab_size, hidden};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    states[layer + "input_layernorm.weight"] = {hidden};
    states[layer + "post_attention_layernorm.weight"] = {hidden};
    linear(layer + "self_attn.q_proj", hidden, width, config.attention_bias);
    linear(layer + "self_attn.k_proj", hidden, kv_width, config.attention_bias);
    linear(layer + "self_attn.v_proj", hidden, kv_width, config.attention_bias);
    linear(layer + "self_attn.o_proj", width, hidden, config.attention_bias);
    linear(layer + "mlp.gate_proj", hidden, inner, config.mlp_bias);
    linear(layer + "mlp.up_proj", hidden, inner, config.mlp_bias);
    linear(layer + "mlp.down_proj", inner, hidden, config.mlp_bias);
  }
  states["model.norm.weight"] = {hidden};
  linear("lm_head", hidden, config.vocab_size, false);
  return states;
}

ParallelPlan StandardLlamaPlan(int degree) {
  ParallelPlan plan;
  plan.mesh = {{"tp", degree}};
  plan.entries.push_back({"model.embed_tokens", RowwiseParallel{}, false});
  for (const char* name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"}) {
    plan.entries.push_back({absl::StrCat("model.layers.*.", name), ColwiseParallel{}, false});
  }
  for (const char* name : {"self_attn.o_proj", "mlp.down_proj"}) {
    plan.entries.push_back({absl::StrCat("model.layers.*.", name), RowwiseParallel{}, false});
  }
  plan.entries.push_back({"lm_head", ColwiseParallel{}, false});
  return plan;
}

ParallelPlan SequenceLlamaPlan(int degree) {
  ParallelPlan plan = StandardLlamaPlan(degree);
  for (PlanEntry& entry : plan.entries) {
    if (auto* rowwise = std::get_if<RowwiseParallel>(&entry.style)) rowwise->output_layouts = Placement::Shard(1);
  }
  for (const char* name : {"model.layers.*.input_layernorm", "model.layers.*.post_attention_layernorm", "model.norm"}) {
    plan.entries.push_back({name, SequenceParallel{}, false});
  }
  PrepareModuleInput gathered;
  gathered.input_layouts = {Placement::Shard(1)};
  gathered.desired_input_layouts = {Placement::Replicate()};
  for (const char* name : {"model.layers.*.self_attn", "model.layers.*.mlp"}) {
    plan.entries.push_back({name, gathered, false});
  }
  return plan;
}

}  // namespace tp
