#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/kinds.h"
#include "common/proto_convert/checks.h"
#include "common/proto_convert/model.h"

namespace tp {
namespace {

absl::StatusOr<Attribute> AttributeFromProto(const v1::Attribute& attribute, const std::string& field) {
  switch (attribute.kind_case()) {
    case v1::Attribute::kFlag:
      return Attribute(attribute.flag());
    case v1::Attribute::kInteger:
      return Attribute(int64_t{attribute.integer()});
    case v1::Attribute::kNumber:
      TP_RETURN_IF_ERROR(CheckFinite(attribute.number(), field + ".number"));
      return Attribute(attribute.number());
    case v1::Attribute::kText:
      return Attribute(attribute.text());
    case v1::Attribute::kIntegers:
      return Attribute(
          std::vector<int64_t>(attribute.integers().values().begin(), attribute.integers().values().end()));
    case v1::Attribute::kDims: {
      TP_ASSIGN_OR_RETURN(SymShape dims, SymShapeFromProto(attribute.dims().values(), field + ".dims.values"));
      return Attribute(std::move(dims));
    }
    case v1::Attribute::kDtype: {
      TP_ASSIGN_OR_RETURN(DType dtype, DTypeFromProto(attribute.dtype(), field + ".dtype"));
      return Attribute(dtype);
    }
    case v1::Attribute::KIND_NOT_SET:
      break;
  }
  return FieldError(field, "exactly one of flag, integer, number, text, integers, dims and dtype must be set");
}

absl::StatusOr<LinearConfig> LinearFromProto(const v1::LinearConfig& proto, const std::string& field) {
  LinearConfig config{proto.in_features(), proto.out_features(), !proto.no_bias(), std::nullopt};
  Problems problems;
  Note(CheckSize(config.in_features, field + ".in_features"), &problems);
  Note(CheckSize(config.out_features, field + ".out_features"), &problems);
  TP_RETURN_IF_ERROR(problems.status());
  absl::StatusOr<int64_t> count = CheckedElementCount({config.out_features, config.in_features});
  if (!count.ok()) return AtField(count.status(), field);
  TP_ASSIGN_OR_RETURN(config.output_dtype, OptionalDType(proto.output_dtype(), field + ".output_dtype"));
  return config;
}

absl::StatusOr<EmbeddingConfig> EmbeddingFromProto(const v1::EmbeddingConfig& proto, const std::string& field) {
  TP_RETURN_IF_ERROR(CheckSize(proto.num_embeddings(), field + ".num_embeddings"));
  TP_RETURN_IF_ERROR(CheckSize(proto.embedding_dim(), field + ".embedding_dim"));
  absl::StatusOr<int64_t> count = CheckedElementCount({proto.num_embeddings(), proto.embedding_dim()});
  if (!count.ok()) return AtField(count.status(), field);
  return EmbeddingConfig{proto.num_embeddings(), proto.embedding_dim()};
}

absl::StatusOr<RMSNormConfig> RmsNormFromProto(const v1::RMSNormConfig& proto, const std::string& field) {
  TP_RETURN_IF_ERROR(CheckSize(proto.dim(), field + ".dim"));
  TP_RETURN_IF_ERROR(CheckNotNegative(proto.eps(), field + ".eps"));
  return RMSNormConfig{proto.dim(), proto.eps() == 0 ? 1e-6 : proto.eps()};
}

absl::StatusOr<LayerNormConfig> LayerNormFromProto(const v1::LayerNormConfig& proto, const std::string& field) {
  LayerNormConfig config;
  TP_ASSIGN_OR_RETURN(config.normalized_shape, ShapeFromProto(proto.normalized_shape(), field + ".normalized_shape"));
  if (config.normalized_shape.empty()) return FieldError(field + ".normalized_shape", "at least one size is required");
  for (int i = 0; i < proto.normalized_shape_size(); ++i) {
    TP_RETURN_IF_ERROR(CheckSize(proto.normalized_shape(i), Indexed(field + ".normalized_shape", i)));
  }
  TP_RETURN_IF_ERROR(CheckNotNegative(proto.eps(), field + ".eps"));
  config.eps = proto.eps() == 0 ? 1e-5 : proto.eps();
  config.weight = !proto.no_affine();
  config.bias = !proto.no_affine() && !proto.no_bias();
  return config;
}

absl::StatusOr<ConvConfig> ConvFromProto(const v1::ConvConfig& proto, int spatial_dims, const std::string& field) {
  ConvConfig config;
  config.spatial_dims = spatial_dims;
  config.in_channels = proto.in_channels();
  config.out_channels = proto.out_channels();
  TP_RETURN_IF_ERROR(CheckSize(config.in_channels, field + ".in_channels"));
  TP_RETURN_IF_ERROR(CheckSize(config.out_channels, field + ".out_channels"));
  config.kernel_size.assign(proto.kernel_size().begin(), proto.kernel_size().end());
  config.stride.assign(proto.stride().begin(), proto.stride().end());
  config.padding.assign(proto.padding().begin(), proto.padding().end());
  config.dilation.assign(proto.dilation().begin(), proto.dilation().end());
  absl::Status lists = CompleteConv(&config);
  if (!lists.ok()) return AtField(lists, field);
  config.groups = proto.groups() == 0 ? 1 : proto.groups();
  TP_RETURN_IF_ERROR(CheckSize(config.groups, field + ".groups"));
  config.bias = !proto.no_bias();
  return config;
}

absl::StatusOr<AttentionConfig> AttentionFromProto(const v1::AttentionConfig& proto, const std::string& field) {
  AttentionConfig config{proto.heads(),      proto.kv_heads() == 0 ? proto.heads() : proto.kv_heads(),
                         proto.head_dim(),   !proto.not_causal(),
                         proto.rope_theta(), proto.scale(),
                         !proto.no_cache()};
  TP_RETURN_IF_ERROR(CheckSize(config.heads, field + ".heads"));
  TP_RETURN_IF_ERROR(CheckSize(config.kv_heads, field + ".kv_heads"));
  TP_RETURN_IF_ERROR(CheckSize(config.head_dim, field + ".head_dim"));
  TP_RETURN_IF_ERROR(CheckNotNegative(config.rope_theta, field + ".rope_theta"));
  TP_RETURN_IF_ERROR(CheckFinite(config.scale, field + ".scale"));
  return config;
}

absl::StatusOr<DropoutConfig> DropoutFromProto(const v1::DropoutConfig& proto, const std::string& field) {
  if (!proto.has_p()) return DropoutConfig{};
  if (!(proto.p() >= 0 && proto.p() <= 1))
    return FieldError(field + ".p", absl::StrCat("is ", proto.p(), ", not in [0, 1]"));
  return DropoutConfig{proto.p()};
}

absl::StatusOr<OutputStructure> StructureFromProto(v1::OutputStructure structure, const std::string& field) {
  switch (structure) {
    case v1::OUTPUT_STRUCTURE_UNSPECIFIED:
      return OutputStructure::kSingle;
    case v1::OUTPUT_STRUCTURE_TUPLE:
      return OutputStructure::kTuple;
    case v1::OUTPUT_STRUCTURE_LIST:
      return OutputStructure::kList;
    case v1::OUTPUT_STRUCTURE_MAP:
      return OutputStructure::kMap;
    default:
      return FieldError(field, absl::StrCat("unknown structure ", static_cast<int>(structure)));
  }
}

absl::StatusOr<GraphNode> GraphNodeFromProto(const v1::GraphNode& proto, const std::string& field) {
  GraphNode node;
  node.name = proto.name();
  switch (proto.call_case()) {
    case v1::GraphNode::kChild:
      node.child = proto.child();
      break;
    case v1::GraphNode::kFunction:
      node.function = proto.function();
      break;
    case v1::GraphNode::CALL_NOT_SET:
      break;
  }
  if (node.child.empty() && node.function.empty()) {
    return FieldError(field, absl::StrCat("node '", proto.name(), "' must name a child or a function"));
  }
  for (int i = 0; i < proto.arguments_size(); ++i) {
    const v1::Argument& argument = proto.arguments(i);
    Argument added{argument.name(), argument.value(), {}};
    if (argument.has_literal()) {
      const std::string at = Indexed(field + ".arguments", i);
      if (!argument.value().empty()) return FieldError(at, "value and literal exclude each other");
      TP_ASSIGN_OR_RETURN(added.literal, AttributeFromProto(argument.literal(), at + ".literal"));
    }
    node.arguments.push_back(std::move(added));
  }
  for (const auto& [attribute, input] : proto.attribute_inputs()) node.attribute_inputs[attribute] = input;
  TP_ASSIGN_OR_RETURN(node.attributes, AttributesFromProto(proto.attributes(), field + ".attributes"));
  node.outputs.assign(proto.outputs().begin(), proto.outputs().end());
  return node;
}

absl::StatusOr<CompositeConfig> CompositeFromProto(const v1::CompositeConfig& proto, const std::string& field) {
  Problems problems;
  CompositeConfig config;
  config.type_name = proto.type_name();
  for (const v1::GraphInput& input : proto.inputs()) config.inputs.push_back({input.name(), input.optional()});
  for (int i = 0; i < proto.nodes_size(); ++i) {
    GraphNode node;
    Keep(GraphNodeFromProto(proto.nodes(i), Indexed(field + ".nodes", i)), &node, &problems);
    config.nodes.push_back(std::move(node));
  }
  for (const v1::GraphOutput& output : proto.outputs()) config.outputs.push_back({output.name(), output.value()});
  Keep(StructureFromProto(proto.structure(), field + ".structure"), &config.structure, &problems);
  for (int i = 0; i < proto.states_size(); ++i) {
    const v1::StateDef& state = proto.states(i);
    const std::string at = Indexed(field + ".states", i);
    StateDef def{state.name(), {}, state.buffer(), !state.not_persistent(), !state.frozen(), std::nullopt};
    Keep(ShapeFromProto(state.shape(), at + ".shape"), &def.shape, &problems);
    Keep(OptionalDType(state.dtype(), at + ".dtype"), &def.dtype, &problems);
    config.states.push_back(std::move(def));
  }
  TP_RETURN_IF_ERROR(problems.status());
  return config;
}

// Sets *wrapped for a kind that is named "Module(K)".
absl::StatusOr<ModuleConfig> ConfigFromProto(const v1::Module& proto, const std::string& field, bool* wrapped) {
  switch (proto.config_case()) {
    case v1::Module::kComposite: {
      TP_ASSIGN_OR_RETURN(CompositeConfig config, CompositeFromProto(proto.composite(), field + ".composite"));
      return ModuleConfig(std::move(config));
    }
    case v1::Module::kSequential:
      return ModuleConfig(SequentialConfig{});
    case v1::Module::kModuleList:
      return ModuleConfig(ModuleListConfig{});
    case v1::Module::kModuleDict:
      return ModuleConfig(ModuleDictConfig{});
    case v1::Module::kLinear: {
      TP_ASSIGN_OR_RETURN(LinearConfig config, LinearFromProto(proto.linear(), field + ".linear"));
      return ModuleConfig(config);
    }
    case v1::Module::kEmbedding: {
      TP_ASSIGN_OR_RETURN(EmbeddingConfig config, EmbeddingFromProto(proto.embedding(), field + ".embedding"));
      return ModuleConfig(config);
    }
    case v1::Module::kRmsNorm: {
      TP_ASSIGN_OR_RETURN(RMSNormConfig config, RmsNormFromProto(proto.rms_norm(), field + ".rms_norm"));
      return ModuleConfig(config);
    }
    case v1::Module::kActivation: {
      ActivationConfig config;
      config.function = proto.activation().function();
      TP_ASSIGN_OR_RETURN(config.attributes,
                          AttributesFromProto(proto.activation().attributes(), field + ".activation.attributes"));
      return ModuleConfig(std::move(config));
    }
    case v1::Module::kIdentity:
      return ModuleConfig(IdentityConfig{});
    case v1::Module::kLayerNorm: {
      TP_ASSIGN_OR_RETURN(LayerNormConfig config, LayerNormFromProto(proto.layer_norm(), field + ".layer_norm"));
      return ModuleConfig(std::move(config));
    }
    case v1::Module::kConv1D: {
      TP_ASSIGN_OR_RETURN(ConvConfig config, ConvFromProto(proto.conv1d(), 1, field + ".conv1d"));
      return ModuleConfig(std::move(config));
    }
    case v1::Module::kConv2D: {
      TP_ASSIGN_OR_RETURN(ConvConfig config, ConvFromProto(proto.conv2d(), 2, field + ".conv2d"));
      return ModuleConfig(std::move(config));
    }
    case v1::Module::kDropout: {
      TP_ASSIGN_OR_RETURN(DropoutConfig config, DropoutFromProto(proto.dropout(), field + ".dropout"));
      return ModuleConfig(config);
    }
    case v1::Module::kAttention: {
      TP_ASSIGN_OR_RETURN(AttentionConfig config, AttentionFromProto(proto.attention(), field + ".attention"));
      return ModuleConfig(config);
    }
    case v1::Module::kNamed: {
      const std::string at = field + ".named";
      TP_ASSIGN_OR_RETURN(const Attributes fields, AttributesFromProto(proto.named().config(), at + ".config"));
      absl::StatusOr<NamedConfig> named = ConfigOfKind(proto.named().kind(), fields, !proto.children().empty());
      if (!named.ok()) return AtField(named.status(), at);
      *wrapped |= named->wrapped;
      return std::move(named->config);
    }
    case v1::Module::CONFIG_NOT_SET:
      break;
  }
  return FieldError(field, absl::StrCat("module '", proto.name(), "' has no configuration: exactly one of composite, ",
                                        "sequential, module_list, module_dict, linear, embedding, rms_norm, ",
                                        "layer_norm, conv1d, conv2d, dropout, attention, activation, identity and ",
                                        "named must be set"));
}

}  // namespace

absl::StatusOr<Attributes> AttributesFromProto(const google::protobuf::Map<std::string, v1::Attribute>& attributes,
                                               const std::string& field) {
  Attributes result;
  for (const auto& [name, attribute] : attributes) {
    TP_ASSIGN_OR_RETURN(Attribute value, AttributeFromProto(attribute, absl::StrCat(field, "['", name, "']")));
    result.emplace(name, std::move(value));
  }
  return result;
}

absl::StatusOr<Module> ModuleFromProto(const v1::Module& proto, const std::string& field) {
  Module module;
  module.name = proto.name();
  module.wrapped = proto.wrapped();
  Problems problems;
  Keep(ConfigFromProto(proto, field, &module.wrapped), &module.config, &problems);
  for (int i = 0; i < proto.children_size(); ++i) {
    Module child;
    Keep(ModuleFromProto(proto.children(i), Indexed(field + ".children", i)), &child, &problems);
    module.children.push_back(std::move(child));
  }
  for (const auto& [name, initializer] : proto.param_init()) {
    Keep(InitializerFromProto(initializer, absl::StrCat(field, ".param_init['", name, "']")), &module.param_init[name],
         &problems);
  }
  if (proto.has_sharding()) {
    Keep(ShardingFromProto(proto.sharding(), field + ".sharding"), &module.sharding, &problems);
  }
  TP_RETURN_IF_ERROR(problems.status());
  return module;
}

}  // namespace tp
