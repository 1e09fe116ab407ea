#include "common/checkpoint/llama_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace tp {
namespace {

constexpr char kArchitecture[] = "LlamaForCausalLM";
// Far over every real model; products of two sizes stay far below 2^63.
constexpr int64_t kMaxSize = int64_t{1} << 30;
constexpr int64_t kMaxLayers = 10'000;

// Typed reads of fields, with errors that name file and field. null counts as absent, as Hugging Face writes it.
class Fields {
 public:
  Fields(const Json& json, const std::string& path) : json_(json), path_(path) {}

  absl::Status Wrong(const std::string& field, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", field, " ", what));
  }
  absl::Status Unbuilt(const std::string& field, absl::string_view what) const {
    return absl::UnimplementedError(absl::StrCat(path_, ": ", field, " ", what));
  }
  const Json* Find(const std::string& field) const {
    const Json* value = json_.Find(field);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  // A size from 1 to `limit`; `fallback` where absent (0 = required).
  absl::Status Size(const std::string& field, int64_t fallback, int64_t limit, int64_t* out) const {
    const Json* value = Find(field);
    if (value == nullptr) {
      if (fallback == 0) return Wrong(field, "is missing");
      *out = fallback;
      return absl::OkStatus();
    }
    std::optional<int64_t> size = value->integer();
    if (!size.has_value() || *size < 1 || *size > limit) {
      return Wrong(field, absl::StrCat("must be a whole number from 1 to ", limit,
                                       size.has_value() ? absl::StrCat(", not ", *size) : ""));
    }
    *out = *size;
    return absl::OkStatus();
  }
  // A finite number above 0; unchanged where absent.
  absl::Status Positive(const std::string& field, double* out) const {
    const Json* value = Find(field);
    if (value == nullptr) return absl::OkStatus();
    std::optional<double> number = value->number();
    if (!number.has_value() || !std::isfinite(*number) || *number <= 0) return Wrong(field, "must be a number above 0");
    *out = *number;
    return absl::OkStatus();
  }
  absl::Status Flag(const std::string& field, bool* out) const {
    const Json* value = Find(field);
    if (value == nullptr) return absl::OkStatus();
    std::optional<bool> flag = value->flag();
    if (!flag.has_value()) return Wrong(field, "must be true or false");
    *out = *flag;
    return absl::OkStatus();
  }

 private:
  const Json& json_;
  const std::string& path_;
};

absl::Status CheckArchitecture(const Fields& fields) {
  const Json* architectures = fields.Find("architectures");
  if (architectures == nullptr || architectures->array() == nullptr || architectures->array()->size() != 1 ||
      architectures->array()->front().text() == nullptr) {
    return fields.Wrong("architectures", "is missing or not a list of one name");
  }
  const std::string& name = *architectures->array()->front().text();
  if (name == kArchitecture) return absl::OkStatus();
  return fields.Unbuilt("architectures", absl::StrCat("\"", name, "\" is not built; known is ", kArchitecture));
}

// rope_scaling (null or the default type), or the newer rope_parameters, which holds rope_theta too.
absl::Status ReadRope(const Fields& fields, const std::string& path, LlamaConfig* config) {
  TP_RETURN_IF_ERROR(fields.Positive("rope_theta", &config->rope_theta));
  for (const std::string field : {"rope_scaling", "rope_parameters"}) {
    const Json* value = fields.Find(field);
    if (value == nullptr) continue;
    if (value->object() == nullptr) return fields.Wrong(field, "is not an object");
    const Json* type = value->Find("rope_type");
    if (type == nullptr) type = value->Find("type");
    if (type == nullptr || type->text() == nullptr) return fields.Wrong(field, "has no rope_type");
    if (*type->text() != "default") return fields.Unbuilt(field, absl::StrCat("\"", *type->text(), "\" is not built"));
    TP_RETURN_IF_ERROR(Fields(*value, path).Positive("rope_theta", &config->rope_theta));
  }
  const Json* partial = fields.Find("partial_rotary_factor");
  if (partial != nullptr && partial->number() != 1.0) {
    return fields.Unbuilt("partial_rotary_factor", "other than 1 is not built");
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const Fields& fields, LlamaConfig* config) {
  auto in_range = [&](const Json& value) {
    return value.integer().has_value() && *value.integer() >= 0 && *value.integer() < config->vocab_size;
  };
  const std::string range = absl::StrCat("must be a token id from 0 to ", config->vocab_size - 1);
  if (const Json* bos = fields.Find("bos_token_id")) {
    if (!in_range(*bos)) return fields.Wrong("bos_token_id", range);
    config->bos_token_id = bos->integer();
  }
  if (const Json* eos = fields.Find("eos_token_id")) {
    const Json::Array one = {*eos};
    for (const Json& id : eos->array() != nullptr ? *eos->array() : one) {
      if (!in_range(id)) return fields.Wrong("eos_token_id", range);
      config->eos_token_ids.push_back(*id.integer());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LlamaConfig> ParseLlamaConfig(const Json& json, const std::string& path) {
  if (json.object() == nullptr) return absl::InvalidArgumentError(absl::StrCat(path, ": is not a JSON object"));
  const Fields fields(json, path);
  TP_RETURN_IF_ERROR(CheckArchitecture(fields));
  if (fields.Find("quantization_config") != nullptr) {
    return fields.Unbuilt("quantization_config", "is set: quantised weights are not built");
  }
  LlamaConfig config;
  TP_RETURN_IF_ERROR(fields.Size("vocab_size", 0, kMaxSize, &config.vocab_size));
  TP_RETURN_IF_ERROR(fields.Size("hidden_size", 0, kMaxSize, &config.hidden_size));
  TP_RETURN_IF_ERROR(fields.Size("intermediate_size", 0, kMaxSize, &config.intermediate_size));
  TP_RETURN_IF_ERROR(fields.Size("num_hidden_layers", 0, kMaxLayers, &config.layers));
  TP_RETURN_IF_ERROR(fields.Size("num_attention_heads", 0, kMaxSize, &config.heads));
  TP_RETURN_IF_ERROR(fields.Size("num_key_value_heads", config.heads, kMaxSize, &config.kv_heads));
  TP_RETURN_IF_ERROR(fields.Size("max_position_embeddings", 0, kMaxSize, &config.max_positions));
  if (config.heads % config.kv_heads != 0) {
    return fields.Wrong("num_key_value_heads",
                        absl::StrCat(config.kv_heads, " does not divide num_attention_heads ", config.heads));
  }
  if (fields.Find("head_dim") == nullptr && config.hidden_size % config.heads != 0) {
    return fields.Wrong("num_attention_heads", absl::StrCat(config.heads, " does not divide hidden_size ",
                                                            config.hidden_size, ", and head_dim is missing"));
  }
  TP_RETURN_IF_ERROR(fields.Size("head_dim", config.hidden_size / config.heads, kMaxSize, &config.head_dim));
  if (config.head_dim % 2 != 0) {
    return fields.Wrong("head_dim", absl::StrCat("must be even for rotary embeddings, not ", config.head_dim));
  }
  TP_RETURN_IF_ERROR(fields.Positive("rms_norm_eps", &config.norm_eps));
  TP_RETURN_IF_ERROR(ReadRope(fields, path, &config));
  TP_RETURN_IF_ERROR(fields.Flag("attention_bias", &config.attention_bias));
  TP_RETURN_IF_ERROR(fields.Flag("mlp_bias", &config.mlp_bias));
  TP_RETURN_IF_ERROR(fields.Flag("tie_word_embeddings", &config.tied));
  if (const Json* activation = fields.Find("hidden_act")) {
    if (activation->text() == nullptr) return fields.Wrong("hidden_act", "is not text");
    config.activation = *activation->text();
    if (config.activation != "silu" && config.activation != "gelu" && config.activation != "relu") {
      return fields.Unbuilt("hidden_act",
                            absl::StrCat("\"", config.activation, "\" is not built; known are silu, gelu, relu"));
    }
  }
  TP_RETURN_IF_ERROR(ReadTokens(fields, &config));
  return config;
}

}  // namespace tp
