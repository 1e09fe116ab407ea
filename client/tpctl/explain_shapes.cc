#include "client/tpctl/explain_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/tpctl/tensor_arguments.h"
#include "common/base/status.h"

namespace tp::client {
namespace {

Shape DefaultShape(const SymShape& shape) {
  Shape sizes;
  bool first = true;
  for (const Dim& dim : shape) {
    if (dim.IsConstant()) {
      sizes.push_back(dim.constant());
      continue;
    }
    sizes.push_back(first ? 1 : 16);
    first = false;
  }
  return sizes;
}

}  // namespace

absl::StatusOr<std::map<std::string, Shape>> ExplainShapes(const std::vector<std::string>& given,
                                                           const std::vector<ModelInput>& known) {
  std::map<std::string, Shape> shapes;
  for (const std::string& text : given) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    absl::StatusOr<Shape> shape = ParseShapeText(parts.second);
    if (!shape.ok()) return Annotate(shape.status(), absl::StrCat("--shape ", parts.first));
    if (std::none_of(known.begin(), known.end(), [&](const ModelInput& input) { return input.name == parts.first; }))
      return absl::InvalidArgumentError(absl::StrCat("--shape: the model has no input '", parts.first, "'"));
    shapes[parts.first] = *std::move(shape);
  }
  for (const ModelInput& input : known) shapes.emplace(input.name, DefaultShape(input.shape));
  return shapes;
}

}  // namespace tp::client
