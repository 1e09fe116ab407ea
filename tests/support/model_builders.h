// Small model definitions that several tests share. Example: Submission decoder = DecoderSubmission({.layers = 2}, 4);
#pragma once

#include <string>
#include <vector>

#include "common/model/model.h"

namespace tp::testing {

// A node that calls a child or a function on values in order.
GraphNode CallChild(std::string name, std::string child, std::vector<std::string> values);
GraphNode CallFunction(std::string name, std::string function, std::vector<std::string> values,
                       Attributes attributes = {});

PlanEntry Colwise(std::string pattern);
PlanEntry Rowwise(std::string pattern);
PlanEntry RowwiseEmbedding(std::string pattern);
PlanEntry Styled(std::string pattern, Style style);
// Input 0 of the module from one layout to another.
PlanEntry PreparedInput(std::string pattern, Layout declared, Layout desired);
PlanEntry PreparedOutput(std::string pattern, Layout declared, Layout desired);
std::vector<MeshAxis> Tp(int degree);

// y = softmax(x + w2(relu(w1(x)))), x F32 [batch, width].
Submission MlpSubmission(int64_t width, int64_t hidden, int degree);

// Two inputs, two outputs: total = relu(left(a)) + right(b), product = out(relu(left(a)) * right(b)), best =
// argmax(total).
Submission TwoByTwoSubmission(int64_t features, int64_t hidden, int degree);

struct DecoderSize {
  int64_t layers = 2;
  int64_t vocabulary = 257;
  int64_t hidden = 32;
  int64_t heads = 8;
  int64_t kv_heads = 4;
  int64_t intermediate = 44;
  int64_t max_positions = 64;
};
// A language model: grouped attention, gated MLP, RMSNorm; the standard tensor-parallel plan with a vocabulary-parallel
// embedding and a colwise head.
Submission DecoderSubmission(const DecoderSize& size, int degree);
// The same model with the sequence cut between the weights: embedding and projections back to S(1), norms
// SequenceParallel, attention and MLP gathered by PrepareModuleInput.
Submission SequenceDecoderSubmission(const DecoderSize& size, int degree);

}  // namespace tp::testing
