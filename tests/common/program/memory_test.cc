#include "common/program/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/model_builders.h"

namespace tp {
namespace {

using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;
using tp::testing::TwoByTwoSubmission;

CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}

int64_t LocalBytesOf(const ForwardProgram& program, int value, const Bindings& bindings, const Coordinate& coordinate) {
  const DTensorSpec& spec = program.values[value].spec;
  const Shape global = *EvaluateShape(spec.shape, bindings);
  return ElementCount(LocalShape(global, spec.placements, program.mesh, coordinate)) * ItemSize(spec.dtype);
}

// Marks every byte of the arena with its owner, instruction by instruction: a value that is needed later must still own
// all its bytes, and scratch may lie on nothing that is live.
void ExpectNoOverlap(const ForwardProgram& program, const Bindings& bindings, const Coordinate& coordinate) {
  absl::StatusOr<MemoryPlan> plan = PlanMemory(program, bindings, coordinate);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<int> owner(plan->total_bytes, -1);
  auto write = [&](int value) {
    const int64_t bytes = LocalBytesOf(program, value, bindings, coordinate);
    ASSERT_GE(plan->value_offset[value], 0) << value;
    ASSERT_EQ(plan->value_offset[value] % 64, 0);
    ASSERT_LE(plan->value_offset[value] + bytes, plan->total_bytes);
    std::fill_n(owner.begin() + plan->value_offset[value], bytes, value);
  };
  auto expect_whole = [&](int value) {
    const int64_t bytes = LocalBytesOf(program, value, bindings, coordinate);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(owner[plan->value_offset[value] + i], value) << "value " << value;
  };
  std::vector<bool> state(program.values.size(), false);
  for (const Operand& operand : program.operands) {
    state[operand.value] = operand.kind == OperandKind::kParameter || operand.kind == OperandKind::kBuffer;
    if (state[operand.value]) {
      EXPECT_EQ(plan->value_offset[operand.value], -1);
    } else {
      write(operand.value);
    }
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (plan->scratch_bytes[i] > 0) {
      ASSERT_LE(plan->scratch_offset[i] + plan->scratch_bytes[i], plan->total_bytes);
      std::fill_n(owner.begin() + plan->scratch_offset[i], plan->scratch_bytes[i], -2);
    }
    for (int output : instruction.outputs) write(output);
    for (int input : instruction.inputs) {
      if (input >= 0 && !state[input]) expect_whole(input);
    }
    for (int output : instruction.outputs) expect_whole(output);
  }
  for (const NamedValue& output : program.outputs) expect_whole(output.value);
}

TEST(PlanMemoryTest, LiveValuesNeverOverlap) {
  for (int degree : {1, 2, 4, 8}) {
    const CompiledModel model = Compile(DecoderSubmission({}, degree));
    for (const auto& [batch, time, rows] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {2, 7, 3}, {1, 64, 0}, {0, 5, 0}, {3, 0, 0}}) {
      const Bindings bindings{{"batch", batch}, {"time", time}, {"rows", rows}};
      for (int rank : {0, degree - 1}) {
        ExpectNoOverlap(model.program, bindings, {rank});
        ExpectNoOverlap(*model.step_program, bindings, {rank});
      }
    }
  }
  for (int degree : {1, 2, 3, 4}) {
    for (int64_t batch : {0, 1, 5, 33}) {
      ExpectNoOverlap(Compile(MlpSubmission(6, 10, degree)).program, {{"batch", batch}}, {degree - 1});
      ExpectNoOverlap(Compile(TwoByTwoSubmission(5, 7, degree)).program, {{"batch", batch}}, {0});
    }
  }
}

TEST(PlanMemoryTest, MemoryIsReused) {
  // Every layer needs the same arena: 8 layers take no more than 2.
  const CompiledModel two = Compile(DecoderSubmission({.layers = 2}, 2));
  const CompiledModel eight = Compile(DecoderSubmission({.layers = 8}, 2));
  const Bindings bindings{{"batch", 1}, {"time", 32}};
  EXPECT_EQ(PlanMemory(two.program, bindings, {0})->total_bytes, PlanMemory(eight.program, bindings, {0})->total_bytes);
}

TEST(PlanMemoryTest, UnboundSymbolsAndHugeSizesAreRefused) {
  const CompiledModel model = Compile(MlpSubmission(6, 10, 2));
  EXPECT_EQ(PlanMemory(model.program, {}, {0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanMemory(model.program, {{"batch", int64_t{1} << 61}}, {0}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(MemoryOfTest, ParametersAndCacheAreCountedByHand) {
  // hidden 32, 8 heads of 4, 4 key-value heads, intermediate 44, vocabulary 257, one layer, tp=2.
  const CompiledModel model = Compile(DecoderSubmission({.layers = 1}, 2));
  absl::StatusOr<std::vector<RankMemory>> memory = MemoryOf(model, {{"batch", 1}, {"time", 4}}, false);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ(memory->size(), 2u);
  const int64_t norms = 3 * 32;
  const int64_t attention = 16 * 32 + 16 + 8 * 32 + 8 + 8 * 32 + 32 * 16 + 32;
  const int64_t mlp = 2 * 22 * 32 + 32 * 22;
  EXPECT_EQ((*memory)[0].parameter_bytes, 4 * (2 * 129 * 32 + norms + attention + mlp));
  EXPECT_EQ((*memory)[1].parameter_bytes, 4 * (2 * 128 * 32 + norms + attention + mlp));
  EXPECT_EQ((*memory)[0].buffer_bytes, 0);
  // 64 positions are 4 pages of [2, 2 heads, 16, 4] F32.
  EXPECT_EQ(CachePageBytes(model.program, {0}), 2 * 2 * 16 * 4 * 4);
  EXPECT_EQ((*memory)[0].cache_bytes, 4 * 1024);
  EXPECT_GT((*memory)[0].activation_bytes, 0);
}

TEST(MemoryOfTest, WidenedWeightsAreF32) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.compute_dtype = DType::kBF16;
  const CompiledModel model = Compile(submission);
  const Bindings bindings{{"batch", 1}};
  EXPECT_EQ((*MemoryOf(model, bindings, false))[0].parameter_bytes, 2 * (3 * 4 + 3 + 4 * 3 + 4));
  EXPECT_EQ((*MemoryOf(model, bindings, true))[0].parameter_bytes, 4 * (3 * 4 + 4 * 3) + 2 * (3 + 4));
}

TEST(CollectivesTest, BytesFollowTheBindings) {
  const CompiledModel model = Compile(DecoderSubmission({.layers = 1}, 4));
  for (int64_t time : {0, 1, 16}) {
    absl::StatusOr<std::vector<CollectiveRecord>> records =
        CollectivesOf(model.program, {{"batch", 2}, {"time", time}});
    ASSERT_TRUE(records.ok()) << records.status();
    ASSERT_EQ(records->size(), 3u);
    // all_reduce of F32 [2, time, 32] over 4 ranks: 2 * 3 / 4 of its bytes.
    for (const CollectiveRecord& record : *records) EXPECT_EQ(record.bytes, 2 * time * 32 * 4 * 3 / 2);
  }
}

}  // namespace
}  // namespace tp
