// What entries say of one value: claims are checked, then it moves.
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/program/input_placements.h"
#include "common/program/shardings.h"
#include "common/program/walk_impl.h"

namespace tp {

absl::StatusOr<int> Walk::Settle(Slot* slot, const std::string& module_path) {
  if (slot->bias < 0) return slot->value;
  Placements reduced = builder_.PlacementsOf(slot->value);
  for (Placement& placement : reduced) {
    if (placement.IsPartial()) placement = Placement::Replicate();
  }
  TP_ASSIGN_OR_RETURN(slot->value,
                      builder_.Move(slot->value, reduced, module_path, absl::StrCat("sum in ", module_path)));
  TP_ASSIGN_OR_RETURN(slot->value, builder_.AddBias(slot->value, slot->bias, slot->bias_dim, module_path));
  slot->bias = -1;
  return slot->value;
}

absl::StatusOr<Placements> Walk::OnAxes(const Layout& layout, int value) const {
  const DTensorSpec& spec = program_.values[value].spec;
  const int rank = static_cast<int>(spec.shape.size());
  TP_ASSIGN_OR_RETURN(const AxisPlacements wanted, ResolveLayout(layout, plan_.mesh, plan_.axis));
  // Those that are named, by themselves, then among the others.
  Placements named(wanted.size()), placements = builder_.PlacementsOf(value);
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    if (!wanted[axis].has_value()) continue;
    if (plan_.mesh.axis_size(static_cast<int>(axis)) > 1) {
      placements[axis] = named[axis] = *wanted[axis];
    } else if (wanted[axis]->IsSharding()) {  // moves nothing; wrong at every degree alike
      TP_RETURN_IF_ERROR(NormalizeDim(wanted[axis]->dim, rank).status());
    }
  }
  TP_ASSIGN_OR_RETURN(named, NormalizePlacements(named, rank, spec.dtype, plan_.mesh));
  TP_RETURN_IF_ERROR(ValidateForSymShape(spec.shape, named, plan_.mesh));
  return NormalizePlacements(placements, rank, spec.dtype, plan_.mesh);
}

absl::Status Walk::Misfit(const ResolvedEntry& entry, const std::string& module_path, const std::string& field,
                          const absl::Status& status, Slot* slot) {
  problems_->Add(status, absl::StrCat(entry.text, ": ", module_path, ": ", field));
  slot->unsure = true;
  return absl::OkStatus();
}

bool Walk::CheckClaim(const Placements& declared, int value, const std::string& where, const std::string& what) {
  const Placements& real = builder_.PlacementsOf(value);
  for (size_t axis = 0; axis < real.size(); ++axis) {
    if (declared[axis] == real[axis]) continue;
    const std::string name = real.size() == 1 ? "" : absl::StrCat(plan_.mesh.axes()[axis].name, "=");
    problems_->Invalid(absl::StrCat(where, " says ", name, PlacementText(declared[axis]), ", the ", what, " is ", name,
                                    PlacementText(real[axis])));
  }
  return declared == real;
}

void Walk::GroupHeads(const ResolvedEntry& entry, const FlatNode& node, int value, Placements* placements) const {
  auto grouped = plan_.grouped.find(node.module_path);
  if (grouped == plan_.grouped.end() || node.kind != FlatNode::Kind::kModuleOutput) return;
  if (!CutsWeights(entry.entry.style) && !std::holds_alternative<ShardingConfig>(entry.entry.style)) return;
  const int last = static_cast<int>(program_.values[value].spec.shape.size()) - 1;
  Placement& own = (*placements)[grouped->second.axis];
  if (own == Placement::Shard(last)) own = Placement::GroupShard(last, grouped->second.heads);
}

void Walk::WarnOfBatch(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, int value,
                       bool request) {
  for (size_t axis = 0; axis < change.unnamed_axes.size(); ++axis) {
    if (!change.unnamed_axes[axis] || !plan_.batch_axes[axis] || plan_.mesh.axis_size(static_cast<int>(axis)) == 1) {
      continue;
    }
    if (!builder_.PlacementsOf(value)[axis].IsSharding() && !request) continue;
    const std::string text =
        absl::StrCat(entry.text, ": ", WhereOf(node), ": ", change.desired_field, " does not name the batch axis '",
                     plan_.mesh.axes()[axis].name, "': the batch is gathered over it");
    if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) warnings_.push_back(text);
  }
}

absl::Status Walk::Change(const LayoutChange& change, const ResolvedEntry& entry, const FlatNode& node, Slot* slot) {
  const std::string module_path = WhereOf(node);
  const std::string what = node.kind == FlatNode::Kind::kModuleInput ? "input" : "output";
  if (!change.declared.IsNone()) {
    absl::StatusOr<Placements> declared = OnAxes(change.declared, slot->value);
    if (!declared.ok()) return Misfit(entry, module_path, change.field, declared.status(), slot);
    GroupHeads(entry, node, slot->value, &*declared);
    const std::string pattern = entry.own ? "" : absl::StrCat(" of '", Cut(entry.entry.pattern), "'");
    // What a wrong claim leaves in its place is not what the next ones count on.
    slot->unsure = slot->unsure ||
                   !CheckClaim(*declared, slot->value, absl::StrCat(module_path, ": ", change.field, pattern), what);
  }
  if (change.desired.IsNone()) return absl::OkStatus();
  absl::StatusOr<Placements> target = OnAxes(change.desired, slot->value);
  if (!target.ok()) return Misfit(entry, module_path, change.desired_field, target.status(), slot);
  GroupHeads(entry, node, slot->value, &*target);
  // The bias is one more term of a sum, and of no other reduction; add_once takes one of the last dim only.
  const bool stays_sum =
      std::any_of(target->begin(), target->end(), [](const Placement& own) { return own.IsPartial(); });
  const bool takes_terms =
      std::all_of(target->begin(), target->end(),
                  [](const Placement& own) { return !own.IsPartial() || own.op == ReduceOp::kSum; }) &&
      slot->bias_dim + 1 >= static_cast<int>(builder_.SpecOf(slot->value).shape.size());
  if (stays_sum && !takes_terms) TP_RETURN_IF_ERROR(Settle(slot, node.module_path).status());
  const absl::StatusOr<int> moved =
      builder_.Move(slot->value, *target, node.module_path, absl::StrCat(what, " of ", module_path));
  if (!moved.ok()) {
    if (slot->unsure) return absl::OkStatus();  // the way from where it may not be
    return Misfit(entry, module_path, change.desired_field, moved.status(), slot);
  }
  slot->value = *moved;
  if (slot->bias < 0) return absl::OkStatus();
  TP_ASSIGN_OR_RETURN(slot->value, builder_.AddBias(slot->value, slot->bias, slot->bias_dim, node.module_path));
  slot->bias = -1;
  return absl::OkStatus();
}

}  // namespace tp
