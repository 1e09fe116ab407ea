#include "common/proto_convert/model.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/proto_convert/checks.h"

namespace tp {
namespace {

absl::StatusOr<GenerationConfig> GenerationFromProto(const v1::GenerationConfig& proto, const std::string& field) {
  GenerationConfig config;
  config.ids_input = proto.ids_input();
  config.logits_output = proto.logits_output();
  config.vocab_size = proto.vocab_size();
  config.max_positions = proto.max_positions();
  Problems problems;
  Note(CheckSize(config.vocab_size, field + ".vocab_size"), &problems);
  Note(CheckSize(config.max_positions, field + ".max_positions"), &problems);
  TP_RETURN_IF_ERROR(problems.status());
  if (proto.has_bos_token_id()) config.bos_token_id = proto.bos_token_id();
  config.eos_token_ids.assign(proto.eos_token_ids().begin(), proto.eos_token_ids().end());
  config.tokenizer = proto.tokenizer();
  return config;
}

}  // namespace

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
  Problems problems;
  Keep(ModuleFromProto(model.root(), field + ".root"), &result.root, &problems);
  for (int i = 0; i < model.inputs_size(); ++i) {
    const v1::ModelInput& input = model.inputs(i);
    const std::string at = Indexed(field + ".inputs", i);
    ModelInput added;
    added.name = input.name();
    Keep(DTypeFromProto(input.type().dtype(), at + ".type.dtype"), &added.dtype, &problems);
    Keep(SymShapeFromProto(input.type().shape(), at + ".type.shape"), &added.shape, &problems);
    result.inputs.push_back(std::move(added));
  }
  for (const auto& [symbol, limit] : model.symbol_limits()) {
    Note(CheckSize(limit, absl::StrCat(field, ".symbol_limits['", symbol, "']")), &problems);
    result.symbol_limits[symbol] = limit;
  }
  if (model.has_generation()) {
    Keep(GenerationFromProto(model.generation(), field + ".generation"), &result.generation, &problems);
  }
  TP_RETURN_IF_ERROR(problems.status());
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
  Problems problems;
  Keep(ModelFromProto(submission.model(), "model"), &result.model, &problems);
  Keep(PlanFromProto(submission.plan(), "plan"), &result.plan, &problems);
  for (const auto& [path, source] : submission.weights()) {
    Keep(WeightSourceFromProto(source, absl::StrCat("weights['", path, "']")), &result.weights[path], &problems);
  }
  result.weights_file = submission.weights_file();
  if (submission.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    result.names_compute_dtype = true;
    Keep(DTypeFromProto(submission.compute_dtype(), "compute_dtype"), &result.compute_dtype, &problems);
    if (result.compute_dtype != DType::kF32 && result.compute_dtype != DType::kBF16) {
      Note(FieldError("compute_dtype",
                      absl::StrCat("is ", std::string(DTypeName(result.compute_dtype)), "; must be F32 or BF16")),
           &problems);
    }
  }
  TP_RETURN_IF_ERROR(problems.status());
  result.seed = submission.seed();
  return result;
}

}  // namespace tp
