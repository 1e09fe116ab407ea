#include "common/model/model.h"

#include <gtest/gtest.h>

namespace tp {
namespace {

struct TextCase {
  std::string name;
  Style style;
  std::string text;
};
class StyleTextTest : public ::testing::TestWithParam<TextCase> {};

// SEMANTICS 6, the text forms.
TEST_P(StyleTextTest, FormIsExact) {
  EXPECT_EQ(StyleText(GetParam().style), GetParam().text);
  EXPECT_EQ(StyleText(GetParam().style).substr(0, StyleName(GetParam().style).size()), StyleName(GetParam().style));
}

RowwiseParallel RowwiseTo(Layout output) {
  RowwiseParallel style;
  style.output_layouts = std::move(output);
  style.use_local_output = false;
  return style;
}

PrepareModuleInput Input() {
  PrepareModuleInput style;
  style.input_layouts = {Placement::Shard(1), Layout()};
  style.desired_input_layouts = {Placement::Replicate(), Layout()};
  style.input_kwarg_layouts = {{"mask", Placement::Shard(0)}};
  style.desired_input_kwarg_layouts = {{"mask", Placement::Replicate()}};
  return style;
}

PrepareModuleOutput Output() {
  PrepareModuleOutput style;
  style.output_layouts = {Placement::Replicate()};
  style.desired_output_layouts = {Placement::Shard(1)};
  return style;
}

PrepareModuleInputOutput InputOutput() {
  PrepareModuleInputOutput style;
  style.input_layouts = {Placement::Shard(1)};
  style.desired_input_layouts = {Placement::Replicate()};
  style.use_local_input = true;
  style.output_layouts = {Placement::Partial(), Layout()};
  style.desired_output_layouts = {Placement::Shard(1), Layout()};
  return style;
}

RowwiseParallel WithInput(Placement placement) {
  RowwiseParallel style;
  style.input_layouts = placement;
  return style;
}

ShardingConfig Sharding() {
  ShardingConfig sharding;
  sharding.state_shardings = {{"weight", {{"tp", Placement::Shard(0)}, {"dp", Placement::Replicate()}}},
                              {"fc.bias", {}}};
  sharding.in_src_shardings = {{"input", {{"tp", Placement::Shard(-1)}}}};
  sharding.in_dst_shardings = {{"input", {{"tp", Placement::Replicate()}}}};
  sharding.out_src_shardings = {{"output", {{"tp", Placement::Partial()}}}};
  sharding.out_dst_shardings = {{"output", {{"tp", Placement::StridedShard(0, 2)}}}};
  sharding.local_map = true;
  return sharding;
}

INSTANTIATE_TEST_SUITE_P(
    Forms, StyleTextTest,
    ::testing::Values(
        TextCase{"Colwise", ColwiseParallel{},
                 "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), "
                 "use_local_output=True)"},
        TextCase{"Rowwise", RowwiseParallel{},
                 "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Replicate(),), "
                 "use_local_output=True)"},
        TextCase{"DimsStayAsWritten", RowwiseTo(Placement::Shard(1)),
                 "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Shard(dim=1),), "
                 "use_local_output=False)"},
        TextCase{"List", RowwiseTo(Layout::List({Placement::Replicate(), Placement::Shard(0)})),
                 "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts=(Replicate(), Shard(dim=0)), "
                 "use_local_output=False)"},
        TextCase{"Map", RowwiseTo(Layout::Map({{"tp", Placement::Shard(0)}, {"dp", Placement::Replicate()}})),
                 "RowwiseParallel(input_layouts=(Shard(dim=-1),), output_layouts={'dp': Replicate(), 'tp': "
                 "Shard(dim=0)}, use_local_output=False)"},
        TextCase{"EmptySharding", ShardingConfig{}, "ShardingConfig(local_map=False)"},
        TextCase{"Sharding", Sharding(),
                 "ShardingConfig(state_shardings={'fc.bias': {}, 'weight': {'dp': Replicate(), 'tp': Shard(dim=0)}}, "
                 "in_src_shardings={'input': {'tp': Shard(dim=-1)}}, in_dst_shardings={'input': {'tp': Replicate()}}, "
                 "out_src_shardings={'output': {'tp': Partial(sum)}}, out_dst_shardings={'output': {'tp': "
                 "StridedShard(dim=0, split_factor=2)}}, local_map=True)"},
        TextCase{"Sequence", SequenceParallel{}, "SequenceParallel(sequence_dim=1, use_local_output=False)"},
        TextCase{"SequenceDim", SequenceParallel{.sequence_dim = 0, .use_local_output = true, .src_data_rank = 1},
                 "SequenceParallel(sequence_dim=0, use_local_output=True)"},
        TextCase{"Input", Input(),
                 "PrepareModuleInput(input_layouts=(Shard(dim=1), None), desired_input_layouts=(Replicate(), None), "
                 "input_kwarg_layouts={'mask': Shard(dim=0)}, desired_input_kwarg_layouts={'mask': Replicate()}, "
                 "use_local_output=False)"},
        TextCase{"EmptyInput", PrepareModuleInput{},
                 "PrepareModuleInput(input_layouts=None, desired_input_layouts=None, input_kwarg_layouts={}, "
                 "desired_input_kwarg_layouts={}, use_local_output=False)"},
        TextCase{"Output", Output(),
                 "PrepareModuleOutput(output_layouts=(Replicate(),), desired_output_layouts=(Shard(dim=1),), "
                 "use_local_output=True)"},
        TextCase{"InputOutput", InputOutput(),
                 "PrepareModuleInputOutput(input_layouts=(Shard(dim=1),), desired_input_layouts=(Replicate(),), "
                 "input_kwarg_layouts={}, desired_input_kwarg_layouts={}, use_local_input=True, "
                 "output_layouts=(Partial(sum), None), desired_output_layouts=(Shard(dim=1), None), "
                 "use_local_output=True)"},
        TextCase{"Strided", WithInput(Placement::StridedShard(0, 2)),
                 "RowwiseParallel(input_layouts=(StridedShard(dim=0, split_factor=2),), "
                 "output_layouts=(Replicate(),), use_local_output=True)"},
        TextCase{"Interleaved", WithInput(Placement::InterleavedShard(0, {1, 1})),
                 "RowwiseParallel(input_layouts=(InterleavedShard(dim=0, parts=2),), "
                 "output_layouts=(Replicate(),), use_local_output=True)"},
        TextCase{"Group", WithInput(Placement::GroupShard(0, 4)),
                 "RowwiseParallel(input_layouts=(GroupShard(dim=0, groups=4),), "
                 "output_layouts=(Replicate(),), use_local_output=True)"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace tp
