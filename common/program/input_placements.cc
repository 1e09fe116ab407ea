#include "common/program/input_placements.h"

#include <algorithm>

#include "common/layout/spec.h"
#include "common/program/styles.h"

namespace tp {

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
        return normal.ok() ? *normal : placements;
      }
    } else if (node.function != "cast") {
      return placements;
    }
    value = node.outputs[index];
  }
  return placements;
}

}  // namespace tp
