// The six styles on modules: what they refuse, how they combine, what they claim (SEMANTICS 5 and 6).
#include "common/program/styles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/compile.h"
#include "common/program/memory.h"
#include "tests/support/model_builders.h"

namespace tp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tp::testing::CallChild;
using tp::testing::CallFunction;
using tp::testing::Colwise;
using tp::testing::PreparedInput;
using tp::testing::PreparedOutput;
using tp::testing::Rowwise;
using tp::testing::Styled;
using tp::testing::Tp;

// block(x, gate?) = relu(x) * gate, or relu(x); two outputs: that and x. The root calls it in the way of `call`.
Submission BlockSubmission(std::vector<Argument> call, PlanEntry entry) {
  CompositeConfig block{.type_name = "Block",
                        .inputs = {{"x", false}, {"gate", true}},
                        .nodes = {CallFunction("r", "relu", {"x"})},
                        .outputs = {{"y", "r"}, {"same", "x"}},
                        .states = {}};
  if (call.size() > 1) {
    block.nodes.push_back(CallFunction("m", "mul", {"r", "gate"}));
    block.outputs[0].value = "m";
  }
  GraphNode node = CallChild("b", "block", {});
  node.arguments = std::move(call);
  node.outputs = {"b", "rest"};
  Submission submission;
  submission.name = "block";
  submission.model.root.config = CompositeConfig{.type_name = "Root",
                                                 .inputs = {{"x"}, {"gate"}},
                                                 .nodes = {node},
                                                 .outputs = {{"y", "b"}, {"rest", "rest"}},
                                                 .states = {}};
  submission.model.root.children = {{.name = "block", .config = block, .children = {}, .param_init = {}}};
  for (const char* name : {"x", "gate"}) {
    submission.model.inputs.push_back({name, DType::kF32, {Dim::Symbol("batch"), Dim::Symbol("time"), Dim(8)}});
  }
  submission.plan.mesh = Tp(2);
  submission.plan.entries = {std::move(entry)};
  return submission;
}
const std::vector<Argument> kPositional{{"", "x"}, {"", "gate"}};
const std::vector<Argument> kNamedGate{{"", "x"}, {"gate", "gate"}};
const std::vector<Argument> kNoGate{{"", "x"}};

absl::Status StatusOf(const Submission& submission) { return CompileForward(submission).status(); }

CompiledModel Compile(const Submission& submission) {
  absl::StatusOr<CompiledModel> compiled = CompileForward(submission);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *compiled : CompiledModel{};
}

const PlacedModule& ModuleAt(const CompiledModel& model, const std::string& path) {
  for (const PlacedModule& module : model.modules) {
    if (module.path == path) return module;
  }
  static const auto* none = new PlacedModule();
  return *none;
}

std::vector<std::string> OpsOf(const CompiledModel& model) {
  absl::StatusOr<std::vector<CollectiveRecord>> records = CollectivesOf(model.program, {{"batch", 2}, {"time", 16}});
  EXPECT_TRUE(records.ok()) << records.status();
  std::vector<std::string> ops;
  for (const CollectiveRecord& record : *records) ops.push_back(record.module + " " + record.op);
  return ops;
}

PrepareModuleInput Inputs(std::vector<Layout> declared, std::vector<Layout> desired,
                          std::map<std::string, Layout> named = {}, std::map<std::string, Layout> desired_named = {}) {
  return {.input_layouts = std::move(declared),
          .desired_input_layouts = std::move(desired),
          .input_kwarg_layouts = std::move(named),
          .desired_input_kwarg_layouts = std::move(desired_named)};
}
PrepareModuleOutput Outputs(std::vector<Layout> declared, std::vector<Layout> desired) {
  return {.output_layouts = std::move(declared), .desired_output_layouts = std::move(desired)};
}
PrepareModuleInputOutput Both(std::vector<Layout> inputs, std::vector<Layout> outputs) {
  return {.input_layouts = inputs,
          .desired_input_layouts = inputs,
          .input_kwarg_layouts = {},
          .desired_input_kwarg_layouts = {},
          .output_layouts = outputs,
          .desired_output_layouts = outputs};
}
template <typename StyleT>
StyleT From(int source) {
  StyleT style;
  style.src_data_rank = source;
  return style;
}
ColwiseParallel ColwiseTo(Layout output) {
  ColwiseParallel style;
  style.output_layouts = std::move(output);
  return style;
}

const Layout kNone;
const Layout kR = Placement::Replicate();
const Layout kS0 = Placement::Shard(0);
const Layout kS1 = Placement::Shard(1);

struct RefusedCase {
  std::string name;
  Submission submission;
  std::string message;
};
class RefusedStyleTest : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedStyleTest, SaysWhyAndWhere) {
  for (int degree : {2, 1}) {  // wrong at every degree alike
    Submission submission = GetParam().submission;
    if (submission.plan.mesh.size() == 1) submission.plan.mesh = Tp(degree);
    const absl::Status status = StatusOf(submission);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << degree << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message)) << degree;
  }
}

Submission Mlp(PlanEntry entry, std::vector<MeshAxis> mesh = Tp(2)) {
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  submission.plan.entries = {std::move(entry)};
  submission.plan.mesh = std::move(mesh);
  return submission;
}
const std::vector<MeshAxis> kTwoAxes{{"dp", 2}, {"tp", 2}};

INSTANTIATE_TEST_SUITE_P(
    Messages, RefusedStyleTest,
    ::testing::Values(
        RefusedCase{"Colwise", Mlp(Colwise("")),
                    "the root module: ColwiseParallel supports Linear and Embedding modules"},
        RefusedCase{"Rowwise", BlockSubmission(kPositional, Rowwise("block")),
                    "block: RowwiseParallel supports Linear and Embedding modules"},
        RefusedCase{"Pairs", BlockSubmission(kPositional, Styled("block", Inputs({kR, kR}, {kR}))),
                    "block: input_layouts and desired_input_layouts must be provided together with equal length"},
        RefusedCase{"OnlyDesired", BlockSubmission(kPositional, Styled("block", Inputs({}, {kR, kR}))),
                    "block: input_layouts and desired_input_layouts must be provided together with equal length"},
        RefusedCase{"Keys", BlockSubmission(kNamedGate, Styled("block", Inputs({}, {}, {{"gate", kR}}, {{"x", kR}}))),
                    "block: input keyword layout maps must contain equal keys"},
        RefusedCase{"UnknownKey",
                    BlockSubmission(kNamedGate, Styled("block", Inputs({}, {}, {{"gat", kR}}, {{"gat", kR}}))),
                    "block: input_kwarg_layouts: Block has no argument 'gat'; nearest: gate"},
        RefusedCase{"Outputs", BlockSubmission(kPositional, Styled("block", Outputs({kR, kR}, {kR}))),
                    "block: output layouts must have equal length"},
        RefusedCase{"NoOutputs", BlockSubmission(kPositional, Styled("block", PrepareModuleOutput{})),
                    "block: a layout is required"},
        RefusedCase{"NoLayout", Mlp(Styled("w1", ColwiseTo(kNone))), "w1: output_layouts: a layout is required"},
        RefusedCase{"InputCount", BlockSubmission(kPositional, Styled("block", Inputs({kR}, {kR}))),
                    "plan.entries[0] 'block': block: module input count does not match input layouts"},
        RefusedCase{"InputCountMany", BlockSubmission(kNoGate, Styled("block", Inputs({kR, kR, kR}, {kR, kR, kR}))),
                    "plan.entries[0] 'block': block: module input count does not match input layouts"},
        RefusedCase{"OutputCount", BlockSubmission(kPositional, Styled("block", Outputs({kR}, {kR}))),
                    "plan.entries[0] 'block': block: module output count does not match output layouts"},
        RefusedCase{"BothOutputCount", BlockSubmission(kPositional, Styled("block", Both({kR, kR}, {kR}))),
                    "plan.entries[0] 'block': block: module output count does not match output layouts"},
        RefusedCase{"SequenceDim", Mlp(Styled("w1", SequenceParallel{.sequence_dim = 2})), "w1: "},
        RefusedCase{"ListLength", Mlp(Styled("w1", ColwiseTo(Layout::List({kR.placements[0], kR.placements[0]})))),
                    "w1: output_layouts: layout count must equal mesh rank"},
        RefusedCase{"ListOfOne", Mlp(Styled("w1", ColwiseTo(Layout::List({Placement::Shard(1)}))), kTwoAxes),
                    "w1: output_layouts: layout count must equal mesh rank"},
        RefusedCase{"MapAxis", Mlp(Styled("w1", ColwiseTo(Layout::Map({{"pp", Placement::Shard(1)}})))),
                    "w1: output_layouts: axes not in mesh: {pp}"},
        RefusedCase{"NegativeSource", Mlp(Styled("w1", From<ColwiseParallel>(-1))),
                    "w1: src_data_rank is -1; must not be negative"},
        RefusedCase{"LargeSource", Mlp(Styled("", From<PrepareModuleInput>(2))),
                    "the root module: src_data_rank is 2; axis 'tp' has "},
        RefusedCase{
            "PositionalAndNamed",
            BlockSubmission(kPositional, Styled("block", Inputs({kR, kR}, {kR, kR}, {{"gate", kR}}, {{"gate", kR}}))),
            "argument 'gate' has a layout in input_layouts and in input_kwarg_layouts"}),
    [](const auto& each) { return each.param.name; });

TEST(StylesTest, ClaimsAreComparedWithTheRealPlacement) {
  // relu(w1(x)) is S(1) on tp.
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  submission.plan.entries.push_back(PreparedInput("w2", kR, kNone));
  EXPECT_THAT(std::string(StatusOf(submission).message()),
              HasSubstr("w2: input_layouts[0] of 'w2' says R, the input is S(1)"));
  submission.plan.entries.back() = PreparedOutput("w1", kS0, kR);
  EXPECT_THAT(std::string(StatusOf(submission).message()),
              HasSubstr("w1: output_layouts[0] of 'w1' says S(0), the output is S(1)"));
  submission.plan.mesh = kTwoAxes;
  EXPECT_THAT(std::string(StatusOf(submission).message()),
              HasSubstr("w1: output_layouts[0] of 'w1' says tp=S(0), the output is tp=S(1)"));
}

TEST(StylesTest, DeclaredWithDesiredNoneIsCheckedAndNotMoved) {
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  submission.plan.entries.insert(submission.plan.entries.begin(), PreparedInput("w2", Placement::Shard(-1), kNone));
  const CompiledModel model = Compile(submission);
  EXPECT_THAT(OpsOf(model), ElementsAre("w2 all_reduce"));
  EXPECT_THAT(ModuleAt(model, "w2").inputs, ElementsAre(HasSubstr("tp=S(1)")));
}

TEST(StylesTest, NoneLeavesAValueAloneAndADesiredLayoutOfItWarns) {
  const CompiledModel model = Compile(BlockSubmission(kPositional, Styled("block", Inputs({kNone, kS1}, {kS0, kR}))));
  EXPECT_THAT(ModuleAt(model, "block").inputs, ElementsAre(HasSubstr("tp=R"), HasSubstr("tp=R")));
  EXPECT_THAT(OpsOf(model), ElementsAre("block all_gather"));  // the gate arrives S(1) and is moved to R
  EXPECT_THAT(model.warnings, ElementsAre(AllOf(HasSubstr("entries[0] 'block'"), HasSubstr("input 0 has no effect"))));
}

TEST(StylesTest, ArgumentsByPositionAndByName) {
  for (const std::vector<Argument>& call : {kPositional, kNamedGate}) {
    Submission submission =
        BlockSubmission(call, Styled("block", Inputs({kS1}, {kS1}, {{"gate", kR}}, {{"gate", kS1}})));
    const CompiledModel model = Compile(submission);
    EXPECT_THAT(ModuleAt(model, "block").inputs, ElementsAre(HasSubstr("tp=S(1)"), HasSubstr("tp=S(1)")));
    EXPECT_TRUE(OpsOf(model).empty());  // a slice
  }
  // One argument by position, the other by name: one layout is enough; and an argument that is not passed is skipped.
  EXPECT_TRUE(StatusOf(BlockSubmission(kNamedGate, Styled("block", Inputs({kR}, {kS1})))).ok());
  EXPECT_TRUE(
      StatusOf(BlockSubmission(kNoGate, Styled("block", Inputs({kR}, {kS1}, {{"gate", kS0}}, {{"gate", kR}})))).ok());
  EXPECT_TRUE(StatusOf(BlockSubmission(kNoGate, Styled("block", Inputs({kR, kNone}, {kS1, kNone})))).ok());
}

TEST(StylesTest, TheFirstArgumentIsMeantHoweverItIsPassed) {
  const std::vector<Argument> by_name{{"gate", "gate"}, {"x", "x"}};
  const CompiledModel model = Compile(BlockSubmission(by_name, Styled("block", SequenceParallel{})));
  EXPECT_THAT(ModuleAt(model, "block").inputs, ElementsAre(HasSubstr("tp=S(1)"), HasSubstr("tp=R")));
  EXPECT_THAT(ModuleAt(model, "block").outputs, ElementsAre(HasSubstr("tp=S(1)"), HasSubstr("tp=S(1)")));
  EXPECT_TRUE(OpsOf(model).empty());
}

TEST(StylesTest, OutputsKeepTheirStructure) {
  const CompiledModel model =
      Compile(BlockSubmission(kPositional, Styled("block", Outputs({kR, kNone}, {kS1, kNone}))));
  EXPECT_THAT(ModuleAt(model, "block").outputs, ElementsAre(HasSubstr("tp=S(1)"), HasSubstr("tp=R")));
  const CompiledModel both = Compile(BlockSubmission(kPositional, Styled("block", Both({kS1, kS1}, {kS1, kNone}))));
  EXPECT_THAT(ModuleAt(both, "block").inputs, ElementsAre(HasSubstr("tp=S(1)"), HasSubstr("tp=S(1)")));
  EXPECT_TRUE(OpsOf(both).empty());
}

// CASES 23 and its kind: states that two entries would place.
TEST(StylesTest, TwoEntriesForOneStateNameBoth) {
  Submission submission = tp::testing::SequenceDecoderSubmission({}, 2);
  submission.plan.entries.push_back(Styled("layers.0.attn", SequenceParallel{}));
  EXPECT_THAT(std::string(StatusOf(submission).message()),
              AllOf(HasSubstr("two patterns shard layers.0.attn.q_proj: plan.entries[1] 'layers.*.attn.q_proj' and "
                              "plan.entries[14] 'layers.0.attn'"),
                    ::testing::Not(HasSubstr("layers.1"))));
  submission.plan.entries.back() = Styled("layers.0.norm1", SequenceParallel{});
  EXPECT_THAT(std::string(StatusOf(submission).message()), HasSubstr("two patterns shard layers.0.norm1"));
  submission.plan.entries.back() = Styled("layers.0.normX", SequenceParallel{});
  EXPECT_THAT(std::string(StatusOf(submission).message()), HasSubstr("nearest: layers.0.norm"));
}

TEST(StylesTest, EntriesThatShareAModuleApplyInPlanOrder) {
  // x arrives S(0) for the first entry, goes to S(1), and w1 gathers it; what w1 makes is gathered by the third.
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  submission.plan.entries = {PreparedInput("w1", kS0, kS1), Colwise("w1"), PreparedOutput("w1", kS1, kR)};
  const CompiledModel model = Compile(submission);
  EXPECT_THAT(OpsOf(model), ElementsAre("w1 all_to_all", "w1 all_gather", "w1 all_gather"));
  EXPECT_THAT(ModuleAt(model, "w1").style,
              AllOf(HasSubstr("; ColwiseParallel(input"), HasSubstr("; PrepareModuleOutput(output")));
  // After w1's own style the input is R: the claim S(0) of the same entries in another order is wrong.
  std::swap(submission.plan.entries[0], submission.plan.entries[1]);
  EXPECT_THAT(std::string(StatusOf(submission).message()), HasSubstr("'w1' says S(0), the input is R"));
}

TEST(StylesTest, AStyleThatIsUsedTwiceDoesNotChange) {
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  const std::string before = StyleText(submission.plan.entries[0].style);
  const CompiledModel first = Compile(submission);
  EXPECT_EQ(StyleText(submission.plan.entries[0].style), before);
  EXPECT_EQ(Compile(submission).fingerprint, first.fingerprint);
}

// Each with its entry and its field, all at once; the claim behind the first is not judged by what became of it.
TEST(StylesTest, LayoutsThatDoNotFitAreToldTogether) {
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  ColwiseParallel far;
  far.output_layouts = Placement::Shard(5);
  RowwiseParallel farther;
  farther.input_layouts = Placement::Shard(1);
  farther.output_layouts = Placement::Shard(7);
  submission.plan.entries = {Styled("w1", far), Styled("w2", farther)};
  submission.plan.entries[1].input_layouts_written = true;
  const std::string text(StatusOf(submission).message());
  EXPECT_THAT(text, HasSubstr("plan.entries[0] 'w1': w1: output_layouts: "));
  EXPECT_THAT(text, HasSubstr("plan.entries[1] 'w2': w2: output_layouts: "));
  EXPECT_THAT(text, HasSubstr("5"));
  EXPECT_THAT(text, HasSubstr("7"));
  EXPECT_THAT(text, Not(HasSubstr("says")));
}

TEST(StylesTest, AStyleActsOnThePlansAxisOnly) {
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  submission.plan.mesh = kTwoAxes;
  submission.plan.batch_axes = {"dp"};
  const CompiledModel model = Compile(submission);
  EXPECT_TRUE(model.warnings.empty());  // no axis computes copies
  EXPECT_THAT(ModuleAt(model, "w1").inputs, ElementsAre(HasSubstr("dp=S(0),tp=R")));
  EXPECT_THAT(ModuleAt(model, "w1").outputs, ElementsAre(HasSubstr("dp=S(0),tp=S(1)")));
  EXPECT_THAT(ModuleAt(model, "w2").outputs, ElementsAre(HasSubstr("dp=S(0),tp=R")));
  EXPECT_THAT(OpsOf(model), ElementsAre("w2 all_reduce"));
  // The axis by name, though the other comes first.
  submission.plan.mesh = {{"model", 2}, {"dp", 2}};
  submission.plan.axis = "model";
  EXPECT_THAT(ModuleAt(Compile(submission), "w1").outputs, ElementsAre(HasSubstr("model=S(1),dp=S(0)")));
}

TEST(StylesTest, ListsAndMapsPlaceSeveralAxes) {
  Submission submission = tp::testing::MlpSubmission(4, 6, 2);
  submission.plan.mesh = kTwoAxes;
  submission.plan.entries = {PreparedInput("w1", Layout::List({Placement::Shard(0), Placement::Shard(1)}),
                                           Layout::Map({{"tp", Placement::Replicate()}})),
                             Colwise("w1"), Rowwise("w2")};
  const CompiledModel model = Compile(submission);
  EXPECT_EQ(PlacementsText(model.mesh, model.program.values[model.program.operands[0].value].spec.placements),
            "dp=S(0),tp=S(1)");
  EXPECT_THAT(ModuleAt(model, "w1").inputs, ElementsAre(HasSubstr("dp=S(0),tp=R")));
}

TEST(StylesTest, BatchAxesOfALanguageModelLeaveItsStepsWhole) {
  Submission submission = tp::testing::DecoderSubmission({.layers = 1}, 2);
  submission.plan.mesh = kTwoAxes;
  submission.plan.batch_axes = {"dp"};
  const CompiledModel model = Compile(submission);
  EXPECT_THAT(OpsOf(model),
              ElementsAre("embed all_reduce", "layers.0.attn.o_proj all_reduce", "layers.0.mlp.w2 all_reduce"));
  EXPECT_THAT(model.warnings, IsEmpty());
  EXPECT_THAT(model.replica_axes, ElementsAre(0));  // each coordinate of dp generates for itself
  for (const ProgramValue& value : model.step_program->values) {
    EXPECT_TRUE(value.spec.placements[0].IsReplicate()) << value.name;
  }
}

TEST(StylesTest, SequenceParallelNeedsAnInput) {
  Submission submission = tp::testing::DecoderSubmission({}, 2);
  submission.plan.entries = {Styled("layers", SequenceParallel{})};
  EXPECT_THAT(std::string(StatusOf(submission).message()),
              HasSubstr("layers: expecting input of SequenceParallel to be a tensor or DTensor, but got None"));
}

// SEMANTICS 8, case 9.
TEST(StylesTest, SequenceParallelDecoderScattersAndGathers) {
  for (int degree : {2, 4, 8}) {
    Submission submission = tp::testing::SequenceDecoderSubmission({.layers = 3}, degree);
    const CompiledModel model = Compile(submission);
    std::vector<std::string> wanted{"embed reduce_scatter"};
    for (int layer = 0; layer < 3; ++layer) {
      const std::string path = "layers." + std::to_string(layer);
      wanted.insert(wanted.end(), {path + ".attn all_gather", path + ".attn.o_proj reduce_scatter",
                                   path + ".mlp all_gather", path + ".mlp.w2 reduce_scatter"});
    }
    wanted.push_back("head all_gather");
    EXPECT_EQ(OpsOf(model), wanted) << degree;
    EXPECT_THAT(ModuleAt(model, "layers.1.norm2").inputs, ElementsAre(HasSubstr("tp=S(1)")));
    EXPECT_THAT(ModuleAt(model, "layers.1").outputs, ElementsAre(HasSubstr("tp=S(1)")));
    EXPECT_THAT(model.warnings, ElementsAre());
    std::get<ColwiseParallel>(submission.plan.entries[8].style).output_layouts = Placement::Replicate();
    wanted.push_back("head all_gather");
    EXPECT_EQ(OpsOf(Compile(submission)), wanted) << degree;
  }
}

TEST(StylesTest, NormsAndSumsRunOnTheirPartOfTheSequence) {
  const CompiledModel model = Compile(tp::testing::SequenceDecoderSubmission({.layers = 1}, 2));
  for (const Instruction& instruction : model.program.instructions) {
    if (instruction.function != "rms_norm" && instruction.function != "add") continue;
    const DTensorSpec& spec = model.program.values[instruction.outputs[0]].spec;
    EXPECT_EQ(spec.placements, Placements{Placement::Shard(1)}) << instruction.module_path;
  }
}

}  // namespace
}  // namespace tp
