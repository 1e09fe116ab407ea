// The search behind PlanRedistribute: Dijkstra's algorithm over the layouts of one tensor. Nodes are placements, edges
// are the steps that SEMANTICS 3 allows, labels are (bytes, steps, order), compared in that order. All parts of a label
// add up along a path, so the first label that settles a node is its least.
// Internal to common/redistribute.
#pragma once

#include <vector>

#include "common/redistribute/geometry.h"
#include "common/redistribute/plan.h"

namespace tp {

// Bytes by SEMANTICS 3, received by the busiest rank.
int64_t StepBytes(const Mesh& mesh, Geometry& geometry, const RedistributeStep& step);

// The steps of least (bytes, steps, order) from `from` to `to`, two different layouts of a tensor of `rank` dims. Both
// are canonical: axes of one rank are R, and the kinds are the simplest that name the element map.
std::vector<RedistributeStep> SearchSteps(const Mesh& mesh, Geometry& geometry, int rank, const Placements& from,
                                          const Placements& to);

}  // namespace tp
