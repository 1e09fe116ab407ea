#include "common/redistribute/candidates.h"

#include <algorithm>

#include "common/base/check.h"

namespace tp {
namespace {

// Above these, S(d) is a candidate only where source or target have it.
constexpr int kMaxRank = 200;
constexpr double kMaxStates = 1e18;

}  // namespace

Candidates::Candidates(const Mesh& mesh, int rank, const Placements& from, const Placements& to)
    : from_(from), to_(to) {
  double states = 1;
  for (const bool all_dims : {true, false}) {
    on_.assign(from.size(), {Placement::Replicate()});
    states = 1;
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (mesh.axis_size(static_cast<int>(axis)) == 1) continue;
      std::vector<Placement>& candidates = on_[axis];
      for (int d = 0; all_dims && d < rank; ++d) candidates.push_back(Placement::Shard(d));
      for (const Placement& placement : {from[axis], to[axis]}) {
        if (std::find(candidates.begin(), candidates.end(), placement) == candidates.end()) {
          candidates.push_back(placement);
        }
      }
      states *= static_cast<double>(candidates.size());
    }
    if (rank < kMaxRank && states < kMaxStates) return;
  }
  TP_CHECK(states < kMaxStates);  // a mesh has at most 20 axes of two ranks or more
}

LayoutState Candidates::StateOf(const Placements& placements) const {
  LayoutState state;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const auto found = std::find(on_[axis].begin(), on_[axis].end(), placements[axis]);
    TP_CHECK(found != on_[axis].end());
    state.push_back(static_cast<uint8_t>(found - on_[axis].begin()));
  }
  return state;
}

uint64_t Candidates::CodeOf(const LayoutState& state) const {
  uint64_t code = 0;
  for (size_t axis = 0; axis < state.size(); ++axis) code = code * on_[axis].size() + state[axis];
  return code;
}

bool Candidates::HasOuterCutsOf(const Placements& layout, const LayoutState& state, size_t axis) const {
  const int dim = At(state, axis).dim;
  if (layout[axis] != At(state, axis)) return false;
  for (size_t outer = 0; outer < axis; ++outer) {
    const Placement& here = At(state, outer);
    const bool cuts = here.Cuts(dim);
    if (cuts != layout[outer].Cuts(dim) || (cuts && here != layout[outer])) return false;
  }
  return true;
}

bool Candidates::IsLegal(const LayoutState& state) const {
  for (size_t axis = 0; axis < state.size(); ++axis) {
    const Placement& placement = At(state, axis);
    if (placement.kind != PlacementKind::kInterleavedShard) continue;
    bool outermost = true;
    for (size_t outer = 0; outer < axis; ++outer) outermost = outermost && !At(state, outer).Cuts(placement.dim);
    if (!outermost && !HasOuterCutsOf(from_, state, axis) && !HasOuterCutsOf(to_, state, axis)) return false;
  }
  return true;
}

}  // namespace tp
