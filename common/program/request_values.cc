#include "common/program/request_values.h"

#include <algorithm>

namespace tp {

void RequestValues::Add(int value, int64_t limit, std::optional<int64_t> allowed,
                        std::vector<InputCheck>* checks) const {
  if (!Has(value)) return;
  const std::string& name = model_.inputs[inputs_[value]].first;
  for (InputCheck& check : *checks) {
    if (check.input != name || check.allowed != allowed) continue;
    check.limit = std::min(check.limit, limit);
    return;
  }
  checks->push_back({name, limit, allowed});
}

void RequestValues::Call(const FlatNode& node, std::vector<InputCheck>* checks) {
  if (node.function == "embedding") {
    Add(node.inputs[0], model_.values[node.inputs[1]].type.shape[0].constant(), std::nullopt, checks);
  } else if (node.function == "pick") {
    const SymShape& shape = model_.values[node.inputs[0]].type.shape;
    const int64_t dim = std::get<int64_t>(node.attributes.at("dim"));
    const Dim& classes = shape[dim < 0 ? dim + static_cast<int64_t>(shape.size()) : dim];
    if (!classes.IsConstant()) return;
    Add(node.inputs[1], classes.constant(), std::get<int64_t>(node.attributes.at("ignore_index")), checks);
  } else if (node.function == "reshape") {
    SetSame(node.inputs[0], node.outputs[0]);
  }
}

}  // namespace tp
