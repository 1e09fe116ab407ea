// The groups of ranks that the collectives of a program run in, for Communicator::PrepareGroups. Example, the mesh
// "dp=2,tp=2" with steps along tp:  GroupsOf(program) == {{{0, 1}, {2, 3}}}.
#pragma once

#include <vector>

#include "common/program/program.h"

namespace tp::worker {

// A partition of all ranks for each set of mesh axes that a step acts on, in a fixed order: the same on all ranks.
std::vector<std::vector<std::vector<int>>> GroupsOf(const ForwardProgram& program);

}  // namespace tp::worker
