#include "common/proto_convert/model.h"

namespace tp {
namespace {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

void AttributeToProto(const Attribute& attribute, v1::Attribute* proto) {
  std::visit(Overloaded{
                 [proto](bool value) { proto->set_flag(value); },
                 [proto](int64_t value) { proto->set_integer(value); },
                 [proto](double value) { proto->set_number(value); },
                 [proto](const std::string& value) { proto->set_text(value); },
                 [proto](const std::vector<int64_t>& value) {
                   proto->mutable_integers()->mutable_values()->Assign(value.begin(), value.end());
                 },
                 [proto](const SymShape& value) {
                   proto->mutable_dims();
                   for (const Dim& dim : value) proto->mutable_dims()->add_values(dim.ToString());
                 },
                 [proto](DType value) { proto->set_dtype(DTypeToProto(value)); },
             },
             attribute);
}

v1::OutputStructure StructureToProto(OutputStructure structure) {
  switch (structure) {
    case OutputStructure::kSingle:
      return v1::OUTPUT_STRUCTURE_UNSPECIFIED;
    case OutputStructure::kTuple:
      return v1::OUTPUT_STRUCTURE_TUPLE;
    case OutputStructure::kList:
      return v1::OUTPUT_STRUCTURE_LIST;
    case OutputStructure::kMap:
      return v1::OUTPUT_STRUCTURE_MAP;
  }
  return v1::OUTPUT_STRUCTURE_UNSPECIFIED;
}

void ConvToProto(const ConvConfig& config, v1::ConvConfig* proto) {
  proto->set_in_channels(config.in_channels);
  proto->set_out_channels(config.out_channels);
  proto->mutable_kernel_size()->Assign(config.kernel_size.begin(), config.kernel_size.end());
  proto->mutable_stride()->Assign(config.stride.begin(), config.stride.end());
  proto->mutable_padding()->Assign(config.padding.begin(), config.padding.end());
  proto->mutable_dilation()->Assign(config.dilation.begin(), config.dilation.end());
  proto->set_groups(config.groups);
  proto->set_no_bias(!config.bias);
}

void AttentionToProto(const AttentionConfig& config, v1::AttentionConfig* proto) {
  proto->set_heads(config.heads);
  proto->set_kv_heads(config.kv_heads);
  proto->set_head_dim(config.head_dim);
  proto->set_not_causal(!config.causal);
  proto->set_rope_theta(config.rope_theta);
  proto->set_scale(config.scale);
  proto->set_no_cache(!config.cache);
}

void CompositeToProto(const CompositeConfig& config, v1::CompositeConfig* proto) {
  proto->set_type_name(config.type_name);
  for (const GraphInput& input : config.inputs) {
    v1::GraphInput* added = proto->add_inputs();
    added->set_name(input.name);
    added->set_optional(input.optional);
  }
  for (const GraphNode& node : config.nodes) {
    v1::GraphNode* added = proto->add_nodes();
    added->set_name(node.name);
    if (!node.child.empty()) added->set_child(node.child);
    if (!node.function.empty()) added->set_function(node.function);
    for (const Argument& argument : node.arguments) {
      v1::Argument* proto_argument = added->add_arguments();
      proto_argument->set_name(argument.name);
      proto_argument->set_value(argument.value);
      if (argument.literal.has_value()) AttributeToProto(*argument.literal, proto_argument->mutable_literal());
    }
    for (const auto& [attribute, input] : node.attribute_inputs)
      (*added->mutable_attribute_inputs())[attribute] = input;
    AttributesToProto(node.attributes, added->mutable_attributes());
    for (const std::string& output : node.outputs) added->add_outputs(output);
  }
  for (const GraphOutput& output : config.outputs) {
    v1::GraphOutput* added = proto->add_outputs();
    added->set_name(output.name);
    added->set_value(output.value);
  }
  proto->set_structure(StructureToProto(config.structure));
  for (const StateDef& state : config.states) {
    v1::StateDef* added = proto->add_states();
    added->set_name(state.name);
    ShapeToProto(state.shape, added->mutable_shape());
    added->set_buffer(state.buffer);
    added->set_not_persistent(!state.persistent);
    added->set_frozen(!state.requires_grad);
    if (state.dtype.has_value()) added->set_dtype(DTypeToProto(*state.dtype));
  }
}

}  // namespace

void ModuleToProto(const Module& module, v1::Module* proto) {
  proto->set_name(module.name);
  std::visit(Overloaded{
                 [proto](const CompositeConfig& config) { CompositeToProto(config, proto->mutable_composite()); },
                 [proto](const SequentialConfig&) { proto->mutable_sequential(); },
                 [proto](const ModuleListConfig&) { proto->mutable_module_list(); },
                 [proto](const ModuleDictConfig&) { proto->mutable_module_dict(); },
                 [proto](const LinearConfig& config) {
                   proto->mutable_linear()->set_in_features(config.in_features);
                   proto->mutable_linear()->set_out_features(config.out_features);
                   proto->mutable_linear()->set_no_bias(!config.bias);
                   if (config.output_dtype.has_value()) {
                     proto->mutable_linear()->set_output_dtype(DTypeToProto(*config.output_dtype));
                   }
                 },
                 [proto](const EmbeddingConfig& config) {
                   proto->mutable_embedding()->set_num_embeddings(config.num_embeddings);
                   proto->mutable_embedding()->set_embedding_dim(config.embedding_dim);
                 },
                 [proto](const RMSNormConfig& config) {
                   proto->mutable_rms_norm()->set_dim(config.dim);
                   proto->mutable_rms_norm()->set_eps(config.eps);
                 },
                 [proto](const LayerNormConfig& config) {
                   ShapeToProto(config.normalized_shape, proto->mutable_layer_norm()->mutable_normalized_shape());
                   proto->mutable_layer_norm()->set_eps(config.eps);
                   proto->mutable_layer_norm()->set_no_affine(!config.weight);
                   proto->mutable_layer_norm()->set_no_bias(config.weight && !config.bias);
                 },
                 [proto](const ConvConfig& config) {
                   ConvToProto(config, config.spatial_dims == 1 ? proto->mutable_conv1d() : proto->mutable_conv2d());
                 },
                 [proto](const DropoutConfig& config) { proto->mutable_dropout()->set_p(config.p); },
                 [proto](const AttentionConfig& config) { AttentionToProto(config, proto->mutable_attention()); },
                 [proto](const ActivationConfig& config) {
                   proto->mutable_activation()->set_function(config.function);
                   AttributesToProto(config.attributes, proto->mutable_activation()->mutable_attributes());
                 },
                 [proto](const IdentityConfig&) { proto->mutable_identity(); },
             },
             module.config);
  for (const Module& child : module.children) ModuleToProto(child, proto->add_children());
  for (const auto& [name, initializer] : module.param_init) {
    InitializerToProto(initializer, &(*proto->mutable_param_init())[name]);
  }
  if (module.sharding.has_value()) ShardingToProto(*module.sharding, proto->mutable_sharding());
  proto->set_wrapped(module.wrapped);
}

void AttributesToProto(const Attributes& attributes, google::protobuf::Map<std::string, v1::Attribute>* proto) {
  for (const auto& [name, attribute] : attributes) AttributeToProto(attribute, &(*proto)[name]);
}

void InitializerToProto(const Initializer& initializer, v1::Initializer* proto) {
  switch (initializer.kind) {
    case Initializer::Kind::kZeros:
      proto->mutable_zeros();
      break;
    case Initializer::Kind::kOnes:
      proto->mutable_ones();
      break;
    case Initializer::Kind::kConstant:
      proto->mutable_constant()->set_value(initializer.a);
      break;
    case Initializer::Kind::kArange:
      if (initializer.b == 0) {  // a step of 0 reads as 1, so it is written as what it is
        proto->mutable_constant()->set_value(initializer.a);
      } else {
        proto->mutable_arange()->set_start(initializer.a);
        proto->mutable_arange()->set_step(initializer.b);
      }
      break;
    case Initializer::Kind::kEye:
      proto->mutable_eye();
      break;
    case Initializer::Kind::kUniform:
      proto->mutable_uniform()->set_low(initializer.a);
      proto->mutable_uniform()->set_high(initializer.b);
      break;
    case Initializer::Kind::kNormal:
      if (initializer.b == 0) {
        proto->mutable_constant()->set_value(initializer.a);
      } else {
        proto->mutable_normal()->set_mean(initializer.a);
        proto->mutable_normal()->set_std(initializer.b);
      }
      break;
    case Initializer::Kind::kTruncatedNormal:
      if (initializer.b == 0) {
        proto->mutable_constant()->set_value(initializer.a);
      } else {
        proto->mutable_truncated_normal()->set_mean(initializer.a);
        proto->mutable_truncated_normal()->set_std(initializer.b);
      }
      break;
    case Initializer::Kind::kKaimingUniform:
      proto->mutable_kaiming_uniform();
      break;
    case Initializer::Kind::kKaimingNormal:
      proto->mutable_kaiming_normal();
      break;
    case Initializer::Kind::kXavierUniform:
      proto->mutable_xavier_uniform();
      break;
    case Initializer::Kind::kXavierNormal:
      proto->mutable_xavier_normal();
      break;
  }
}

void WeightSourceToProto(const WeightSource& source, v1::WeightSource* proto) {
  switch (source.kind) {
    case WeightSource::Kind::kFile:
      proto->mutable_file()->set_path(source.path);
      proto->mutable_file()->set_tensor(source.tensor);
      break;
    case WeightSource::Kind::kSlice:
      proto->mutable_slice()->set_dim(source.dim);
      proto->mutable_slice()->set_start(source.start);
      proto->mutable_slice()->set_length(source.length);
      if (!source.parts.empty()) WeightSourceToProto(source.parts[0], proto->mutable_slice()->mutable_of());
      break;
    case WeightSource::Kind::kTranspose:
      proto->mutable_transpose()->mutable_permutation()->Assign(source.permutation.begin(), source.permutation.end());
      if (!source.parts.empty()) WeightSourceToProto(source.parts[0], proto->mutable_transpose()->mutable_of());
      break;
    case WeightSource::Kind::kConcat:
      proto->mutable_concat()->set_dim(source.dim);
      for (const WeightSource& part : source.parts) WeightSourceToProto(part, proto->mutable_concat()->add_parts());
      break;
    case WeightSource::Kind::kInitializer:
      InitializerToProto(source.initializer, proto->mutable_initializer());
      break;
    case WeightSource::Kind::kAlias:
      proto->set_alias(source.path);
      break;
  }
}

void ModelToProto(const ModelDef& model, v1::ModelDefinition* proto) {
  ModuleToProto(model.root, proto->mutable_root());
  for (const ModelInput& input : model.inputs) {
    v1::ModelInput* added = proto->add_inputs();
    added->set_name(input.name);
    added->mutable_type()->set_dtype(DTypeToProto(input.dtype));
    for (const Dim& dim : input.shape) added->mutable_type()->add_shape(dim.ToString());
  }
  for (const auto& [symbol, limit] : model.symbol_limits) (*proto->mutable_symbol_limits())[symbol] = limit;
  if (model.generation.has_value()) {
    v1::GenerationConfig* generation = proto->mutable_generation();
    generation->set_ids_input(model.generation->ids_input);
    generation->set_logits_output(model.generation->logits_output);
    generation->set_vocab_size(model.generation->vocab_size);
    generation->set_max_positions(model.generation->max_positions);
    if (model.generation->bos_token_id.has_value()) generation->set_bos_token_id(*model.generation->bos_token_id);
    generation->mutable_eos_token_ids()->Assign(model.generation->eos_token_ids.begin(),
                                                model.generation->eos_token_ids.end());
    generation->set_tokenizer(model.generation->tokenizer);
  }
}

void SubmissionToProto(const Submission& submission, v1::Submission* proto) {
  proto->set_name(submission.name);
  ModelToProto(submission.model, proto->mutable_model());
  PlanToProto(submission.plan, proto->mutable_plan());
  for (const auto& [path, source] : submission.weights) {
    WeightSourceToProto(source, &(*proto->mutable_weights())[path]);
  }
  proto->set_weights_file(submission.weights_file);
  if (submission.names_compute_dtype || submission.compute_dtype != DType::kF32) {
    proto->set_compute_dtype(DTypeToProto(submission.compute_dtype));
  }
  proto->set_seed(submission.seed);
}

}  // namespace tp
