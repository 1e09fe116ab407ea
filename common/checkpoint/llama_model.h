// The ordinary model definition, states and standard plan of a LlamaForCausalLM. After this file nothing knows that
// model's name. Example: BuildLlamaModel(config).root.children[0].name is "model".
#pragma once

#include <map>
#include <string>

#include "common/checkpoint/llama_config.h"
#include "common/model/model.h"
#include "common/tensor/shape.h"

namespace tp {

// ids I64 [batch, time] -> logits F32 [batch, time, vocabulary]. Module paths are Hugging Face's tensor names without
// ".weight" and ".bias". `tokenizer` goes into the generation section as it is.
ModelDef BuildLlamaModel(const LlamaConfig& config, const std::string& tokenizer);

// State path -> global shape, all states of that model; a tied head's weight included.
std::map<std::string, Shape> LlamaStates(const LlamaConfig& config);

// Mesh tp = `degree`. Embedding cut by vocabulary, q, k, v, gate and up by rows, o and down by columns, head by rows:
// with L layers 1 + 2L all_reduces, and logits that stay cut.
ParallelPlan StandardLlamaPlan(int degree);

// The same weights, with the sequence (dim 1) cut between them: embedding and the projections back are reduce-scattered
// into S(1), norms and residual sums run on S(1), attention, MLP and head gather it. With L layers 1 + 2L
// reduce_scatters and 1 + 2L all_gathers.
ParallelPlan SequenceLlamaPlan(int degree);

}  // namespace tp
