// The layouts that a search may pass through on the way from one layout to another: on each axis R, S(d) for every dim,
// and what source and target have there. Example: (R) -> (SS(0,2)) of one dim on tp=2: R, S(0), SS(0,2).
// Internal to common/redistribute. Immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/layout/spec.h"

namespace tp {

using LayoutState = absl::InlinedVector<uint8_t, 8>;  // index into the candidates of each axis; 0 is R

class Candidates {
 public:
  // Axes of one rank have R only. `from` and `to` must outlive it.
  Candidates(const Mesh& mesh, int rank, const Placements& from, const Placements& to);

  // The candidates of one axis.
  const std::vector<Placement>& On(size_t axis) const { return on_[axis]; }
  const Placement& At(const LayoutState& state, size_t axis) const { return on_[axis][state[axis]]; }
  LayoutState StateOf(const Placements& placements) const;
  // A number of its own for each state.
  uint64_t CodeOf(const LayoutState& state) const;
  // False where an interleaved cut may not divide at some size at which source and target are defined: one that is
  // neither the outermost cut of its dim nor inside of the cuts that it has in the source or the target.
  bool IsLegal(const LayoutState& state) const;

 private:
  bool HasOuterCutsOf(const Placements& layout, const LayoutState& state, size_t axis) const;

  const Placements& from_;
  const Placements& to_;
  std::vector<std::vector<Placement>> on_;
};

}  // namespace tp
