#include "client/tpctl/seeded_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/model_builders.h"

namespace tp::client {
namespace {

using tp::testing::CallChild;
using tp::testing::CallFunction;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;

std::vector<NamedTensor> InputsOf(const Submission& submission) {
  const absl::StatusOr<FlatModel> flat = FlattenModel(submission.model, submission.compute_dtype);
  EXPECT_TRUE(flat.ok()) << flat.status();
  const auto inputs = SeededInputs(*flat, submission.model.symbol_limits);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return *inputs;
}

// Within [0, limit), and more than one of them.
void ExpectIds(const HostTensor& tensor, int64_t limit) {
  const int64_t* values = tensor.data<int64_t>();
  const int64_t count = ElementCount(tensor.shape);
  EXPECT_GE(*std::min_element(values, values + count), 0);
  EXPECT_LT(*std::max_element(values, values + count), limit);
  EXPECT_GE(*std::max_element(values, values + count), limit / 2) << "they spread";
  EXPECT_NE(*std::min_element(values, values + count), *std::max_element(values, values + count));
}

// The meshes of the plans differ, the inputs do not.
TEST(SeededInputsTest, DependOnTheModelAlone) {
  EXPECT_EQ(InputsOf(MlpSubmission(6, 10, 2))[0].tensor.shape, (Shape{5, 6}));
  EXPECT_EQ(InputsOf(DecoderSubmission({}, 1))[0].tensor.shape, (Shape{5, 16}));
  EXPECT_EQ(InputsOf(DecoderSubmission({}, 4))[0].tensor.shape, (Shape{5, 16}));
  EXPECT_EQ(InputsOf(DecoderSubmission({}, 1))[0].tensor.bytes, InputsOf(DecoderSubmission({}, 4))[0].tensor.bytes);
  EXPECT_EQ(InputsOf(DecoderSubmission({.max_positions = 8}, 2))[0].tensor.shape, (Shape{5, 8}));
}

TEST(SeededInputsTest, FloatsAreEqualEveryTimeAndWithinOne) {
  const HostTensor x = InputsOf(MlpSubmission(6, 10, 2))[0].tensor;
  EXPECT_EQ(x.bytes, InputsOf(MlpSubmission(6, 10, 2))[0].tensor.bytes);
  const float* values = x.data<float>();
  EXPECT_LT(*std::min_element(values, values + 30), -0.5);
  EXPECT_GE(*std::min_element(values, values + 30), -1);
  EXPECT_GT(*std::max_element(values, values + 30), 0.5);
  EXPECT_LT(*std::max_element(values, values + 30), 1);
}

TEST(SeededInputsTest, IdsStayBelowTheTableThatTheyReach) {
  Submission submission = DecoderSubmission({.vocabulary = 31}, 2);
  submission.model.generation.reset();
  ExpectIds(InputsOf(submission)[0].tensor, 31);
}

// y = e(reshape(ids)), z = gather(x, picks): picks point at 7 columns.
TEST(SeededInputsTest, IdsAreFollowedThroughFunctionsAndOtherUses) {
  CompositeConfig config{
      .type_name = "Uses",
      .inputs = {{"ids"}, {"x"}, {"picks"}, {"free"}},
      .nodes = {CallFunction("r", "transpose", {"ids"}, {{"dim0", int64_t{0}}, {"dim1", int64_t{1}}}),
                CallChild("y", "e", {"r"}), CallFunction("z", "gather", {"x", "picks"}, {{"dim", int64_t{-1}}})},
      .outputs = {{"y", "y"}, {"z", "z"}, {"free", "free"}},
      .states = {}};
  Submission submission;
  submission.model.root = {.name = "",
                           .config = config,
                           .children = {{.name = "e",
                                         .config = EmbeddingConfig{.num_embeddings = 11, .embedding_dim = 4},
                                         .children = {},
                                         .param_init = {}}},
                           .param_init = {}};
  const Dim batch = Dim::Symbol("batch"), time = Dim::Symbol("time");
  submission.model.inputs = {{"ids", DType::kI64, {batch, time}},
                             {"x", DType::kF32, {batch, 7}},
                             {"picks", DType::kI64, {batch, 5}},
                             {"free", DType::kI64, {batch, time}}};
  const std::vector<NamedTensor> inputs = InputsOf(submission);
  ASSERT_EQ(inputs.size(), 4u);
  EXPECT_EQ(inputs[0].tensor.shape, (Shape{5, 16}));
  ExpectIds(inputs[0].tensor, 11);
  ExpectIds(inputs[2].tensor, 7);
  ExpectIds(inputs[3].tensor, 2);
  EXPECT_EQ(inputs[3].tensor.shape, inputs[0].tensor.shape);  // one size a symbol
}

}  // namespace
}  // namespace tp::client
