#include "client/tpctl/explain_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/tpctl/tensor_arguments.h"
#include "common/base/names.h"
#include "common/base/status.h"

namespace tp::client {
namespace {

// Sizes of symbols that stand alone in a shape: those of the given one.
void BindSymbols(const SymShape& shape, const Shape& sizes, Bindings* bindings) {
  for (size_t i = 0; i < shape.size() && i < sizes.size(); ++i) {
    const std::vector<std::string> symbols = shape[i].Symbols();
    if (symbols.size() == 1 && shape[i] == Dim::Symbol(symbols[0])) bindings->emplace(symbols[0], sizes[i]);
  }
}

// 1 for the input's first free size and 16 for others, within their limits.
void BindNominal(const ModelDef& model, const SymShape& shape, Bindings* bindings) {
  bool first = true;
  for (const Dim& dim : shape) {
    for (const std::string& symbol : dim.Symbols()) {
      int64_t size = first ? 1 : 16;
      if (auto limit = model.symbol_limits.find(symbol); limit != model.symbol_limits.end())
        size = std::min(size, limit->second);
      if (!first && model.generation.has_value()) size = std::min(size, model.generation->max_positions);
      bindings->emplace(symbol, size);
      first = false;
    }
  }
}

}  // namespace

absl::StatusOr<std::map<std::string, Shape>> ExplainShapes(const std::vector<std::string>& given,
                                                           const ModelDef& model) {
  std::map<std::string, Shape> shapes;
  Bindings bindings;
  for (const std::string& text : given) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    absl::StatusOr<Shape> shape = ParseShapeText(parts.second);
    if (!shape.ok()) return Annotate(shape.status(), absl::StrCat("--shape ", parts.first));
    const auto input = std::find_if(model.inputs.begin(), model.inputs.end(),
                                    [&](const ModelInput& known) { return known.name == parts.first; });
    if (input == model.inputs.end()) {
      std::vector<std::string> names;
      for (const ModelInput& known : model.inputs) names.push_back(known.name);
      return absl::InvalidArgumentError(absl::StrCat("--shape: the model has no input '", parts.first, "'; it has ",
                                                     JoinNames(NearestNames(parts.first, names, 8))));
    }
    BindSymbols(input->shape, *shape, &bindings);
    shapes[parts.first] = *std::move(shape);
  }
  for (const ModelInput& input : model.inputs) {
    if (shapes.contains(input.name)) continue;
    BindNominal(model, input.shape, &bindings);
    absl::StatusOr<Shape> shape = EvaluateShape(input.shape, bindings);
    if (!shape.ok())
      return Annotate(shape.status(), absl::StrCat("--shape ", input.name, "=... is needed too: its shape is ",
                                                   SymShapeText(input.shape)));
    shapes[input.name] = *std::move(shape);
  }
  return shapes;
}

}  // namespace tp::client
