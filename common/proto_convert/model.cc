#include "common/proto_convert/model.h"

#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {
namespace {

absl::Status CheckSize(int64_t value, const std::string& field) {
  if (value >= 1) return absl::OkStatus();
  return FieldError(field, absl::StrCat("is ", value, "; must be at least 1"));
}

absl::Status CheckFinite(double value, const std::string& field) {
  if (std::isfinite(value)) return absl::OkStatus();
  return FieldError(field, absl::StrCat("is ", value, "; must be finite"));
}

absl::StatusOr<std::optional<DType>> OptionalDType(v1::DataType dtype, const std::string& field) {
  if (dtype == v1::DATA_TYPE_UNSPECIFIED) return std::optional<DType>();
  TP_ASSIGN_OR_RETURN(DType result, DTypeFromProto(dtype, field));
  return std::optional<DType>(result);
}

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
  TP_RETURN_IF_ERROR(CheckSize(config.in_features, field + ".in_features"));
  TP_RETURN_IF_ERROR(CheckSize(config.out_features, field + ".out_features"));
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
  TP_RETURN_IF_ERROR(CheckFinite(proto.eps(), field + ".eps"));
  if (proto.eps() < 0) return FieldError(field + ".eps", absl::StrCat("is ", proto.eps(), "; must not be negative"));
  return RMSNormConfig{proto.dim(), proto.eps() == 0 ? 1e-6 : proto.eps()};
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
  for (const v1::Argument& argument : proto.arguments()) node.arguments.push_back({argument.name(), argument.value()});
  TP_ASSIGN_OR_RETURN(node.attributes, AttributesFromProto(proto.attributes(), field + ".attributes"));
  node.outputs.assign(proto.outputs().begin(), proto.outputs().end());
  return node;
}

absl::StatusOr<CompositeConfig> CompositeFromProto(const v1::CompositeConfig& proto, const std::string& field) {
  CompositeConfig config;
  config.type_name = proto.type_name();
  for (const v1::GraphInput& input : proto.inputs()) config.inputs.push_back({input.name(), input.optional()});
  for (int i = 0; i < proto.nodes_size(); ++i) {
    TP_ASSIGN_OR_RETURN(GraphNode node, GraphNodeFromProto(proto.nodes(i), Indexed(field + ".nodes", i)));
    config.nodes.push_back(std::move(node));
  }
  for (const v1::GraphOutput& output : proto.outputs()) config.outputs.push_back({output.name(), output.value()});
  for (int i = 0; i < proto.states_size(); ++i) {
    const v1::StateDef& state = proto.states(i);
    const std::string at = Indexed(field + ".states", i);
    StateDef def{state.name(), {}, state.buffer(), !state.not_persistent(), !state.frozen(), std::nullopt};
    TP_ASSIGN_OR_RETURN(def.shape, ShapeFromProto(state.shape(), at + ".shape"));
    TP_ASSIGN_OR_RETURN(def.dtype, OptionalDType(state.dtype(), at + ".dtype"));
    config.states.push_back(std::move(def));
  }
  return config;
}

absl::StatusOr<ModuleConfig> ConfigFromProto(const v1::Module& proto, const std::string& field) {
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
    case v1::Module::CONFIG_NOT_SET:
      break;
  }
  return FieldError(field, absl::StrCat("module '", proto.name(), "' has no configuration: exactly one of composite, ",
                                        "sequential, module_list, module_dict, linear, embedding, rms_norm, ",
                                        "activation and identity must be set"));
}

absl::StatusOr<Module> ModuleFromProto(const v1::Module& proto, const std::string& field) {
  Module module;
  module.name = proto.name();
  TP_ASSIGN_OR_RETURN(module.config, ConfigFromProto(proto, field));
  for (int i = 0; i < proto.children_size(); ++i) {
    TP_ASSIGN_OR_RETURN(Module child, ModuleFromProto(proto.children(i), Indexed(field + ".children", i)));
    module.children.push_back(std::move(child));
  }
  for (const auto& [name, initializer] : proto.param_init()) {
    TP_ASSIGN_OR_RETURN(module.param_init[name],
                        InitializerFromProto(initializer, absl::StrCat(field, ".param_init['", name, "']")));
  }
  return module;
}

absl::StatusOr<GenerationConfig> GenerationFromProto(const v1::GenerationConfig& proto, const std::string& field) {
  GenerationConfig config;
  config.ids_input = proto.ids_input();
  config.logits_output = proto.logits_output();
  config.vocab_size = proto.vocab_size();
  config.max_positions = proto.max_positions();
  TP_RETURN_IF_ERROR(CheckSize(config.vocab_size, field + ".vocab_size"));
  TP_RETURN_IF_ERROR(CheckSize(config.max_positions, field + ".max_positions"));
  if (proto.has_bos_token_id()) config.bos_token_id = proto.bos_token_id();
  config.eos_token_ids.assign(proto.eos_token_ids().begin(), proto.eos_token_ids().end());
  config.tokenizer = proto.tokenizer();
  return config;
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

absl::StatusOr<Initializer> InitializerFromProto(const v1::Initializer& initializer, const std::string& field) {
  Initializer result;
  switch (initializer.kind_case()) {
    case v1::Initializer::kZeros:
      result = {Initializer::Kind::kZeros, 0, 0};
      break;
    case v1::Initializer::kOnes:
      result = {Initializer::Kind::kOnes, 0, 0};
      break;
    case v1::Initializer::kConstant:
      result = {Initializer::Kind::kConstant, initializer.constant().value(), 0};
      break;
    case v1::Initializer::kArange:
      result = {Initializer::Kind::kArange, initializer.arange().start(),
                initializer.arange().step() == 0 ? 1 : initializer.arange().step()};
      break;
    case v1::Initializer::kEye:
      result = {Initializer::Kind::kEye, 0, 0};
      break;
    case v1::Initializer::kUniform:
      result = {Initializer::Kind::kUniform, initializer.uniform().low(), initializer.uniform().high()};
      if (result.b < result.a) {
        return FieldError(field + ".uniform", absl::StrCat("low ", result.a, " is above high ", result.b));
      }
      break;
    case v1::Initializer::kNormal:
      result = {Initializer::Kind::kNormal, initializer.normal().mean(),
                initializer.normal().std() == 0 ? 1 : initializer.normal().std()};
      if (result.b < 0) {
        return FieldError(field + ".normal.std", absl::StrCat("is ", result.b, "; must not be negative"));
      }
      break;
    case v1::Initializer::kTruncatedNormal:
      result = {Initializer::Kind::kTruncatedNormal, initializer.truncated_normal().mean(),
                initializer.truncated_normal().std() == 0 ? 1 : initializer.truncated_normal().std()};
      if (result.b < 0) {
        return FieldError(field + ".truncated_normal.std", absl::StrCat("is ", result.b, "; must not be negative"));
      }
      break;
    case v1::Initializer::kKaimingUniform:
      result = {Initializer::Kind::kKaimingUniform, 0, 0};
      break;
    case v1::Initializer::kKaimingNormal:
      result = {Initializer::Kind::kKaimingNormal, 0, 0};
      break;
    case v1::Initializer::kXavierUniform:
      result = {Initializer::Kind::kXavierUniform, 0, 0};
      break;
    case v1::Initializer::kXavierNormal:
      result = {Initializer::Kind::kXavierNormal, 0, 0};
      break;
    case v1::Initializer::KIND_NOT_SET:
      return FieldError(field,
                        "exactly one of zeros, ones, constant, arange, eye, uniform, normal, truncated_normal, "
                        "kaiming_uniform, kaiming_normal, xavier_uniform and xavier_normal must be set");
  }
  TP_RETURN_IF_ERROR(CheckFinite(result.a, field));
  TP_RETURN_IF_ERROR(CheckFinite(result.b, field));
  return result;
}

absl::StatusOr<WeightSource> WeightSourceFromProto(const v1::WeightSource& source, const std::string& field) {
  WeightSource result;
  switch (source.kind_case()) {
    case v1::WeightSource::kFile:
      result.kind = WeightSource::Kind::kFile;
      result.path = source.file().path();
      result.tensor = source.file().tensor();
      if (result.path.empty()) return FieldError(field + ".file.path", "is required");
      if (result.tensor.empty()) return FieldError(field + ".file.tensor", "is required");
      return result;
    case v1::WeightSource::kSlice: {
      const auto& slice = source.slice();
      const std::string at = field + ".slice";
      result.kind = WeightSource::Kind::kSlice;
      result.dim = slice.dim();
      result.start = slice.start();
      result.length = slice.length();
      int64_t end = 0;
      if (result.start < 0 || result.length < 0 || __builtin_add_overflow(result.start, result.length, &end)) {
        return FieldError(at, absl::StrCat("start ", result.start, " and length ", result.length,
                                           " must not be negative or overflow"));
      }
      TP_ASSIGN_OR_RETURN(WeightSource of, WeightSourceFromProto(slice.of(), at + ".of"));
      result.parts.push_back(std::move(of));
      return result;
    }
    case v1::WeightSource::kTranspose: {
      result.kind = WeightSource::Kind::kTranspose;
      result.permutation.assign(source.transpose().permutation().begin(), source.transpose().permutation().end());
      TP_ASSIGN_OR_RETURN(WeightSource of, WeightSourceFromProto(source.transpose().of(), field + ".transpose.of"));
      result.parts.push_back(std::move(of));
      return result;
    }
    case v1::WeightSource::kConcat:
      result.kind = WeightSource::Kind::kConcat;
      result.dim = source.concat().dim();
      if (source.concat().parts().empty()) return FieldError(field + ".concat.parts", "at least one part is required");
      for (int i = 0; i < source.concat().parts_size(); ++i) {
        TP_ASSIGN_OR_RETURN(WeightSource part,
                            WeightSourceFromProto(source.concat().parts(i), Indexed(field + ".concat.parts", i)));
        result.parts.push_back(std::move(part));
      }
      return result;
    case v1::WeightSource::kInitializer: {
      result.kind = WeightSource::Kind::kInitializer;
      TP_ASSIGN_OR_RETURN(result.initializer, InitializerFromProto(source.initializer(), field + ".initializer"));
      return result;
    }
    case v1::WeightSource::kAlias:
      result.kind = WeightSource::Kind::kAlias;
      result.path = source.alias();
      if (result.path.empty()) return FieldError(field + ".alias", "must name a state");
      return result;
    case v1::WeightSource::KIND_NOT_SET:
      break;
  }
  return FieldError(field, "exactly one of file, slice, transpose, concat, initializer and alias must be set");
}

absl::StatusOr<ModelDef> ModelFromProto(const v1::ModelDefinition& model, const std::string& field) {
  ModelDef result;
  if (!model.has_root()) return FieldError(field + ".root", "is required");
  TP_ASSIGN_OR_RETURN(result.root, ModuleFromProto(model.root(), field + ".root"));
  for (int i = 0; i < model.inputs_size(); ++i) {
    const v1::ModelInput& input = model.inputs(i);
    const std::string at = Indexed(field + ".inputs", i);
    ModelInput added;
    added.name = input.name();
    TP_ASSIGN_OR_RETURN(added.dtype, DTypeFromProto(input.type().dtype(), at + ".type.dtype"));
    TP_ASSIGN_OR_RETURN(added.shape, SymShapeFromProto(input.type().shape(), at + ".type.shape"));
    result.inputs.push_back(std::move(added));
  }
  for (const auto& [symbol, limit] : model.symbol_limits()) {
    TP_RETURN_IF_ERROR(CheckSize(limit, absl::StrCat(field, ".symbol_limits['", symbol, "']")));
    result.symbol_limits[symbol] = limit;
  }
  if (model.has_generation()) {
    TP_ASSIGN_OR_RETURN(result.generation, GenerationFromProto(model.generation(), field + ".generation"));
  }
  return result;
}

absl::Status ValidateModelName(const std::string& name, const std::string& field) {
  bool ok = !name.empty() && name.size() <= 128 && absl::ascii_isalnum(static_cast<unsigned char>(name[0]));
  for (char c : name)
    ok = ok && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  if (ok) return absl::OkStatus();
  return FieldError(field, absl::StrCat("'", name.substr(0, 128),
                                        "' is no name: 1 to 128 letters, digits, '.', '_' or '-', the first of them a "
                                        "letter or digit"));
}

absl::StatusOr<Submission> SubmissionFromProto(const v1::Submission& submission) {
  Submission result;
  result.name = submission.name();
  if (!result.name.empty()) TP_RETURN_IF_ERROR(ValidateModelName(result.name, "name"));
  if (!submission.has_model()) return FieldError("model", "is required");
  TP_ASSIGN_OR_RETURN(result.model, ModelFromProto(submission.model(), "model"));
  TP_ASSIGN_OR_RETURN(result.plan, PlanFromProto(submission.plan(), "plan"));
  for (const auto& [path, source] : submission.weights()) {
    TP_ASSIGN_OR_RETURN(result.weights[path], WeightSourceFromProto(source, absl::StrCat("weights['", path, "']")));
  }
  result.weights_file = submission.weights_file();
  if (submission.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    TP_ASSIGN_OR_RETURN(result.compute_dtype, DTypeFromProto(submission.compute_dtype(), "compute_dtype"));
    if (result.compute_dtype != DType::kF32 && result.compute_dtype != DType::kBF16) {
      return FieldError("compute_dtype",
                        absl::StrCat("is ", std::string(DTypeName(result.compute_dtype)), "; must be F32 or BF16"));
    }
  }
  result.seed = submission.seed();
  return result;
}

}  // namespace tp
