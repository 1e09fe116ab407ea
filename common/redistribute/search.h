// The search behind PlanRedistribute: Dijkstra's algorithm over the layouts of one tensor. Nodes are placements, edges
// are the steps that SEMANTICS 3 allows, labels are (bytes, permutes, steps, order), compared in that order. All parts
// of a label add up along a path, so the first label that settles a node is its least.
// Internal to common/redistribute.
#pragma once

#include <optional>
#include <vector>

#include "common/redistribute/geometry.h"
#include "common/redistribute/plan.h"

namespace tp {

// Bytes by SEMANTICS 3, received by the busiest rank.
int64_t StepBytes(const Mesh& mesh, Geometry& geometry, const RedistributeStep& step);

// The steps from `from` to `to`; nullopt where no path of legal steps exists. Both are canonical: axes of one rank are
// R, and the kinds are the simplest that name the element map.
std::optional<std::vector<RedistributeStep>> SearchSteps(const Mesh& mesh, DType dtype, absl::Span<const int64_t> shape,
                                                         const Placements& from, const Placements& to);

// Axes over which a permute exchanges: those whose placement changes, and those that cut a dim inside of a changed cut.
std::vector<int> PermuteAxes(const Placements& from, const Placements& to);

}  // namespace tp
