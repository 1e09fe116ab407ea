#include "common/redistribute/search.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "common/base/check.h"

namespace tp {
namespace {

// Above this number of layouts, permutes are tried to the target only, so that planning stays fast.
constexpr int64_t kMaxPermuteTargets = 1024;

using State = std::vector<int>;  // index into the candidates of each axis

struct Edge {
  std::vector<int> axes;
  RedistributeOp op = RedistributeOp::kNone;
  State to;
  bool operator<(const Edge& other) const { return std::tie(axes, op, to) < std::tie(other.axes, other.op, other.to); }
};

struct Label {
  int64_t bytes = 0;
  int permutes = 0;
  std::vector<Edge> path;
  bool operator<(const Label& other) const {
    if (bytes != other.bytes) return bytes < other.bytes;
    if (permutes != other.permutes) return permutes < other.permutes;
    if (path.size() != other.path.size()) return path.size() < other.path.size();
    return path < other.path;
  }
};

bool IsStridedKind(const Placement& placement) {
  return placement.kind == PlacementKind::kStridedShard || placement.kind == PlacementKind::kInterleavedShard;
}

bool IsLinear(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }

class Search {
 public:
  Search(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape, const Placements& from, const Placements& to)
      : mesh_(mesh), rank_(static_cast<int>(shape.size())), target_(to), geometry_(mesh, dtype, shape) {
    for (size_t axis = 0; axis < from.size(); ++axis) {
      std::vector<Placement> candidates = {Placement::Replicate()};
      if (mesh.axis_size(static_cast<int>(axis)) > 1) {
        for (int d = 0; d < rank_; ++d) candidates.push_back(Placement::Shard(d));
        for (const Placement& placement : {from[axis], to[axis]}) {
          if (std::find(candidates.begin(), candidates.end(), placement) == candidates.end()) {
            candidates.push_back(placement);
          }
        }
      }
      candidates_.push_back(std::move(candidates));
    }
    from_ = StateOf(from);
    to_ = StateOf(to);
  }

  std::optional<std::vector<RedistributeStep>> Run() {
    if (std::optional<std::vector<RedistributeStep>> steps = TableSteps(); steps.has_value()) return steps;
    Improve(from_, Label());
    while (!queue_.empty()) {
      auto node = queue_.extract(queue_.begin());
      const auto& [label, state] = node.value();
      if (state == to_) return StepsOf(label);
      if (!settled_.insert(state).second) continue;
      Expand(state, label);
    }
    return std::nullopt;
  }

 private:
  State StateOf(const Placements& placements) const {
    State state;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      const auto& candidates = candidates_[axis];
      const auto found = std::find(candidates.begin(), candidates.end(), placements[axis]);
      TP_CHECK(found != candidates.end());
      state.push_back(static_cast<int>(found - candidates.begin()));
    }
    return state;
  }

  Placements PlacementsOf(const State& state) const {
    Placements placements;
    for (size_t axis = 0; axis < state.size(); ++axis) placements.push_back(candidates_[axis][state[axis]]);
    return placements;
  }

  std::vector<RedistributeStep> StepsOf(const Label& label) const {
    std::vector<RedistributeStep> steps;
    Placements at = PlacementsOf(from_);
    for (const Edge& edge : label.path) {
      Placements next = PlacementsOf(edge.to);
      steps.push_back({edge.op, edge.axes, at, next});
      at = std::move(next);
    }
    return steps;
  }

  void Improve(const State& state, Label label) {
    const auto [found, is_new] = best_.try_emplace(state, label);
    if (!is_new) {
      if (!(label < found->second)) return;
      found->second = label;
    }
    queue_.emplace(std::move(label), state);
  }

  void Take(const State& state, const Label& label, std::vector<int> axes, RedistributeOp op, State next) {
    if (settled_.count(next) != 0) return;
    const int64_t step_bytes = StepBytes(mesh_, geometry_, {op, axes, PlacementsOf(state), PlacementsOf(next)});
    Label longer = label;
    if (__builtin_add_overflow(label.bytes, step_bytes, &longer.bytes)) longer.bytes = INT64_MAX;
    if (op == RedistributeOp::kPermute) ++longer.permutes;
    longer.path.push_back({std::move(axes), op, next});
    Improve(next, std::move(longer));
  }

  // Where one axis alone changes, the row of the table of SEMANTICS 3, if it is legal here.
  std::optional<std::vector<RedistributeStep>> TableSteps() {
    const Placements from = PlacementsOf(from_);
    std::vector<int> changed;
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (from[axis] != target_[axis]) changed.push_back(static_cast<int>(axis));
    }
    if (changed.size() != 1) return std::nullopt;
    const size_t axis = static_cast<size_t>(changed[0]);
    const Placement& to = target_[axis];
    if (from[axis].IsPartial() && to.IsPartial()) {
      Placements reduced = from;
      reduced[axis] = Placement::Replicate();
      const std::optional<RedistributeOp> op = OpBetween(reduced, axis, to);
      if (!op.has_value()) return std::nullopt;
      return std::vector<RedistributeStep>{{RedistributeOp::kAllReduce, changed, from, reduced},
                                           {*op, changed, reduced, target_}};
    }
    const std::optional<RedistributeOp> op = OpBetween(from, axis, to);
    if (!op.has_value()) return std::nullopt;
    RedistributeStep step{*op, changed, from, target_};
    if (*op == RedistributeOp::kReduceScatter) {
      // The largest piece counts N times: 1 element on 4 ranks is cheaper reduced everywhere.
      Placements reduced = from;
      reduced[axis] = Placement::Replicate();
      const RedistributeStep reduce{RedistributeOp::kAllReduce, changed, from, reduced};
      if (StepBytes(mesh_, geometry_, step) > StepBytes(mesh_, geometry_, reduce)) return std::nullopt;
    }
    return std::vector<RedistributeStep>{std::move(step)};
  }

  // True where no axis after `axis` cuts dim `d`: a cut on `axis` is, or would be, the innermost.
  bool Innermost(const Placements& placements, size_t axis, int d) const {
    for (size_t later = axis + 1; later < placements.size(); ++later) {
      if (placements[later].Cuts(d)) return false;
    }
    return true;
  }

  // True where a partial of `op` on `axis` may stand beside the partials of the other axes.
  bool PartialFits(const Placements& placements, size_t axis, ReduceOp op) const {
    for (size_t other = 0; other < placements.size(); ++other) {
      if (other == axis || !placements[other].IsPartial() || placements[other].op == op) continue;
      if (!IsLinear(placements[other].op) || !IsLinear(op)) return false;
    }
    return true;
  }

  // Partials of different ops that all become R are reduced one after the other, each by an all_reduce.
  bool MustAllReduce(const Placements& placements, size_t axis) const {
    if (!target_[axis].IsReplicate()) return false;
    for (size_t other = 0; other < placements.size(); ++other) {
      if (placements[other].IsPartial() && placements[other].op != placements[axis].op &&
          target_[other].IsReplicate()) {
        return true;
      }
    }
    return false;
  }

  // The op that turns placement `a` into `b` on one axis alone; nullopt where no single step does.
  std::optional<RedistributeOp> OpBetween(const Placements& placements, size_t axis, const Placement& b) const {
    const Placement& a = placements[axis];
    if (IsStridedKind(a)) return std::nullopt;
    if (a.IsSharding() && !Innermost(placements, axis, a.dim)) return std::nullopt;
    if (b.IsSharding() && !Innermost(placements, axis, b.dim)) return std::nullopt;
    if (b.IsPartial() && (b != target_[axis] || !PartialFits(placements, axis, b.op))) return std::nullopt;
    const bool plain_shards = b.kind == PlacementKind::kShard;
    if (a.IsReplicate()) {
      if (b.IsSharding()) return RedistributeOp::kSlice;
      if (!b.IsPartial() || b.op == ReduceOp::kProduct) return std::nullopt;
      return b.op == ReduceOp::kSum ? RedistributeOp::kDivide : RedistributeOp::kNone;
    }
    if (a.IsPartial()) {
      if (b.IsReplicate()) return RedistributeOp::kAllReduce;
      if (plain_shards && !MustAllReduce(placements, axis)) return RedistributeOp::kReduceScatter;
      return std::nullopt;
    }
    if (b.IsReplicate()) return RedistributeOp::kAllGather;
    if (a.kind != PlacementKind::kShard) return std::nullopt;
    if (plain_shards) return RedistributeOp::kAllToAll;
    if (b.IsPartial() && b.op == ReduceOp::kSum) return RedistributeOp::kFill;
    return std::nullopt;
  }

  void Expand(const State& state, const Label& label) {
    const Placements placements = PlacementsOf(state);
    for (size_t axis = 0; axis < state.size(); ++axis) {
      for (size_t i = 0; i < candidates_[axis].size(); ++i) {
        if (static_cast<int>(i) == state[axis]) continue;
        const std::optional<RedistributeOp> op = OpBetween(placements, axis, candidates_[axis][i]);
        if (!op.has_value()) continue;
        State next = state;
        next[axis] = static_cast<int>(i);
        Take(state, label, {static_cast<int>(axis)}, *op, std::move(next));
      }
    }
    ExpandFlattenedReduces(state, label, placements);
    ExpandPermutes(state, label, placements);
  }

  // One all_reduce over every two or more axes with partials of one op.
  void ExpandFlattenedReduces(const State& state, const Label& label, const Placements& placements) {
    std::map<ReduceOp, std::vector<int>> by_op;
    for (size_t axis = 0; axis < state.size(); ++axis) {
      if (placements[axis].IsPartial()) by_op[placements[axis].op].push_back(static_cast<int>(axis));
    }
    for (const auto& [op, axes] : by_op) {
      for (uint32_t subset = 0; subset < (uint32_t{1} << axes.size()); ++subset) {
        std::vector<int> chosen;
        State next = state;
        for (size_t i = 0; i < axes.size(); ++i) {
          if ((subset >> i & 1u) == 0) continue;
          chosen.push_back(axes[i]);
          next[axes[i]] = 0;
        }
        if (chosen.size() >= 2) Take(state, label, std::move(chosen), RedistributeOp::kAllReduce, std::move(next));
      }
    }
  }

  void ExpandPermutes(const State& state, const Label& label, const Placements& placements) {
    // Two permutes in a row never beat one, and a permute must save bytes.
    if (!label.path.empty() && label.path.back().op == RedistributeOp::kPermute) return;
    TakePermute(state, label, placements, TargetBesidePartials(placements));
    const auto found = best_.find(to_);
    if (found != best_.end() && label.bytes >= found->second.bytes) return;
    std::vector<size_t> free_axes;
    int64_t targets = 1;
    State next = state;
    for (size_t axis = 0; axis < state.size(); ++axis) {
      if (placements[axis].IsPartial() || candidates_[axis].size() == 1) continue;
      free_axes.push_back(axis);
      next[axis] = 0;
      targets *= static_cast<int64_t>(candidates_[axis].size());
      if (targets > kMaxPermuteTargets) return;
    }
    while (true) {
      TakePermute(state, label, placements, next);
      size_t i = free_axes.size();
      while (i > 0 && ++next[free_axes[i - 1]] == static_cast<int>(candidates_[free_axes[i - 1]].size())) {
        next[free_axes[--i]] = 0;
      }
      if (i == 0) return;
    }
  }

  // The target, with the partials of now kept and those to come as R.
  State TargetBesidePartials(const Placements& placements) const {
    Placements next = target_;
    for (size_t axis = 0; axis < next.size(); ++axis) {
      if (placements[axis].IsPartial()) {
        next[axis] = placements[axis];
      } else if (next[axis].IsPartial()) {
        next[axis] = Placement::Replicate();
      }
    }
    return StateOf(next);
  }

  void TakePermute(const State& state, const Label& label, const Placements& placements, const State& next) {
    if (next == state || settled_.count(next) != 0) return;
    const Placements after = PlacementsOf(next);
    for (size_t axis = 0; axis < after.size(); ++axis) {
      if (after[axis].IsPartial() != placements[axis].IsPartial()) return;
      if (!IsStridedKind(after[axis]) && !IsStridedKind(placements[axis])) continue;
      // Blocks of strided kinds are not boxes: a permute leaves their dims alone.
      if (after[axis] != placements[axis]) return;
      for (size_t other = 0; other < after.size(); ++other) {
        if (after[other] == placements[other]) continue;
        if (after[other].Cuts(after[axis].dim) || placements[other].Cuts(after[axis].dim)) return;
      }
    }
    Take(state, label, PermuteAxes(placements, after), RedistributeOp::kPermute, next);
  }

  const Mesh& mesh_;
  const int rank_;
  const Placements target_;
  Geometry geometry_;
  std::vector<std::vector<Placement>> candidates_;
  State from_;
  State to_;
  std::map<State, Label> best_;
  std::set<State> settled_;
  std::set<std::pair<Label, State>> queue_;
};

}  // namespace

std::optional<std::vector<RedistributeStep>> SearchSteps(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                                         const Placements& from, const Placements& to) {
  return Search(mesh, dtype, shape, from, to).Run();
}

std::vector<int> PermuteAxes(const Placements& from, const Placements& to) {
  std::vector<int> axes;
  for (size_t axis = 0; axis < from.size(); ++axis) {
    bool moves = from[axis] != to[axis];
    for (size_t outer = 0; outer < axis && !moves && from[axis].IsSharding(); ++outer) {
      const int d = from[axis].dim;
      moves = from[outer] != to[outer] && (from[outer].Cuts(d) || to[outer].Cuts(d));
    }
    if (moves) axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

}  // namespace tp
