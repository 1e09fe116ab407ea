#include "common/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/compile.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::HasSubstr;
using tp::testing::DecoderSubmission;
using tp::testing::TwoByTwoSubmission;

ForwardProgram Program(const Submission& submission) { return CompileForward(submission)->program; }

TEST(BindInputsTest, OneProgramServesEverySize) {
  const ForwardProgram program = Program(DecoderSubmission({}, 2));
  for (const auto& [batch, time] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 64}, {0, 7}}) {
    absl::StatusOr<Bindings> bindings = BindInputs(program, {{"ids", {batch, time}}});
    ASSERT_TRUE(bindings.ok()) << bindings.status();
    EXPECT_EQ(*bindings, (Bindings{{"batch", batch}, {"time", time}}));
    EXPECT_EQ(*EvaluateShape(program.values[program.outputs[0].value].spec.shape, *bindings),
              (Shape{batch, time, 257}));
  }
}

TEST(BindInputsTest, Errors) {
  const ForwardProgram program = Program(DecoderSubmission({}, 2));
  auto error = [&](const std::map<std::string, Shape>& shapes) {
    absl::StatusOr<Bindings> bindings = BindInputs(program, shapes);
    EXPECT_EQ(bindings.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(bindings.status().message());
  };
  EXPECT_THAT(error({{"ids", {1, 65}}}), HasSubstr("time is 65, at most 64"));
  EXPECT_THAT(error({{"ids", {4}}}), HasSubstr("[4] does not fit [batch, time]"));
  EXPECT_THAT(error({{"ids", {-1, 4}}}), HasSubstr("negative"));
  EXPECT_THAT(error({}), HasSubstr("input 'ids' is missing"));
  EXPECT_THAT(error({{"ids", {1, 4}}, {"idz", {1, 4}}}), HasSubstr("there is no input 'idz'; nearest: ids"));
  const ForwardProgram two = Program(TwoByTwoSubmission(5, 7, 2));
  EXPECT_THAT(std::string(BindInputs(two, {{"a", {2, 5}}, {"b", {3, 5}}}).status().message()),
              HasSubstr("batch is 2 elsewhere and 3 here"));
  EXPECT_THAT(std::string(BindInputs(two, {{"a", {2, 6}}, {"b", {2, 5}}}).status().message()), HasSubstr("dim 1"));
}

TEST(ProgramTextTest, HoldsOneLineForEachThing) {
  const ForwardProgram program = Program(TwoByTwoSubmission(5, 7, 2));
  const std::string text = ProgramText(program);
  EXPECT_THAT(text, HasSubstr("mesh tp=2\n"));
  EXPECT_THAT(text, HasSubstr("parameter \"out.weight\" "));
  EXPECT_THAT(text, HasSubstr("F32[5, 7] tp=S(1)"));
  EXPECT_THAT(text, HasSubstr("step all_reduce [tp] tp=P(sum) -> tp=R in \"out\""));
  EXPECT_EQ(FingerprintOf(program).size(), 64u);
  EXPECT_EQ(FingerprintOf(program), FingerprintOf(Program(TwoByTwoSubmission(5, 7, 2))));
}

class ValidateProgramTest : public ::testing::Test {
 protected:
  void ExpectWrong(const std::string& text) {
    const absl::Status status = ValidateProgram(program_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  Instruction* Find(const std::string& function) {
    for (Instruction& instruction : program_.instructions) {
      if (instruction.function == function) return &instruction;
    }
    return nullptr;
  }
  ForwardProgram program_ = Program(DecoderSubmission({}, 2));
};

TEST_F(ValidateProgramTest, CompiledProgramsAreValid) { EXPECT_TRUE(ValidateProgram(program_).ok()); }

TEST_F(ValidateProgramTest, IndicesAreChecked) {
  Find("linear")->inputs[0] = 100000;
  ExpectWrong("is not one of");
}
TEST_F(ValidateProgramTest, UseBeforeMaking) {
  Find("linear")->inputs[0] = program_.outputs[0].value;
  ExpectWrong("is used before it is made");
}
TEST_F(ValidateProgramTest, MadeTwice) {
  Find("linear")->outputs[0] = 0;
  ExpectWrong("is made twice");
}
TEST_F(ValidateProgramTest, UnknownFunction) {
  Find("silu")->function = "system";
  ExpectWrong("there is no such function");
}
TEST_F(ValidateProgramTest, Arity) {
  Find("silu")->inputs.push_back(0);
  ExpectWrong("takes 1 inputs");
}
TEST_F(ValidateProgramTest, Attributes) {
  Find("rms_norm")->attributes["eps"] = std::string("x");
  ExpectWrong("is a number");
}
TEST_F(ValidateProgramTest, Caches) {
  Find("attention")->attributes["cache_index"] = int64_t{9};
  ExpectWrong("names no cache");
}
TEST_F(ValidateProgramTest, Steps) {
  Find("redistribute")->step->to = {Placement::Shard(0)};
  ExpectWrong("not those of its values");
  Find("redistribute")->step.reset();
  ExpectWrong("a step belongs to redistribute");
}
TEST_F(ValidateProgramTest, Specs) {
  program_.values[program_.outputs[0].value].spec.placements = {Placement::Shard(5)};
  ExpectWrong("value %");
}
TEST_F(ValidateProgramTest, Shapes) {
  program_.values[program_.outputs[0].value].spec.shape[2] = Dim(9);
  ExpectWrong("makes F32[batch, time, 257], not F32[batch, time, 9]");
}

}  // namespace
}  // namespace tp
