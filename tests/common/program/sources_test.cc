#include "common/program/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/memory.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::HasSubstr;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;
using tp::testing::Rowwise;

std::string TextOf(const Submission& submission) {
  const absl::Status status = CompileForward(submission).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

WeightSource Alias(const std::string& path) {
  WeightSource source;
  source.kind = WeightSource::Kind::kAlias;
  source.path = path;
  return source;
}

TEST(SourcesTest, AFileServesStatesUnderTheirOwnPaths) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.weights_file = "/m/model.safetensors";
  submission.weights["w2.bias"].initializer = {Initializer::Kind::kOnes, 0, 0};
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->states[0].source->path, "/m/model.safetensors");
  EXPECT_EQ(compiled->states[0].source->tensor, "w1.weight");
  EXPECT_EQ(compiled->states[3].source->kind, WeightSource::Kind::kInitializer);
}

TEST(SourcesTest, WithoutSourcesInitializersAreUsed) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(MlpSubmission(4, 6, 2));
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE(compiled->states[0].source.has_value());
  EXPECT_EQ(compiled->states[0].state.initializer.b, 0.5);
}

TEST(SourcesTest, UnknownStatesNameTheNearest) {
  Submission submission = MlpSubmission(4, 6, 2);
  submission.weights["w1.wieght"] = {};
  EXPECT_THAT(TextOf(submission), HasSubstr("weights 'w1.wieght': the model has no such state; nearest: w1.weight"));
}

TEST(SourcesTest, ParametersNeedInitializers) {
  Submission submission = MlpSubmission(4, 6, 2);
  auto& graph = std::get<CompositeConfig>(submission.model.root.config);
  graph.states.push_back({.name = "scale", .shape = {4}, .dtype = {}});
  EXPECT_THAT(TextOf(submission),
              HasSubstr("No param_init found for parameter 'scale' in Mlp. Set param_init on this module's Config."));
  graph.states.push_back({.name = "shift", .shape = {4}, .dtype = {}});
  submission.model.root.param_init["shift"] = {};
  EXPECT_THAT(TextOf(submission), HasSubstr("No initializer for parameter 'scale' in Mlp. Available: ['shift']"));
  submission.model.root.param_init["scale"] = {};
  EXPECT_TRUE(CompileForward(submission).ok());
}

TEST(SourcesTest, TiedStatesAreOneStorageWithOnePlacement) {
  Submission submission = DecoderSubmission({.layers = 1}, 4);
  absl::StatusOr<CompiledModel> untied = CompileForward(submission);
  submission.weights["head.weight"] = Alias("embed.weight");
  absl::StatusOr<CompiledModel> tied = CompileForward(submission);
  ASSERT_TRUE(untied.ok() && tied.ok()) << tied.status();
  const Bindings bindings{{"batch", 1}, {"time", 1}};
  EXPECT_EQ(
      (*MemoryOf(*untied, bindings, false))[0].parameter_bytes - (*MemoryOf(*tied, bindings, false))[0].parameter_bytes,
      65 * 32 * 4);
  submission.plan.entries.back() = Rowwise("head");
  EXPECT_THAT(TextOf(submission), HasSubstr("tied states 'head.weight' and 'embed.weight' want different placements"));
  submission.plan.entries.pop_back();  // the head follows the embedding
  tied = CompileForward(submission);
  ASSERT_TRUE(tied.ok()) << tied.status();
  for (const PlacedState& placed : tied->states) {
    if (placed.state.path == "head.weight") EXPECT_EQ(placed.placements, (Placements{Placement::Shard(0)}));
  }
}

TEST(SourcesTest, AliasesMustFit) {
  Submission submission = DecoderSubmission({.layers = 1}, 4);
  submission.weights["head.weight"] = Alias("embed.wait");
  EXPECT_THAT(TextOf(submission), HasSubstr("nearest: embed.weight"));
  submission.weights["head.weight"] = Alias("head.weight");
  EXPECT_THAT(TextOf(submission), HasSubstr("an alias of itself"));
  submission.weights["head.weight"] = Alias("norm.weight");
  EXPECT_THAT(TextOf(submission), HasSubstr("has shape [32], not [257, 32]"));
}

}  // namespace
}  // namespace tp
