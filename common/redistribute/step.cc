#include "common/redistribute/step.h"

#include <algorithm>

namespace tp {
namespace {

std::optional<RedistributeOp> OpOnAxis(const Placement& a, const Placement& b, bool alone) {
  if (a.IsReplicate()) {
    if (b.IsSharding()) return RedistributeOp::kSlice;
    if (!b.IsPartial() || b.op == ReduceOp::kProduct) return std::nullopt;
    return b.op == ReduceOp::kSum ? RedistributeOp::kDivide : RedistributeOp::kNone;
  }
  if (a.IsPartial()) {
    if (b.IsReplicate()) return RedistributeOp::kAllReduce;
    // Neighbours of a GroupShard would each receive the terms of one piece.
    if (alone && b.IsSharding() && b.kind != PlacementKind::kGroupShard) return RedistributeOp::kReduceScatter;
    return std::nullopt;
  }
  if (b.IsReplicate()) return RedistributeOp::kAllGather;
  if (b.IsPartial()) {
    // Neighbours of a GroupShard would both bring the block.
    if (b.op == ReduceOp::kSum && a.kind != PlacementKind::kGroupShard) return RedistributeOp::kFill;
    return std::nullopt;
  }
  if (alone && a.kind == PlacementKind::kShard && b.kind == PlacementKind::kShard) return RedistributeOp::kAllToAll;
  return std::nullopt;
}

bool Contains(absl::Span<const int> axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

// True where no axis but those of `axes` cuts the dim of `placement` inside of `axis`.
bool Innermost(absl::Span<const int> axes, int axis, const Placement& placement,
               absl::Span<const Placement* const> layout) {
  if (!placement.IsSharding()) return true;
  for (size_t later = static_cast<size_t>(axis) + 1; later < layout.size(); ++later) {
    if (layout[later]->Cuts(placement.dim) && !Contains(axes, static_cast<int>(later))) return false;
  }
  return true;
}

}  // namespace

PlacementRefs RefsOf(const Placements& placements) {
  PlacementRefs refs;
  for (const Placement& placement : placements) refs.push_back(&placement);
  return refs;
}

std::optional<RedistributeOp> TableOp(absl::Span<const int> axes, absl::Span<const Placement* const> from,
                                      absl::Span<const Placement* const> to) {
  std::optional<RedistributeOp> op;
  for (const int axis : axes) {
    const Placement& a = *from[axis];
    const Placement& b = *to[axis];
    const std::optional<RedistributeOp> here = OpOnAxis(a, b, axes.size() == 1);
    if (!here.has_value() || (op.has_value() && *here != *op)) return std::nullopt;
    if (a.IsPartial() && a.op != from[axes[0]]->op) return std::nullopt;
    if (!Innermost(axes, axis, a, from) || !Innermost(axes, axis, b, to)) return std::nullopt;
    op = here;
  }
  return op;
}

Move MoveBetween(absl::Span<const Placement* const> from, absl::Span<const Placement* const> to) {
  Move move;
  absl::InlinedVector<bool, 8> changes;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    changes.push_back(from[axis] != to[axis] && *from[axis] != *to[axis]);
    if (changes.back()) move.axes.push_back(static_cast<int>(axis));
  }
  if (const std::optional<RedistributeOp> op = TableOp(move.axes, from, to); op.has_value()) {
    move.op = *op;
    return move;
  }
  move.op = RedistributeOp::kPermute;
  move.axes.clear();
  for (size_t axis = 0; axis < from.size(); ++axis) {
    bool moves = changes[axis];
    for (size_t outer = 0; outer < axis && !moves && from[axis]->IsSharding(); ++outer) {
      const int d = from[axis]->dim;
      moves = changes[outer] && (from[outer]->Cuts(d) || to[outer]->Cuts(d));
    }
    if (moves) move.axes.push_back(static_cast<int>(axis));
  }
  return move;
}

}  // namespace tp
