#include "client/tpctl/seeded_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "common/base/status.h"
#include "common/model/initializer.h"

namespace tp::client {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The first symbol counts a batch, which differs from the other sizes and which few meshes divide.
Bindings SizesOf(const FlatModel& model, const std::map<std::string, int64_t>& symbol_limits) {
  Bindings sizes;
  for (const auto& input : model.inputs) {
    for (const Dim& dim : model.values[static_cast<size_t>(input.second)].type.shape) {
      for (const std::string& symbol : dim.Symbols()) {
        int64_t size = sizes.empty() ? 5 : 16;
        const auto limit = symbol_limits.find(symbol);
        if (limit != symbol_limits.end()) size = std::min(size, limit->second);
        sizes.emplace(symbol, size);
      }
    }
  }
  return sizes;
}

// Functions whose outputs hold nothing but elements of their inputs.
bool KeepsValues(const std::string& function) {
  static const std::set<std::string> kFunctions = {"reshape", "view",      "flatten", "squeeze", "unsqueeze",
                                                   "expand",  "transpose", "permute", "slice",   "select",
                                                   "split",   "chunk",     "cat",     "stack",   "cast"};
  return kFunctions.contains(function);
}

// The size of what the indices of a call point at, and which of its inputs they are (-1 = none).
int64_t IndexedSize(const FlatModel& model, const FlatNode& node, const Bindings& sizes, int* indices) {
  const bool embedding = node.function == "embedding";
  *indices = embedding ? 0 : 1;
  if (!embedding && node.function != "gather" && node.function != "index_select" && node.function != "pick") {
    *indices = -1;
    return kUnlimited;
  }
  const int indexed = node.inputs[embedding ? 1 : 0];
  const SymShape& shape = model.values[static_cast<size_t>(indexed)].type.shape;
  int64_t dim = 0;
  if (const auto it = node.attributes.find("dim"); !embedding && it != node.attributes.end()) {
    if (const auto* value = std::get_if<int64_t>(&it->second)) dim = *value;
  }
  if (dim < 0) dim += static_cast<int64_t>(shape.size());
  if (dim < 0 || dim >= static_cast<int64_t>(shape.size())) return kUnlimited;
  const absl::StatusOr<int64_t> size = shape[static_cast<size_t>(dim)].Evaluate(sizes);
  return size.ok() ? *size : kUnlimited;
}

// By input of the model.
std::vector<int64_t> IdLimits(const FlatModel& model, const Bindings& sizes) {
  std::vector<int64_t> limits(model.inputs.size(), kUnlimited);
  std::vector<std::set<size_t>> origins(model.values.size());  // of each value: the inputs whose elements it holds
  for (size_t i = 0; i < model.inputs.size(); ++i) origins[static_cast<size_t>(model.inputs[i].second)] = {i};
  for (const FlatNode& node : model.nodes) {
    if (node.kind != FlatNode::Kind::kFunction) {
      for (size_t i = 0; i < node.outputs.size() && i < node.inputs.size(); ++i) {
        if (node.inputs[i] >= 0 && node.outputs[i] >= 0) {
          origins[static_cast<size_t>(node.outputs[i])] = origins[static_cast<size_t>(node.inputs[i])];
        }
      }
      continue;
    }
    int indices = -1;
    const int64_t size = IndexedSize(model, node, sizes, &indices);
    if (indices >= 0 && node.inputs[static_cast<size_t>(indices)] >= 0) {
      for (const size_t input : origins[static_cast<size_t>(node.inputs[static_cast<size_t>(indices)])]) {
        limits[input] = std::min(limits[input], size);
      }
    }
    if (!KeepsValues(node.function)) continue;
    for (const int output : node.outputs) {
      for (const int input : node.inputs) {
        if (input < 0) continue;
        const std::set<size_t>& from = origins[static_cast<size_t>(input)];
        origins[static_cast<size_t>(output)].insert(from.begin(), from.end());
      }
    }
  }
  for (int64_t& limit : limits) {
    if (limit == kUnlimited) limit = 2;
  }
  return limits;
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> SeededInputs(const FlatModel& model,
                                                      const std::map<std::string, int64_t>& symbol_limits) {
  const Bindings sizes = SizesOf(model, symbol_limits);
  const std::vector<int64_t> limits = IdLimits(model, sizes);
  const Initializer uniform{Initializer::Kind::kUniform, -1, 1};
  std::vector<NamedTensor> inputs;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const auto& [name, value] = model.inputs[i];
    const TensorType& type = model.values[static_cast<size_t>(value)].type;
    TP_ASSIGN_OR_RETURN(const Shape shape, EvaluateShape(type.shape, sizes));
    std::vector<double> values(static_cast<size_t>(ElementCount(shape)));
    for (size_t at = 0; at < values.size(); ++at) {
      values[at] = InitialValue(uniform, 0, name, shape, static_cast<int64_t>(at));
      if (!IsFloating(type.dtype)) values[at] = std::floor((values[at] + 1) / 2 * static_cast<double>(limits[i]));
    }
    inputs.push_back({name, ConvertTo(MakeHostTensor<double>(shape, values), type.dtype)});
  }
  return inputs;
}

}  // namespace tp::client
