// config.json of a LlamaForCausalLM checkpoint as a checked value. Example:
//   TP_ASSIGN_OR_RETURN(LlamaConfig config, ParseLlamaConfig(json, "/m/config.json"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/json.h"

namespace tp {

struct LlamaConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::string activation = "silu";  // "silu", "gelu" or "relu": names of functions
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied = false;  // the head's weight is the embedding's
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
};

// Fields and defaults as in Hugging Face's LlamaConfig; fields that change no value of the forward (torch_dtype, ...)
// are ignored. INVALID_ARGUMENT naming `path` and the field for missing and senseless ones; UNIMPLEMENTED, naming it,
// for another architecture, scaled rotary embeddings, another activation and quantised weights.
absl::StatusOr<LlamaConfig> ParseLlamaConfig(const Json& json, const std::string& path);

}  // namespace tp
