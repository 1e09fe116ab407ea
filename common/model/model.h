// The model definition: a tree of modules. A leaf carries a typed configuration and owns parameters; a composite's
// forward is a dataflow graph whose nodes call child modules or functions, with several inputs and outputs.
// Immutable values; ValidateModel (flatten.h) checks them. Example, y = relu(fc(x)):
//   Module root{.config = CompositeConfig{.inputs = {{"x"}},
//       .nodes = {{.name = "h", .child = "fc", .arguments = {{"", "x"}}},
//                 {.name = "y", .function = "relu", .arguments = {{"", "h"}}}},
//       .outputs = {{"y", "y"}}},
//     .children = {{.name = "fc", .config = LinearConfig{.in_features = 4, .out_features = 8}}}};
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/layout/placement.h"
#include "common/model/attribute.h"
#include "common/tensor/dim.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"

namespace tp {

// --- Initializers: how a state's first values are made (SEMANTICS 7; bounds and generator in initializer.h).
struct Initializer {
  enum class Kind {
    kZeros,
    kOnes,
    kConstant,
    kArange,
    kEye,
    kUniform,
    kNormal,
    kTruncatedNormal,
    kKaimingUniform,
    kKaimingNormal,
    kXavierUniform,
    kXavierNormal
  };
  Kind kind = Kind::kZeros;
  double a = 0;  // kConstant: the value; kArange: the first; kUniform: low; kNormal, kTruncatedNormal: mean
  double b = 0;  // kArange: the step; kUniform: high; kNormal, kTruncatedNormal: standard deviation
  bool operator==(const Initializer&) const = default;
};

// --- Where a state's values come from (Foundation 18). Executed by byte ranges.
struct WeightSource {
  enum class Kind { kFile, kSlice, kTranspose, kConcat, kInitializer, kAlias };
  Kind kind = Kind::kInitializer;
  std::string path;                 // kFile: a safetensors file; kAlias: path of another state
  std::string tensor;               // kFile: the tensor's name in it
  int dim = 0;                      // kSlice, kConcat
  int64_t start = 0, length = 0;    // kSlice
  std::vector<int> permutation;     // kTranspose
  std::vector<WeightSource> parts;  // kSlice, kTranspose: one; kConcat: all
  Initializer initializer;          // kInitializer
  bool operator==(const WeightSource&) const = default;
};

// --- Typed configurations of leaf kinds.
struct LinearConfig {
  int64_t in_features = 0, out_features = 0;
  bool bias = true;
  std::optional<DType> output_dtype;  // of the product; the compute dtype where absent
};
struct EmbeddingConfig {
  int64_t num_embeddings = 0, embedding_dim = 0;
};
struct RMSNormConfig {
  int64_t dim = 0;  // size of the last dim
  double eps = 1e-6;
};
struct LayerNormConfig {
  Shape normalized_shape;  // the last dims
  double eps = 1e-5;
  bool weight = true, bias = true;
};
struct ConvConfig {
  int spatial_dims = 2;  // 1: Conv1d, 2: Conv2d
  int64_t in_channels = 0, out_channels = 0;
  std::vector<int64_t> kernel_size, stride, padding, dilation;  // one for each spatial dim
  int64_t groups = 1;
  bool bias = true;
};
struct DropoutConfig {
  double p = 0.5;  // recorded: a forward pass without training drops nothing
};
// Inputs query [batch, time, heads * head_dim], key and value [batch, time, kv_heads * head_dim]; output as query. Owns
// no states: its projections are Linears before and after it.
struct AttentionConfig {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  double rope_theta = 0;  // 0: no rotary embedding of query and key
  double scale = 0;       // 0: 1 / sqrt(head_dim)
  bool cache = true;      // keeps keys and values in generation
};
struct ActivationConfig {
  std::string function;  // "relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax"
  Attributes attributes;
};
struct IdentityConfig {};

// --- Containers. Sequential's forward calls its children one after the other; the other two have none.
struct SequentialConfig {};
struct ModuleListConfig {};
struct ModuleDictConfig {};

// --- Composite: a dataflow graph. Values are named within the graph: an input's name, a node's output name, or
// "self.NAME" for a state of the module itself.
struct GraphInput {
  std::string name;
  bool optional = false;
};
struct Argument {
  std::string name;   // "" = positional
  std::string value;  // name of a value, or of a list, tuple or map of them ("h" for "h.0", "h.1"); "" = an omitted
                      // optional, or
  std::optional<Attribute> literal = {};  // a value that is no tensor: passed on untouched
};
struct GraphNode {
  std::string name;      // also its output's name where `outputs` is empty
  std::string child;     // dotted path below this module ("layers.0"), or
  std::string function;  // a function's name; exactly one of both is set
  std::vector<Argument> arguments;
  Attributes attributes;                                     // of a function
  std::map<std::string, std::string> attribute_inputs = {};  // attribute -> graph input that is passed as a literal
  std::vector<std::string> outputs;  // names of several outputs; left empty they are "NAME.0", "NAME.1", ... or,
                                     // of a map, "NAME.key"
};
struct GraphOutput {
  std::string name;
  std::string value;
};
// How a module's outputs are held together. Names are "output" for one tensor, "0", "1", ... for tuples and lists, keys
// for maps, and dotted for what is nested ("hidden.0").
enum class OutputStructure { kSingle, kTuple, kList, kMap };
struct StateDef {
  std::string name;
  Shape shape;
  bool buffer = false;         // else a parameter
  bool persistent = true;      // buffers
  bool requires_grad = true;   // parameters; carried and returned, there is no backward
  std::optional<DType> dtype;  // the compute dtype where absent
};
struct CompositeConfig {
  std::string type_name;  // for messages, as "DecoderLayer"
  std::vector<GraphInput> inputs;
  std::vector<GraphNode> nodes;
  std::vector<GraphOutput> outputs;
  OutputStructure structure = OutputStructure::kSingle;  // of the outputs; kTuple where several and not said otherwise
  std::vector<StateDef> states;
};

using ModuleConfig = std::variant<CompositeConfig, SequentialConfig, ModuleListConfig, ModuleDictConfig, LinearConfig,
                                  EmbeddingConfig, RMSNormConfig, LayerNormConfig, ConvConfig, DropoutConfig,
                                  AttentionConfig, ActivationConfig, IdentityConfig>;

// --- Declarative sharding of a module (SEMANTICS 7), by names of mesh axes. An axis that is not named is Replicate.
using NamedPlacements = std::map<std::string, Placement>;  // axis -> placement
struct ShardingConfig {
  std::map<std::string, NamedPlacements> state_shardings;  // path below the module ("fc.weight") -> placements
  std::map<std::string, NamedPlacements> in_src_shardings, in_dst_shardings;    // argument name -> placements
  std::map<std::string, NamedPlacements> out_src_shardings, out_dst_shardings;  // output name -> placements
  bool local_map = false;                                                       // the forward runs on local shards
  bool operator==(const ShardingConfig&) const = default;
};

struct Module {
  std::string name;  // child name in its parent; "" for the root
  ModuleConfig config;
  std::vector<Module> children;
  std::map<std::string, Initializer> param_init;  // own state name -> initializer
  std::optional<ShardingConfig> sharding = {};
  bool wrapped = false;  // Module(K), made from a leaf kind K: differs from K in nothing but the name
};

// --- What the model takes, with symbols for free dims.
struct ModelInput {
  std::string name;  // a graph input of the root
  DType dtype = DType::kF32;
  SymShape shape;
};

// How text is generated with it: absent for models that are not language models.
struct GenerationConfig {
  std::string ids_input;      // I64 [batch, time]
  std::string logits_output;  // F32 [batch, time, vocabulary]
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // prompt and new tokens together
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::string tokenizer;  // "bytes"; "" = token ids only
};

struct ModelDef {
  Module root;
  std::vector<ModelInput> inputs;
  std::map<std::string, int64_t> symbol_limits;  // symbol -> largest value allowed, as time -> 512
  std::optional<GenerationConfig> generation;
};

// --- Parallel styles (SEMANTICS 6).
// Where a style says that a value lies: on the plan's axis (kAxis: one placement), on every mesh axis (kList: one
// placement for each) or on named ones (kMap). Axes that it does not name stay as they are; kNone names none: None.
struct Layout {
  enum class Form { kNone, kAxis, kList, kMap };
  Form form = Form::kNone;
  Placements placements;                  // kAxis: one; kList
  std::map<std::string, Placement> axes;  // kMap

  Layout() = default;
  Layout(Placement placement);  // NOLINT: a placement is a layout on the plan's axis
  static Layout List(Placements placements);
  static Layout Map(std::map<std::string, Placement> axes);
  bool IsNone() const { return form == Form::kNone; }
  bool operator==(const Layout&) const = default;
};
// "Shard(dim=1)", "(Replicate(), Shard(dim=1))", "{'tp': Shard(dim=1)}" or "None".
std::string LayoutText(const Layout& layout);

// src_data_rank, in every style: the coordinate that has a state's whole value where it is distributed from one rank.
// States of models come from files and initializers slice by slice, so it moves nothing; it is checked.
struct ColwiseParallel {
  Layout input_layouts = Placement::Replicate();
  Layout output_layouts = Placement::Shard(-1);
  bool use_local_output = true;
  int src_data_rank = 0;
  bool operator==(const ColwiseParallel&) const = default;
};
struct RowwiseParallel {
  Layout input_layouts = Placement::Shard(-1);
  Layout output_layouts = Placement::Replicate();
  bool use_local_output = true;
  int src_data_rank = 0;
  bool operator==(const RowwiseParallel&) const = default;
};
struct SequenceParallel {
  int sequence_dim = 1;
  bool use_local_output = false;
  int src_data_rank = 0;
  bool operator==(const SequenceParallel&) const = default;
};
// Lists have one entry for each positional argument or output. No entries: None.
struct PrepareModuleInput {
  std::vector<Layout> input_layouts, desired_input_layouts;
  std::map<std::string, Layout> input_kwarg_layouts, desired_input_kwarg_layouts;
  bool use_local_output = false;
  int src_data_rank = 0;
  bool operator==(const PrepareModuleInput&) const = default;
};
struct PrepareModuleOutput {
  std::vector<Layout> output_layouts, desired_output_layouts;
  bool use_local_output = true;
  int src_data_rank = 0;
  bool operator==(const PrepareModuleOutput&) const = default;
};
struct PrepareModuleInputOutput {
  std::vector<Layout> input_layouts, desired_input_layouts;
  std::map<std::string, Layout> input_kwarg_layouts, desired_input_kwarg_layouts;
  bool use_local_input = false;
  std::vector<Layout> output_layouts, desired_output_layouts;
  bool use_local_output = true;
  int src_data_rank = 0;
  bool operator==(const PrepareModuleInputOutput&) const = default;
};
// A style, or a declarative sharding in its place.
using Style = std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, PrepareModuleOutput,
                           PrepareModuleInputOutput, ShardingConfig>;
// "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), use_local_output=True)";
// "ShardingConfig(state_shardings={'weight': {'tp': Shard(dim=0)}}, local_map=False)" without maps that are empty.
std::string StyleText(const Style& style);
std::string StyleName(const Style& style);

struct PlanEntry {
  std::string pattern;
  Style style;
  bool input_layouts_written = false;  // Colwise, Rowwise: written layouts are claims that are checked (SEMANTICS 5)
};
struct ParallelPlan {
  std::vector<MeshAxis> mesh;  // axes and sizes
  std::string axis;            // the styles' axis; "" = "tp", or the only axis
  std::vector<PlanEntry> entries;
  bool allow_unmatched = false;
  std::vector<std::string> batch_axes;  // axes over which dim 0 of every model input is cut
};

// --- One submission: everything but the bytes of weights.
struct Submission {
  std::string name;
  ModelDef model;
  ParallelPlan plan;
  std::map<std::string, WeightSource> weights;  // state path -> source
  std::string weights_file;  // states without an entry come from this safetensors file under their own path; "" = from
                             // their initializers
  DType compute_dtype = DType::kF32;
  bool names_compute_dtype = false;  // F32 is asked for, and not what stands where nothing does: GPUs take BF16 then
  uint64_t seed = 0;
};

}  // namespace tp
