// Plans in text and JSON: every style with every field, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/proto_convert/model.h"
#include "common/proto_convert/submission_file.h"

namespace tp {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = "model { root { identity {} } } ";

absl::StatusOr<Submission> ParseText(const std::string& entries) {
  return ParseSubmission(
      std::string(kModel) + "plan { mesh { axes { name: 'dp' size: 2 } axes { name: 'tp' size: 4 } } " + entries + " }",
      SubmissionFormat::kText);
}

struct StyleCase {
  std::string name;
  std::string text;  // of the entry's style
  std::string json;
  Style style;
};
class PlanStyleTest : public ::testing::TestWithParam<StyleCase> {};

TEST_P(PlanStyleTest, TextAndJsonGiveEveryFieldAndComeBack) {
  const StyleCase& test = GetParam();
  absl::StatusOr<Submission> text = ParseText("entries { pattern: 'm' " + test.text + " }");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->plan.entries[0].style == test.style) << StyleText(text->plan.entries[0].style);
  absl::StatusOr<Submission> json =
      ParseSubmission(R"({"model": {"root": {"identity": {}}}, "plan": {"mesh": {"axes": [{"name": "dp", "size": 2}, )"
                      R"({"name": "tp", "size": 4}]}, "entries": [{"pattern": "m", )" +
                          test.json + "}]}}",
                      SubmissionFormat::kJson);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(json->plan.entries[0].style == test.style) << StyleText(json->plan.entries[0].style);
  for (SubmissionFormat format : {SubmissionFormat::kBinary, SubmissionFormat::kText, SubmissionFormat::kJson}) {
    absl::StatusOr<Submission> back = ParseSubmission(SerializeSubmission(*text, format), format);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(back->plan.entries[0].style == test.style) << StyleText(back->plan.entries[0].style);
    EXPECT_EQ(back->plan.entries[0].input_layouts_written, text->plan.entries[0].input_layouts_written);
  }
}

template <typename StyleT>
StyleT Weights(Layout input, Layout output, bool local, int source) {
  return {.input_layouts = std::move(input),
          .output_layouts = std::move(output),
          .use_local_output = local,
          .src_data_rank = source};
}
PrepareModuleInput Input() {
  PrepareModuleInput style;
  style.input_layouts = {Placement::Shard(1), Layout()};
  style.desired_input_layouts = {Placement::Replicate(), Layout()};
  style.input_kwarg_layouts = {{"mask", Placement::Shard(0)}};
  style.desired_input_kwarg_layouts = {{"mask", Layout()}};
  style.use_local_output = true;
  style.src_data_rank = 3;
  return style;
}
PrepareModuleInputOutput InputOutput() {
  PrepareModuleInputOutput style;
  style.input_layouts = {Placement::Shard(-1)};
  style.desired_input_layouts = {Layout::Map({{"dp", Placement::Shard(0)}})};
  style.use_local_input = true;
  style.output_layouts = {Placement::Partial(ReduceOp::kAvg)};
  style.desired_output_layouts = {Layout::List({Placement::Replicate(), Placement::GroupShard(0, 2)})};
  style.use_local_output = false;
  style.src_data_rank = 1;
  return style;
}
ShardingConfig Sharding() {
  ShardingConfig sharding;
  sharding.state_shardings = {
      {"fc.weight", {{"dp", Placement::Replicate()}, {"tp", Placement::InterleavedShard(0, {8, 2, 2})}}}};
  sharding.in_src_shardings = {{"x", {{"dp", Placement::Shard(0)}}}};
  sharding.in_dst_shardings = {{"x", {}}};
  sharding.out_src_shardings = {{"0", {{"tp", Placement::Partial(ReduceOp::kMax)}}}};
  sharding.out_dst_shardings = {{"0", {{"tp", Placement::GroupShard(1, 2)}}}};
  sharding.local_map = true;
  return sharding;
}

INSTANTIATE_TEST_SUITE_P(
    Styles, PlanStyleTest,
    ::testing::Values(
        StyleCase{"ColwiseDefaults", "colwise_parallel {}", R"("colwise_parallel": {})", ColwiseParallel{}},
        StyleCase{"Colwise",
                  "colwise_parallel { input_layouts { shard { dim: 1 } } output_layouts { replicate {} } "
                  "use_local_output: false src_data_rank: 2 }",
                  R"("colwise_parallel": {"input_layouts": {"shard": {"dim": 1}}, "output_layouts": {"replicate": {}},
                     "use_local_output": false, "src_data_rank": 2})",
                  Weights<ColwiseParallel>(Placement::Shard(1), Placement::Replicate(), false, 2)},
        StyleCase{"ColwiseWithoutLayout", "colwise_parallel { output_layouts {} }",
                  R"("colwise_parallel": {"output_layouts": {}})",
                  Weights<ColwiseParallel>(Placement::Replicate(), Layout(), true, 0)},
        StyleCase{"RowwiseList",
                  "rowwise_parallel { output_layouts { list { shard { dim: 0 } } list { shard { dim: 1 } } } }",
                  R"("rowwise_parallel": {"output_layouts": {"list": [{"shard": {"dim": 0}}, {"shard": {"dim": 1}}]}})",
                  Weights<RowwiseParallel>(Placement::Shard(-1),
                                           Layout::List({Placement::Shard(0), Placement::Shard(1)}), true, 0)},
        StyleCase{"RowwiseMap",
                  "rowwise_parallel { input_layouts { strided_shard { dim: 0 split_factor: 2 } } "
                  "output_layouts { axes { key: 'tp' value { interleaved_shard { dim: 1 parts: [8, 2, 2] } } } } }",
                  R"("rowwise_parallel": {"input_layouts": {"strided_shard": {"dim": 0, "split_factor": 2}},
                     "output_layouts": {"axes": {"tp": {"interleaved_shard": {"dim": 1, "parts": [8, 2, 2]}}}}})",
                  Weights<RowwiseParallel>(Placement::StridedShard(0, 2),
                                           Layout::Map({{"tp", Placement::InterleavedShard(1, {8, 2, 2})}}), true, 0)},
        StyleCase{"SequenceDefaults", "sequence_parallel {}", R"("sequence_parallel": {})", SequenceParallel{}},
        StyleCase{"Sequence", "sequence_parallel { sequence_dim: 0 use_local_output: true src_data_rank: 1 }",
                  R"("sequence_parallel": {"sequence_dim": 0, "use_local_output": true, "src_data_rank": 1})",
                  SequenceParallel{.sequence_dim = 0, .use_local_output = true, .src_data_rank = 1}},
        StyleCase{"Input",
                  "prepare_module_input { input_layouts { shard { dim: 1 } } input_layouts {} "
                  "desired_input_layouts { replicate {} } desired_input_layouts {} "
                  "input_kwarg_layouts { key: 'mask' value { shard { dim: 0 } } } "
                  "desired_input_kwarg_layouts { key: 'mask' value {} } use_local_output: true src_data_rank: 3 }",
                  R"("prepare_module_input": {"input_layouts": [{"shard": {"dim": 1}}, {}],
                     "desired_input_layouts": [{"replicate": {}}, {}],
                     "input_kwarg_layouts": {"mask": {"shard": {"dim": 0}}},
                     "desired_input_kwarg_layouts": {"mask": {}}, "use_local_output": true, "src_data_rank": 3})",
                  Input()},
        StyleCase{"EmptyInput", "prepare_module_input {}", R"("prepare_module_input": {})", PrepareModuleInput{}},
        StyleCase{
            "Output",
            "prepare_module_output { output_layouts { replicate {} } desired_output_layouts { shard { dim: 1 } } }",
            R"("prepare_module_output": {"output_layouts": [{"replicate": {}}],
                     "desired_output_layouts": [{"shard": {"dim": 1}}]})",
            PrepareModuleOutput{.output_layouts = {Placement::Replicate()},
                                .desired_output_layouts = {Placement::Shard(1)}}},
        StyleCase{"InputOutput",
                  "prepare_module_input_output { input_layouts { shard { dim: -1 } } "
                  "desired_input_layouts { axes { key: 'dp' value { shard { dim: 0 } } } } use_local_input: true "
                  "output_layouts { partial { op: OP_AVG } } desired_output_layouts { list { replicate {} } "
                  "list { group_shard { dim: 0 groups: 2 } } } use_local_output: false src_data_rank: 1 }",
                  R"("prepare_module_input_output": {"input_layouts": [{"shard": {"dim": -1}}],
                     "desired_input_layouts": [{"axes": {"dp": {"shard": {"dim": 0}}}}], "use_local_input": true,
                     "output_layouts": [{"partial": {"op": "OP_AVG"}}], "desired_output_layouts":
                     [{"list": [{"replicate": {}}, {"group_shard": {"dim": 0, "groups": 2}}]}],
                     "use_local_output": false, "src_data_rank": 1})",
                  InputOutput()},
        StyleCase{"EmptySharding", "sharding {}", R"("sharding": {})", ShardingConfig{}},
        StyleCase{"Sharding",
                  "sharding { state_shardings { key: 'fc.weight' value { axes { key: 'dp' value { replicate {} } } "
                  "axes { key: 'tp' value { interleaved_shard { dim: 0 parts: [8, 2, 2] } } } } } "
                  "in_src_shardings { key: 'x' value { axes { key: 'dp' value { shard { dim: 0 } } } } } "
                  "in_dst_shardings { key: 'x' value {} } "
                  "out_src_shardings { key: '0' value { axes { key: 'tp' value { partial { op: OP_MAX } } } } } "
                  "out_dst_shardings { key: '0' value { axes { key: 'tp' value { group_shard { dim: 1 groups: 2 } } } "
                  "} } local_map: true }",
                  R"("sharding": {"state_shardings": {"fc.weight": {"axes": {"dp": {"replicate": {}},
                     "tp": {"interleaved_shard": {"dim": 0, "parts": [8, 2, 2]}}}}},
                     "in_src_shardings": {"x": {"axes": {"dp": {"shard": {"dim": 0}}}}}, "in_dst_shardings": {"x": {}},
                     "out_src_shardings": {"0": {"axes": {"tp": {"partial": {"op": "OP_MAX"}}}}},
                     "out_dst_shardings": {"0": {"axes": {"tp": {"group_shard": {"dim": 1, "groups": 2}}}}},
                     "local_map": true})",
                  Sharding()}),
    [](const auto& each) { return each.param.name; });

struct BadPlan {
  std::string name;
  std::string text;
  std::string error;
};
class PlanRefusalTest : public ::testing::TestWithParam<BadPlan> {};

TEST_P(PlanRefusalTest, SaysWhere) {
  absl::StatusOr<Submission> submission = ParseText(GetParam().text);
  ASSERT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument) << submission.status();
  EXPECT_THAT(std::string(submission.status().message()), HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    All, PlanRefusalTest,
    ::testing::Values(
        BadPlan{"SourceRank", "entries { sequence_parallel { src_data_rank: -1 } }",
                "plan.entries[0].sequence_parallel.src_data_rank: is -1; must not be negative"},
        BadPlan{"TwoForms", "entries { colwise_parallel { output_layouts { replicate {} list { replicate {} } } } }",
                "plan.entries[0].colwise_parallel.output_layouts: one placement, list and axes exclude each other"},
        BadPlan{"Groups", "entries { prepare_module_input { input_layouts { group_shard { groups: 0 } } } }",
                "plan.entries[0].prepare_module_input.input_layouts[0]"},
        BadPlan{"MapKind", "entries { prepare_module_output { output_layouts { axes { key: 'tp' value {} } } } }",
                "plan.entries[0].prepare_module_output.output_layouts[0].axes['tp']"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace tp
