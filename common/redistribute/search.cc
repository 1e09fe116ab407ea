#include "common/redistribute/search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "common/base/check.h"
#include "common/redistribute/candidates.h"
#include "common/redistribute/step.h"

namespace tp {
namespace {

// Above this number of layouts to move to, moves change one axis or go to the target only; above this number of settled
// nodes the best path so far is taken. Both keep planning fast on meshes of many axes.
constexpr int64_t kMaxMoveTargets = 2048;
constexpr int kMaxSettled = 8192;
// Above this number of axes, steps over flattened axes take one axis or all.
constexpr size_t kMaxSubsetAxes = 6;
constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();

using State = LayoutState;

int64_t Plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMaxBytes : sum;
}

bool IsLinear(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }

bool IsMove(RedistributeOp op) {
  return op == RedistributeOp::kSlice || op == RedistributeOp::kAllGather || op == RedistributeOp::kAllToAll ||
         op == RedistributeOp::kPermute;
}

struct Node {
  State state = {};
  PlacementRefs placements = {};
  Geometry::Cuts cuts = {};
  int64_t bound = 0;  // at least this many bytes from here to the target
  bool partial = false;
  // The best label so far.
  int64_t bytes = kMaxBytes;
  int steps = 0;
  int previous = -1;
  RedistributeOp op = RedistributeOp::kNone;
  AxisList axes = {};
  bool settled = false;
};

class Search {
 public:
  Search(const Mesh& mesh, Geometry& geometry, int rank, const Placements& from, const Placements& to)
      : mesh_(mesh), geometry_(geometry), target_(to), candidates_(mesh, rank, from, to) {
    for (const Placement& placement : to) target_partial_ = target_partial_ || placement.IsPartial();
    const State start = candidates_.StateOf(from), target = candidates_.StateOf(to);
    target_cuts_ = geometry_.CutsOf(RefsOf(to));
    target_bytes_ = geometry_.MaxLocalBytes(target_cuts_);
    to_ = NodeOf(target);
    from_ = NodeOf(start);
  }

  std::vector<RedistributeStep> Run() {
    nodes_[from_].bytes = 0;
    queue_.emplace(0, 0, from_);
    TakeGreedyPath();
    for (int settled = 0; !queue_.empty() && settled < kMaxSettled;) {
      const auto [bytes, steps, id] = queue_.top();
      queue_.pop();
      Node& node = nodes_[id];
      if (node.settled || bytes != node.bytes || steps != node.steps) continue;
      if (id == to_) break;
      node.settled = true;
      ++settled;
      Expand(id);
    }
    return StepsTo(to_);
  }

 private:
  int NodeOf(const State& state) {
    const auto [found, is_new] = ids_.try_emplace(candidates_.CodeOf(state), static_cast<int>(nodes_.size()));
    if (!is_new) return found->second;
    Node node;
    node.state = state;
    for (size_t axis = 0; axis < state.size(); ++axis) {
      node.placements.push_back(&candidates_.At(state, axis));
      node.partial = node.partial || node.placements.back()->IsPartial();
    }
    node.cuts = geometry_.CutsOf(node.placements);
    // Every element of the result is received at least once where terms are left; else what is missing is.
    if (!target_partial_) {
      node.bound = node.partial ? target_bytes_ : geometry_.MaxMissingBytes(node.cuts, target_cuts_);
    }
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }

  // Negative, 0 or positive, as the paths to two labels of one length compare by (axes, op, layout) of their steps.
  int CompareSteps(RedistributeOp a_op, const AxisList& a_axes, const State& a, RedistributeOp b_op,
                   const AxisList& b_axes, const State& b) const {
    if (a_axes != b_axes) return a_axes < b_axes ? -1 : 1;
    if (a_op != b_op) return a_op < b_op ? -1 : 1;
    if (a != b) return a < b ? -1 : 1;
    return 0;
  }
  int ComparePaths(int a, int b) const {
    if (a == b) return 0;
    if (a < 0 || b < 0) return a < b ? -1 : 1;
    if (const int order = ComparePaths(nodes_[a].previous, nodes_[b].previous); order != 0) return order;
    return CompareSteps(nodes_[a].op, nodes_[a].axes, nodes_[a].state, nodes_[b].op, nodes_[b].axes, nodes_[b].state);
  }

  // True where a label of `bytes` in all and one step more than node `from` may still matter at `to`.
  bool MayWin(int from, int64_t bytes, int to) const {
    const Node& node = nodes_[to];
    if (node.settled) return false;
    const int steps = nodes_[from].steps + 1;
    if (bytes != node.bytes ? bytes > node.bytes : steps > node.steps) return false;
    const Node& target = nodes_[to_];
    const int64_t least = Plus(bytes, node.bound);
    if (least != target.bytes) return least < target.bytes;
    return to == to_ || steps < target.steps;
  }

  void Take(int from, int64_t step_bytes, int to, RedistributeOp op, const AxisList& axes) {
    const int64_t bytes = Plus(nodes_[from].bytes, step_bytes);
    if (!MayWin(from, bytes, to)) return;
    Node& node = nodes_[to];
    const int steps = nodes_[from].steps + 1;
    if (bytes == node.bytes && steps == node.steps && node.previous >= 0) {
      int order = ComparePaths(from, node.previous);
      if (order == 0) order = CompareSteps(op, axes, node.state, node.op, node.axes, node.state);
      if (order >= 0) return;
    } else {
      queue_.emplace(bytes, steps, to);
    }
    node.bytes = bytes;
    node.steps = steps;
    node.previous = from;
    node.op = op;
    node.axes = axes;
  }

  // Reduce what has to be, move once, make the target's terms: a first path, no longer than gathering everything, that
  // bounds the search.
  void TakeGreedyPath() {
    int at = from_;
    State next = nodes_[at].state;
    const auto changed = [&](const auto& wanted) {
      AxisList axes;
      for (size_t axis = 0; axis < target_.size(); ++axis) {
        if (*nodes_[at].placements[axis] != target_[axis] && wanted(*nodes_[at].placements[axis], target_[axis])) {
          axes.push_back(static_cast<int>(axis));
        }
      }
      return axes;
    };
    for (const ReduceOp op : kReduceOps) {
      const AxisList axes = changed([&](const Placement& a, const Placement&) { return a.IsPartial() && a.op == op; });
      if (axes.empty()) continue;
      for (const int axis : axes) next[axis] = 0;
      const int to = NodeOf(next);
      TakeAllReduce(at, axes, to);
      at = to;
    }
    for (size_t axis = 0; axis < next.size(); ++axis) {
      if (!target_[axis].IsPartial()) next[axis] = nodes_[to_].state[axis];
      if (target_[axis].IsPartial() && !nodes_[at].placements[axis]->IsPartial()) next[axis] = 0;
    }
    if (next != nodes_[at].state) {
      const int to = NodeOf(next);
      TakeMove(at, next);
      at = to;
    }
    for (const bool sum : {false, true}) {
      const AxisList axes = changed(
          [&](const Placement&, const Placement& b) { return b.IsPartial() && (b.op == ReduceOp::kSum) == sum; });
      if (axes.empty()) continue;
      for (const int axis : axes) next[axis] = nodes_[to_].state[axis];
      const int to = NodeOf(next);
      Take(at, 0, to, sum ? RedistributeOp::kDivide : RedistributeOp::kNone, axes);
      at = to;
    }
    TP_CHECK(at == to_);
  }

  void TakeAllReduce(int id, const AxisList& axes, int to) {
    const __int128 n = GroupSize(axes);
    const __int128 bytes = 2 * (n - 1) * geometry_.MaxLocalBytes(nodes_[id].cuts) / n;
    Take(id, static_cast<int64_t>(std::min<__int128>(bytes, kMaxBytes)), to, RedistributeOp::kAllReduce, axes);
  }

  void Expand(int id) {
    ExpandMoves(id);
    ExpandReductions(id);
    ExpandTerms(id);
  }

  void TakeMove(int id, const State& next) {
    const int to = NodeOf(next);
    if (to == id || !MayWin(id, nodes_[id].bytes, to)) return;
    const int64_t bytes = geometry_.MaxMissingBytes(nodes_[id].cuts, nodes_[to].cuts);
    if (!MayWin(id, Plus(nodes_[id].bytes, bytes), to)) return;
    const Move move = MoveBetween(nodes_[id].placements, nodes_[to].placements);
    Take(id, bytes, to, move.op, move.axes);
  }

  // To layouts with the same terms. Two moves in a row never beat one.
  void ExpandMoves(int id) {
    const bool moved = nodes_[id].previous >= 0 && IsMove(nodes_[id].op);
    const State state = nodes_[id].state;
    State target = state;
    bool reaches = true;  // the target by this move
    int64_t targets = 1;
    std::vector<size_t> free_axes;
    for (size_t axis = 0; axis < state.size(); ++axis) {
      const Placement& placement = *nodes_[id].placements[axis];
      if (placement.IsPartial() || target_[axis].IsPartial()) {
        reaches = reaches && placement == target_[axis];
      } else {
        target[axis] = nodes_[to_].state[axis];
      }
      if (placement.IsPartial() || candidates_.On(axis).size() == 1) continue;
      free_axes.push_back(axis);
      targets = std::min(kMaxBytes / 64, targets * static_cast<int64_t>(candidates_.On(axis).size()));
    }
    const bool wide = targets > kMaxMoveTargets;
    if (moved && !wide) return;
    if (target != state && candidates_.IsLegal(target)) TakeMove(id, target);
    if (reaches && !target_partial_) return;
    if (wide) {
      for (const size_t axis : free_axes) ExpandMovesOn(id, {axis});
    } else {
      ExpandMovesOn(id, free_axes);
    }
  }

  void ExpandMovesOn(int id, const std::vector<size_t>& axes) {
    State next = nodes_[id].state;
    for (const size_t axis : axes) next[axis] = 0;
    while (true) {
      bool terms = false;  // candidates that are terms are made by other steps
      for (const size_t axis : axes) terms = terms || candidates_.At(next, axis).IsPartial();
      if (!terms && candidates_.IsLegal(next)) TakeMove(id, next);
      size_t i = axes.size();
      while (i > 0 && ++next[axes[i - 1]] == candidates_.On(axes[i - 1]).size()) next[axes[--i]] = 0;
      if (i == 0) return;
    }
  }

  // Calls `take` with each subset of `axes` of one element or more.
  template <typename TakeSubset>
  void ForEachSubset(const AxisList& axes, const TakeSubset& take) {
    if (axes.size() > kMaxSubsetAxes) {
      for (const int axis : axes) take({axis});
      take(axes);
      return;
    }
    for (uint32_t subset = 1; subset < (uint32_t{1} << axes.size()); ++subset) {
      AxisList chosen;
      for (size_t i = 0; i < axes.size(); ++i) {
        if ((subset >> i & 1u) != 0) chosen.push_back(axes[i]);
      }
      take(chosen);
    }
  }

  int64_t GroupSize(const AxisList& axes) const {
    int64_t size = 1;
    for (const int axis : axes) size *= mesh_.axis_size(axis);
    return size;
  }

  // Terms of one op become R by an all_reduce over their axes, or a shard by a reduce_scatter on one.
  void ExpandReductions(int id) {
    if (!nodes_[id].partial) return;
    AxisList by_op[5];
    for (size_t axis = 0; axis < nodes_[id].placements.size(); ++axis) {
      const Placement& placement = *nodes_[id].placements[axis];
      if (placement.IsPartial()) by_op[static_cast<int>(placement.op)].push_back(static_cast<int>(axis));
    }
    for (const AxisList& axes : by_op) {
      ForEachSubset(axes, [&](const AxisList& chosen) {
        State next = nodes_[id].state;
        for (const int axis : chosen) next[axis] = 0;
        if (candidates_.IsLegal(next)) TakeAllReduce(id, chosen, NodeOf(next));
      });
      for (const int axis : axes) {
        State next = nodes_[id].state;
        for (size_t i = 1; i < candidates_.On(axis).size(); ++i) {
          next[axis] = static_cast<uint8_t>(i);
          if (candidates_.On(static_cast<size_t>(axis))[i].IsPartial() || !candidates_.IsLegal(next)) continue;
          const int to = NodeOf(next);
          if (!TableOp({axis}, nodes_[id].placements, nodes_[to].placements).has_value()) continue;
          const __int128 piece = geometry_.MaxLocalBytes(nodes_[to].cuts);
          Take(id, static_cast<int64_t>(std::min<__int128>((mesh_.axis_size(axis) - 1) * piece, kMaxBytes)), to,
               RedistributeOp::kReduceScatter, {axis});
        }
      }
    }
  }

  // Terms of the target are made where nothing has to be sent: divide, none and fill.
  void ExpandTerms(int id) {
    if (!target_partial_) return;
    AxisList by_op[3];
    for (size_t axis = 0; axis < target_.size(); ++axis) {
      const Placement& placement = *nodes_[id].placements[axis];
      if (!target_[axis].IsPartial() || placement.IsPartial() || !TermFits(id, target_[axis].op)) continue;
      by_op[target_[axis].op != ReduceOp::kSum ? 0 : placement.IsReplicate() ? 1 : 2].push_back(static_cast<int>(axis));
    }
    for (const AxisList& axes : by_op) {
      ForEachSubset(axes, [&](const AxisList& chosen) {
        State next = nodes_[id].state;
        for (const int axis : chosen) next[axis] = nodes_[to_].state[axis];
        if (!candidates_.IsLegal(next)) return;
        const int to = NodeOf(next);
        const std::optional<RedistributeOp> op = TableOp(chosen, nodes_[id].placements, nodes_[to].placements);
        if (op.has_value()) Take(id, 0, to, *op, chosen);
      });
    }
  }

  // True where terms of `op` may stand beside the terms of the other axes.
  bool TermFits(int id, ReduceOp op) const {
    for (const Placement* other : nodes_[id].placements) {
      if (!other->IsPartial() || other->op == op) continue;
      if (!IsLinear(other->op) || !IsLinear(op)) return false;
    }
    return true;
  }

  Placements PlacementsOf(int id) const {
    Placements placements;
    for (const Placement* placement : nodes_[id].placements) placements.push_back(*placement);
    return placements;
  }

  std::vector<RedistributeStep> StepsTo(int id) const {
    std::vector<RedistributeStep> steps;
    TP_CHECK(nodes_[id].previous >= 0 || id == from_);
    for (; nodes_[id].previous >= 0; id = nodes_[id].previous) {
      const Node& node = nodes_[id];
      steps.push_back({node.op, {node.axes.begin(), node.axes.end()}, PlacementsOf(node.previous), PlacementsOf(id)});
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  const Mesh& mesh_;
  Geometry& geometry_;
  const Placements& target_;
  const Candidates candidates_;
  bool target_partial_ = false;
  Geometry::Cuts target_cuts_;
  int64_t target_bytes_ = 0;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int> ids_;
  int from_ = 0;
  int to_ = 0;
  std::priority_queue<std::tuple<int64_t, int, int>, std::vector<std::tuple<int64_t, int, int>>, std::greater<>> queue_;
};

}  // namespace

std::vector<RedistributeStep> SearchSteps(const Mesh& mesh, Geometry& geometry, int rank, const Placements& from,
                                          const Placements& to) {
  return Search(mesh, geometry, rank, from, to).Run();
}

}  // namespace tp
