#include "common/program/auto_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "common/program/compile.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using tp::testing::DecoderSize;
using tp::testing::DecoderSubmission;
using tp::testing::MlpSubmission;
using tp::testing::SequenceDecoderSubmission;
using tp::testing::TwoByTwoSubmission;

const std::map<std::string, Shape> kIds{{"ids", {1, 16}}};
const Bindings kNominal{{"batch", 64}, {"time", 64}};

AutoPlan Find(const Submission& submission, const AutoPlanOptions& options) {
  absl::StatusOr<AutoPlan> plan = FindPlan(submission, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : AutoPlan{};
}

// "w1 ColwiseParallel S(-1)": pattern, style and where the output goes.
std::vector<std::string> EntryTexts(const ParallelPlan& plan) {
  std::vector<std::string> texts;
  for (const PlanEntry& entry : plan.entries) {
    std::string text = absl::StrCat(entry.pattern, " ", StyleName(entry.style));
    if (const auto* colwise = std::get_if<ColwiseParallel>(&entry.style))
      absl::StrAppend(&text, " ", PlacementText(colwise->output_layouts.placements[0]));
    if (const auto* rowwise = std::get_if<RowwiseParallel>(&entry.style))
      absl::StrAppend(&text, " ", PlacementText(rowwise->output_layouts.placements[0]));
    texts.push_back(text);
  }
  return texts;
}

std::vector<CollectiveRecord> Collectives(Submission submission, const ParallelPlan& plan,
                                          const Bindings& bindings = kNominal) {
  submission.plan = plan;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(compiled->program, bindings);
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? *records : std::vector<CollectiveRecord>();
}

int64_t Bytes(const std::vector<CollectiveRecord>& records) {
  int64_t bytes = 0;
  for (const CollectiveRecord& record : records) bytes += record.bytes;
  return bytes;
}

std::map<std::string, int> Counts(const std::vector<CollectiveRecord>& records) {
  std::map<std::string, int> counts;
  for (const CollectiveRecord& record : records) ++counts[record.op];
  return counts;
}

TEST(FindPlanTest, AnMlpIsColumnsThenRows) {
  for (int degree : {1, 2, 3, 4}) {
    Submission submission = MlpSubmission(8, 13, degree);
    submission.plan.entries.clear();  // play no part
    const AutoPlan plan = Find(submission, {.shapes = {{"x", {1, 8}}}});
    EXPECT_THAT(EntryTexts(plan.plan), ElementsAre("w1 ColwiseParallel S(-1)", "w2 RowwiseParallel R")) << degree;
    EXPECT_EQ(plan.collectives, degree == 1 ? 0 : 1);
    EXPECT_EQ(plan.plan.mesh, submission.plan.mesh);
  }
}

TEST(FindPlanTest, NoMoreBytesThanAPlanByHand) {
  for (int degree : {2, 3, 4}) {
    const Submission submission = TwoByTwoSubmission(6, 10, degree);
    const AutoPlan plan = Find(submission, {.shapes = {{"a", {1, 6}}, {"b", {1, 6}}}});
    const int64_t bytes = Bytes(Collectives(submission, plan.plan));
    EXPECT_EQ(bytes, plan.collective_bytes);
    EXPECT_LE(bytes, Bytes(Collectives(submission, submission.plan)));
    EXPECT_EQ(plan.plan.entries.size(), 3u);  // every Linear is cut
  }
}

TEST(FindPlanTest, ADecoderGetsTheStandardPlan) {
  for (int degree : {2, 4, 8}) {
    const Submission submission = DecoderSubmission({.layers = 3}, degree);
    const AutoPlan plan = Find(submission, {.shapes = kIds});
    EXPECT_THAT(
        EntryTexts(plan.plan),
        UnorderedElementsAre("layers.*.attn.q_proj ColwiseParallel S(-1)", "layers.*.attn.k_proj ColwiseParallel S(-1)",
                             "layers.*.attn.v_proj ColwiseParallel S(-1)", "layers.*.attn.o_proj RowwiseParallel R",
                             "layers.*.mlp.w1 ColwiseParallel S(-1)", "layers.*.mlp.w3 ColwiseParallel S(-1)",
                             "layers.*.mlp.w2 RowwiseParallel R", "head ColwiseParallel S(-1)"));
    EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("embed stays whole on every rank (32896 bytes)")));
    // One less than the standard plan, whose embedding is cut.
    EXPECT_EQ(Counts(Collectives(submission, plan.plan)), (std::map<std::string, int>{{"all_reduce", 2 * 3}}));
    EXPECT_EQ(Counts(Collectives(submission, submission.plan)),
              (std::map<std::string, int>{{"all_reduce", 1 + 2 * 3}}));
  }
}

TEST(FindPlanTest, SequenceParallelCutsTheSequenceBetweenTheWeights) {
  for (int degree : {2, 4}) {
    const Submission submission = SequenceDecoderSubmission({.layers = 3}, degree);
    const AutoPlan plan = Find(submission, {.sequence_parallel = true, .shapes = kIds});
    const std::vector<std::string> texts = EntryTexts(plan.plan);
    for (const char* text :
         {"layers.*.attn.o_proj RowwiseParallel S(1)", "layers.*.mlp.w2 RowwiseParallel S(1)",
          "layers.*.norm1 SequenceParallel", "layers.*.norm2 SequenceParallel", "norm SequenceParallel",
          "layers.*.attn PrepareModuleInput", "layers.*.mlp PrepareModuleInput", "embed PrepareModuleOutput"}) {
      EXPECT_THAT(texts, Contains(text));
    }
    const std::vector<CollectiveRecord> found = Collectives(submission, plan.plan);
    EXPECT_EQ(Counts(found), (std::map<std::string, int>{{"reduce_scatter", 6}, {"all_gather", 7}}));
    EXPECT_LE(Bytes(found), Bytes(Collectives(submission, submission.plan)));
    // Uneven lengths, and fewer tokens than ranks.
    for (int64_t time : {1, 3}) {
      const Bindings bindings{{"batch", 1}, {"time", time}};
      EXPECT_EQ(Counts(Collectives(submission, plan.plan, bindings)).at("reduce_scatter"), 6);
    }
  }
}

int64_t MemoryWith(Submission submission, const ParallelPlan& plan) {
  submission.plan = plan;
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  absl::StatusOr<std::vector<RankMemory>> memory = MemoryOf(*compiled, {{"batch", 1}, {"time", 16}}, false);
  EXPECT_TRUE(memory.ok()) << memory.status();
  int64_t most = 0;
  for (const RankMemory& rank : *memory) {
    most = std::max(most, rank.parameter_bytes + rank.buffer_bytes + rank.activation_bytes + rank.cache_bytes);
  }
  return most;
}

TEST(FindPlanTest, AMemoryLimitCutsTheEmbedding) {
  for (bool sequence : {false, true}) {
    const Submission submission = DecoderSubmission({.vocabulary = 4000}, 4);
    const AutoPlan whole = Find(submission, {.sequence_parallel = sequence, .shapes = kIds});
    const int64_t needed = MemoryWith(submission, whole.plan);
    EXPECT_GT(needed, 4000 * 32 * 4);
    const AutoPlanOptions limited{.sequence_parallel = sequence, .memory_limit = 4000 * 32 * 4 - 1, .shapes = kIds};
    const AutoPlan cut = Find(submission, limited);
    EXPECT_LE(MemoryWith(submission, cut.plan), limited.memory_limit);
    bool embedding = false;
    for (const std::string& text : EntryTexts(cut.plan)) {
      embedding |= text.rfind("embed ColwiseParallel", 0) == 0 || text.rfind("embed RowwiseParallel", 0) == 0;
    }
    EXPECT_TRUE(embedding);
    EXPECT_THAT(cut.notes, Not(Contains(HasSubstr("stays whole"))));
    // A limit that the whole one fits changes nothing, and no note asks for one.
    const AutoPlan fits = Find(submission, {sequence, needed, kIds});
    EXPECT_THAT(fits.notes, Contains(HasSubstr("the memory limit leaves room for that")));
    EXPECT_THAT(fits.notes, Not(Contains(HasSubstr("would cut it"))));
    EXPECT_EQ(EntryTexts(Find(submission, {sequence, needed, kIds}).plan), EntryTexts(whole.plan));
  }
}

TEST(FindPlanTest, NoPlanFitsATinyLimit) {
  const absl::Status status = FindPlan(DecoderSubmission({}, 2), {.memory_limit = 1000, .shapes = kIds}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no plan fits a memory limit of 1000 bytes a rank"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes on rank 0 (parameters "));
}

TEST(FindPlanTest, HeadsThatCantBeCutAreRefusedAsInCompile) {
  const absl::Status status = FindPlan(DecoderSubmission({}, 3), {.shapes = kIds}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("8 query heads and 4 key-value heads can't be cut over 3 ranks; legal degrees: 1, 2, 4, 8"));
}

TEST(FindPlanTest, ATiedEmbeddingGoesWithTheHead) {
  Submission submission = DecoderSubmission({}, 4);
  submission.weights["head.weight"] = {.kind = WeightSource::Kind::kAlias, .path = "embed.weight"};
  for (bool sequence : {false, true}) {
    const AutoPlan plan = Find(submission, {.sequence_parallel = sequence, .shapes = kIds});
    EXPECT_THAT(Collectives(submission, plan.plan), Not(IsEmpty()));
    EXPECT_THAT(EntryTexts(plan.plan), Contains("head ColwiseParallel S(-1)"));
  }
}

// Children that are Linears themselves keep their names: what each is depends on its neighbours.
TEST(FindPlanTest, EqualLinearsInARowAreDecidedOneByOne) {
  Submission submission;
  submission.name = "row";
  submission.model.root.config = SequentialConfig{};
  for (int i = 0; i < 4; ++i) {
    submission.model.root.children.push_back(
        {.name = absl::StrCat(i), .config = LinearConfig{.in_features = 8, .out_features = 8}});
  }
  submission.model.inputs = {{"input", DType::kF32, {Dim::Symbol("batch"), Dim(8)}}};
  submission.plan.mesh = tp::testing::Tp(2);
  const AutoPlan plan = Find(submission, {.shapes = {{"input", {1, 8}}}});
  ASSERT_EQ(plan.plan.entries.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(plan.plan.entries[i].pattern, absl::StrCat(i));
  ParallelPlan pairs = plan.plan;
  pairs.entries = {tp::testing::Colwise("0"), tp::testing::Rowwise("1"), tp::testing::Colwise("2"),
                   tp::testing::Rowwise("3")};
  EXPECT_LE(Bytes(Collectives(submission, plan.plan)), Bytes(Collectives(submission, pairs)));
}

TEST(FindPlanTest, AModelWithoutLinearsHasAnEmptyPlan) {
  Submission submission;
  submission.name = "norm";
  submission.model.root.config = RMSNormConfig{8, 1e-5};
  submission.model.inputs = {{"input", DType::kF32, {Dim::Symbol("batch"), Dim(8)}}};
  submission.plan.mesh = tp::testing::Tp(2);
  const AutoPlan plan = Find(submission, {.shapes = {{"input", {1, 8}}}});
  EXPECT_THAT(plan.plan.entries, IsEmpty());
  EXPECT_THAT(plan.notes, Contains(HasSubstr("no Linear")));
}

TEST(FindPlanTest, LinearsThatHaveShardingsAreNotCalledMissing) {
  Submission submission = MlpSubmission(8, 12, 2);
  submission.plan.entries.clear();
  for (Module& child : submission.model.root.children) {
    child.sharding = ShardingConfig{};
    child.sharding->state_shardings["weight"] = {{"tp", Placement::Shard(child.name == "w1" ? 0 : 1)}};
  }
  const AutoPlan plan = Find(submission, {.shapes = {{"x", {1, 8}}}});
  EXPECT_THAT(plan.plan.entries, IsEmpty());
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("2 modules have a sharding of their own"),
                                      HasSubstr("every Linear that the model calls is placed by a sharding")));
  submission.model.root.children[1].sharding.reset();
  EXPECT_THAT(Find(submission, {.shapes = {{"x", {1, 8}}}}).notes,
              ElementsAre(HasSubstr("1 module has a sharding of its own and is left as it is")));
}

TEST(FindPlanTest, WithoutASequenceItSaysSo) {
  const AutoPlan plan = Find(MlpSubmission(8, 12, 2), {.sequence_parallel = true, .shapes = {{"x", {1, 8}}}});
  EXPECT_THAT(plan.notes, Contains(HasSubstr("no sequence to cut")));
  EXPECT_THAT(EntryTexts(plan.plan), ElementsAre("w1 ColwiseParallel S(-1)", "w2 RowwiseParallel R"));
}

TEST(FindPlanTest, OtherAxesStayAsTheyAre) {
  Submission submission = MlpSubmission(8, 12, 2);
  submission.plan.mesh = {{"dp", 2}, {"tp", 2}};
  submission.plan.batch_axes = {"dp"};
  const AutoPlan plan = Find(submission, {.shapes = {{"x", {4, 8}}}});
  EXPECT_THAT(plan.plan.batch_axes, ElementsAre("dp"));
  EXPECT_THAT(EntryTexts(plan.plan), ElementsAre("w1 ColwiseParallel S(-1)", "w2 RowwiseParallel R"));
}

}  // namespace
}  // namespace tp
