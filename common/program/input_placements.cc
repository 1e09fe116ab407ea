#include "common/program/input_placements.h"

#include <algorithm>
#include <set>

#include "common/layout/spec.h"
#include "common/program/styles.h"

namespace tp {

absl::Status ValidateForSymShape(const SymShape& shape, const Placements& placements, const Mesh& mesh) {
  Shape known;
  for (const Dim& dim : shape) known.push_back(dim.IsConstant() ? dim.constant() : 0);  // 0 fits every cut
  return ValidateForShape(known, placements, mesh);
}

bool EntersUnsureModule(const FlatModel& model, const ResolvedPlan& plan, int flat_value) {
  if (plan.unsure_modules.empty()) return false;
  std::set<int> same{flat_value};
  for (const FlatNode& node : model.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] < 0 || !same.contains(node.inputs[i])) continue;
      if (plan.unsure_modules.contains(node.module_path)) return true;
      if (node.kind == FlatNode::Kind::kModuleInput || node.function == "cast") same.insert(node.outputs[i]);
    }
  }
  return false;
}

Placements InputPlacements(const FlatModel& model, const ResolvedPlan& plan, int flat_value) {
  const TensorType& type = model.values[flat_value].type;
  const int rank = static_cast<int>(type.shape.size());
  Placements placements(plan.mesh.axis_count());
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (plan.batch_axes[axis] && plan.mesh.axis_size(static_cast<int>(axis)) > 1 && rank > 0) {
      placements[axis] = Placement::Shard(0);
    }
  }
  int value = flat_value;
  for (const FlatNode& node : model.nodes) {
    auto use = std::find(node.inputs.begin(), node.inputs.end(), value);
    if (use == node.inputs.end()) continue;
    const size_t index = use - node.inputs.begin();
    const bool marker = node.kind == FlatNode::Kind::kModuleInput;
    if (marker) {
      for (int entry : EntriesOf(plan, node.module_path)) {
        absl::StatusOr<std::vector<LayoutChange>> changes =
            InputChanges(plan.entries[entry].entry, *ModuleAt(model, node.module_path), node, plan.mesh);
        if (!changes.ok()) return placements;
        const LayoutChange& change = (*changes)[index];
        const Layout& wanted = change.declared.IsNone() ? change.desired : change.declared;
        if (wanted.IsNone()) continue;
        absl::StatusOr<AxisPlacements> resolved = ResolveLayout(wanted, plan.mesh, plan.axis);
        Placements with = placements;
        for (size_t axis = 0; resolved.ok() && axis < with.size(); ++axis) {
          const std::optional<Placement>& own = (*resolved)[axis];
          if (own.has_value() && !own->IsPartial() && plan.mesh.axis_size(static_cast<int>(axis)) > 1)
            with[axis] = *own;
        }
        // What does not fit is refused where the module is entered.
        absl::StatusOr<Placements> normal = NormalizePlacements(with, rank, type.dtype, plan.mesh);
        return normal.ok() && ValidateForSymShape(type.shape, *normal, plan.mesh).ok() ? *normal : placements;
      }
    } else if (node.function != "cast") {
      return placements;
    }
    value = node.outputs[index];
  }
  return placements;
}

}  // namespace tp
