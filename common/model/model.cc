#include "common/model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tp {
namespace {

std::string TupleText(const std::vector<std::string>& items) {
  return absl::StrCat("(", absl::StrJoin(items, ", "), items.size() == 1 ? ",)" : ")");
}

std::string MapText(const std::map<std::string, std::string>& items) {
  return absl::StrCat("{",
                      absl::StrJoin(items, ", ",
                                    [](std::string* out, const auto& item) {
                                      absl::StrAppend(out, "'", item.first, "': ", item.second);
                                    }),
                      "}");
}

std::string PlacementsTuple(const Placements& placements) {
  std::vector<std::string> items;
  for (const Placement& placement : placements) items.push_back(PlacementLongText(placement));
  return TupleText(items);
}

// The layout of the only input or output: a tuple of its placements.
std::string OnlyLayoutText(const Layout& layout) {
  if (layout.form == Layout::Form::kNone || layout.form == Layout::Form::kMap) return LayoutText(layout);
  return PlacementsTuple(layout.placements);
}

std::string LayoutsText(const std::vector<Layout>& layouts) {
  if (layouts.empty()) return "None";
  std::vector<std::string> items;
  for (const Layout& layout : layouts) items.push_back(LayoutText(layout));
  return TupleText(items);
}

std::string NamedLayoutsText(const std::map<std::string, Layout>& layouts) {
  std::map<std::string, std::string> items;
  for (const auto& [name, layout] : layouts) items[name] = LayoutText(layout);
  return MapText(items);
}

std::string ShardingsText(const std::map<std::string, NamedPlacements>& shardings) {
  std::map<std::string, std::string> items;
  for (const auto& [name, placements] : shardings) items[name] = LayoutText(Layout::Map(placements));
  return MapText(items);
}

const char* BoolText(bool value) { return value ? "True" : "False"; }

template <typename StyleT>
std::string InputFields(const StyleT& style) {
  return absl::StrCat("input_layouts=", LayoutsText(style.input_layouts),
                      ", desired_input_layouts=", LayoutsText(style.desired_input_layouts),
                      ", input_kwarg_layouts=", NamedLayoutsText(style.input_kwarg_layouts),
                      ", desired_input_kwarg_layouts=", NamedLayoutsText(style.desired_input_kwarg_layouts));
}

template <typename StyleT>
std::string OutputFields(const StyleT& style) {
  return absl::StrCat("output_layouts=", LayoutsText(style.output_layouts),
                      ", desired_output_layouts=", LayoutsText(style.desired_output_layouts));
}

template <typename StyleT>
std::string WeightFields(const StyleT& style) {
  return absl::StrCat("input_layouts=", OnlyLayoutText(style.input_layouts),
                      ", output_layouts=", OnlyLayoutText(style.output_layouts));
}

struct NameOf {
  std::string operator()(const ColwiseParallel&) const { return "ColwiseParallel"; }
  std::string operator()(const RowwiseParallel&) const { return "RowwiseParallel"; }
  std::string operator()(const SequenceParallel&) const { return "SequenceParallel"; }
  std::string operator()(const PrepareModuleInput&) const { return "PrepareModuleInput"; }
  std::string operator()(const PrepareModuleOutput&) const { return "PrepareModuleOutput"; }
  std::string operator()(const PrepareModuleInputOutput&) const { return "PrepareModuleInputOutput"; }
  std::string operator()(const ShardingConfig&) const { return "ShardingConfig"; }
};

struct FieldsOf {
  std::string operator()(const ColwiseParallel& style) const { return WeightFields(style); }
  std::string operator()(const RowwiseParallel& style) const { return WeightFields(style); }
  std::string operator()(const SequenceParallel& style) const {
    return absl::StrCat("sequence_dim=", style.sequence_dim);
  }
  std::string operator()(const PrepareModuleInput& style) const { return InputFields(style); }
  std::string operator()(const PrepareModuleOutput& style) const { return OutputFields(style); }
  std::string operator()(const PrepareModuleInputOutput& style) const {
    return absl::StrCat(InputFields(style), ", use_local_input=", BoolText(style.use_local_input), ", ",
                        OutputFields(style));
  }
  std::string operator()(const ShardingConfig& sharding) const {
    std::string text;
    auto add = [&](const char* name, const std::map<std::string, NamedPlacements>& shardings) {
      if (!shardings.empty()) absl::StrAppend(&text, name, "=", ShardingsText(shardings), ", ");
    };
    add("state_shardings", sharding.state_shardings);
    add("in_src_shardings", sharding.in_src_shardings);
    add("in_dst_shardings", sharding.in_dst_shardings);
    add("out_src_shardings", sharding.out_src_shardings);
    add("out_dst_shardings", sharding.out_dst_shardings);
    return absl::StrCat(text, "local_map=", BoolText(sharding.local_map));
  }
};

}  // namespace

Layout::Layout(Placement placement) : form(Form::kAxis), placements{std::move(placement)} {}

Layout Layout::List(Placements placements) {
  Layout layout;
  layout.form = Form::kList;
  layout.placements = std::move(placements);
  return layout;
}

Layout Layout::Map(std::map<std::string, Placement> axes) {
  Layout layout;
  layout.form = Form::kMap;
  layout.axes = std::move(axes);
  return layout;
}

std::string LayoutText(const Layout& layout) {
  switch (layout.form) {
    case Layout::Form::kAxis:
      return PlacementLongText(layout.placements[0]);
    case Layout::Form::kList:
      return PlacementsTuple(layout.placements);
    case Layout::Form::kMap: {
      std::map<std::string, std::string> items;
      for (const auto& [axis, placement] : layout.axes) items[axis] = PlacementLongText(placement);
      return MapText(items);
    }
    case Layout::Form::kNone:
      break;
  }
  return "None";
}

std::string StyleName(const Style& style) { return std::visit(NameOf{}, style); }

std::string StyleText(const Style& style) {
  std::string text = absl::StrCat(StyleName(style), "(", std::visit(FieldsOf{}, style));
  std::visit(
      [&](const auto& any) {
        if constexpr (requires { any.use_local_output; }) {
          absl::StrAppend(&text, ", use_local_output=", BoolText(any.use_local_output));
        }
      },
      style);
  return text + ")";
}

}  // namespace tp
