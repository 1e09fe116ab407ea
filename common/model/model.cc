#include "common/model/model.h"

#include "absl/strings/str_cat.h"

namespace tp {
namespace {

std::string LayoutsText(const Placement& input, const Placement& output, bool use_local_output) {
  return absl::StrCat("(input_layouts=(", PlacementLongText(input), ",), output_layouts=(", PlacementLongText(output),
                      ",), use_local_output=", use_local_output ? "True" : "False", ")");
}

struct NameOf {
  std::string operator()(const ColwiseParallel&) const { return "ColwiseParallel"; }
  std::string operator()(const RowwiseParallel&) const { return "RowwiseParallel"; }
  std::string operator()(const UnbuiltStyle& style) const { return style.name; }
};

}  // namespace

std::string StyleName(const Style& style) { return std::visit(NameOf{}, style); }

std::string StyleText(const Style& style) {
  if (const auto* colwise = std::get_if<ColwiseParallel>(&style)) {
    return StyleName(style) + LayoutsText(colwise->input_layouts, colwise->output_layouts, colwise->use_local_output);
  }
  if (const auto* rowwise = std::get_if<RowwiseParallel>(&style)) {
    return StyleName(style) + LayoutsText(rowwise->input_layouts, rowwise->output_layouts, rowwise->use_local_output);
  }
  return StyleName(style);
}

}  // namespace tp
